"""The kernarg segment: what the caller passes and what the run time adds (hidden arguments)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..codeobject import Kernel, KernelArg
from ..errors import BadArguments
from ..limits import round_up
from .buffers import AddressSpace, Buffer


@dataclass(frozen=True)
class Dispatch:
    """Geometry of a launch: grid in workgroups, block in work-items, dynamic LDS in bytes."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_lds_bytes: int = 0

    @property
    def workgroups(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


@dataclass(frozen=True)
class RawKernarg:
    """A kernarg segment given as bytes; `pointers` maps byte offsets to buffers whose addresses are written there."""

    data: bytes
    pointers: dict[int, Buffer]


def build_kernarg(kernel: Kernel, args: Sequence[Any] | RawKernarg, dispatch: Dispatch, space: AddressSpace) -> np.ndarray:
    """The kernarg segment, shape [bytes] uint8. Raises BadArguments."""
    if isinstance(args, RawKernarg):
        return _raw(kernel, args, space)
    declared = [arg for arg in kernel.args if not arg.hidden and arg.value_kind != "none"]
    if not kernel.args and args:
        raise BadArguments(kernel=kernel.demangled, problem="its metadata lists no arguments; pass RawKernarg(bytes, pointers)")
    if len(args) != len(declared):
        wanted = ", ".join(f"{arg.name or arg.value_kind}: {arg.size} B" for arg in declared)
        raise BadArguments(
            kernel=kernel.demangled, problem=f"{len(args)} arguments given, {len(declared)} declared ({wanted or 'none'})"
        )
    outside = next((arg for arg in kernel.args if not 0 <= arg.offset <= kernel.kernarg_bytes - arg.size), None)
    if outside:
        problem = f"its metadata puts an argument at byte {outside.offset} of {kernel.kernarg_bytes}; compile it again"
        raise BadArguments(kernel=kernel.demangled, problem=problem)
    segment = np.zeros(round_up(kernel.kernarg_bytes + 1, 8), np.uint8)
    for position, (arg, value) in enumerate(zip(declared, args, strict=True)):
        _put(segment, arg, _encode(kernel, position, arg, value, space))
    for arg in kernel.args:
        if arg.hidden:
            _put(segment, arg, _hidden(arg, kernel, dispatch).to_bytes(arg.size, "little"))
    return segment


def _put(segment: np.ndarray, arg: KernelArg, data: bytes) -> None:
    segment[arg.offset : arg.offset + arg.size] = np.frombuffer(data, np.uint8)


def _raw(kernel: Kernel, args: RawKernarg, space: AddressSpace) -> np.ndarray:
    if len(args.data) < kernel.kernarg_bytes:
        problem = f"the raw kernarg segment has {len(args.data)} bytes, the kernel reads {kernel.kernarg_bytes}"
        raise BadArguments(kernel=kernel.demangled, problem=problem)
    segment = np.zeros(round_up(len(args.data) + 1, 8), np.uint8)
    segment[: len(args.data)] = np.frombuffer(args.data, np.uint8)
    for offset, buffer in args.pointers.items():
        address = space.place_buffer(buffer, f"kernarg+{offset}")
        segment[offset : offset + 8] = np.frombuffer(address.to_bytes(8, "little"), np.uint8)
    return segment


def _encode(kernel: Kernel, position: int, arg: KernelArg, value: Any, space: AddressSpace) -> bytes:
    label = f"argument {position}" + (f" ({arg.name})" if arg.name else "")
    try:
        if arg.value_kind in ("global_buffer", "dynamic_shared_pointer") or isinstance(value, Buffer) or _is_array(value):
            return _pointer(arg, value, arg.name or f"arg{position}", space)
        return _scalar(arg, value)
    except (TypeError, ValueError, OverflowError, struct.error) as error:
        problem = f"{label}, {arg.value_kind} of {arg.size} bytes: {error}"
        raise BadArguments(kernel=kernel.demangled, problem=problem) from None


def _is_array(value: Any) -> bool:
    return hasattr(value, "data_ptr") or (isinstance(value, np.ndarray) and value.ndim > 0)


def _pointer(arg: KernelArg, value: Any, name: str, space: AddressSpace) -> bytes:
    if arg.size != 8 and arg.value_kind != "dynamic_shared_pointer":
        raise ValueError("an array was given for an argument that is not a pointer")
    if value is None or isinstance(value, int | np.integer):
        return int(value or 0).to_bytes(arg.size, "little")
    buffer = value if isinstance(value, Buffer) else Buffer(value)
    return space.place_buffer(buffer, name).to_bytes(8, "little")


def _scalar(arg: KernelArg, value: Any) -> bytes:
    """A number in the argument's own size; numpy scalars keep their type, Python floats become binary32 or binary64."""
    if isinstance(value, bytes | bytearray):
        data = bytes(value)
    elif isinstance(value, np.generic | np.ndarray):
        data = value.tobytes()
        if len(data) != arg.size and isinstance(value, np.integer | np.bool_):
            data = int(value).to_bytes(arg.size, "little", signed=int(value) < 0)
    elif isinstance(value, float):
        data = struct.pack({2: "<e", 4: "<f", 8: "<d"}[arg.size] if arg.size in (2, 4, 8) else "", value)
    elif isinstance(value, int):
        data = int(value).to_bytes(arg.size, "little", signed=value < 0)
    else:
        raise TypeError(f"a {type(value).__name__} was given; pass a number, bytes of its size, or an array for a pointer")
    if len(data) != arg.size:
        raise ValueError(f"the value has {len(data)} bytes")
    return data


def _hidden(arg: KernelArg, kernel: Kernel, dispatch: Dispatch) -> int:
    """Hidden arguments, https://llvm.org/docs/AMDGPUUsage.html "Code Object V5 Metadata"; 0 for services that do not exist."""
    axis = "xyz".find(arg.value_kind[-1])
    kind = arg.value_kind.rsplit("_", 1)[0]
    if kind == "hidden_block_count":
        return dispatch.grid[axis]
    if kind == "hidden_group_size":
        return dispatch.block[axis]
    if arg.value_kind == "hidden_grid_dims":
        return max(k + 1 for k in range(3) if k == 0 or dispatch.grid[k] * dispatch.block[k] > 1)
    if arg.value_kind == "hidden_dynamic_lds_size":
        return dispatch.dynamic_lds_bytes
    if arg.value_kind == "hidden_private_base":
        return 0x20000
    if arg.value_kind == "hidden_shared_base":
        return 0x10000
    return 0
