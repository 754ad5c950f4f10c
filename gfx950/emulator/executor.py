"""The call into the native executor."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from .buffers import AddressSpace
from .build import load_library
from .findings import NativeFinding
from .program import Program


class LaunchConfig(ctypes.Structure):
    """native/machine.hpp, LaunchConfig."""

    _fields_ = [
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("lds_bytes", ctypes.c_uint32),
        ("scratch_bytes", ctypes.c_uint32), ("vgpr_count", ctypes.c_uint32), ("agpr_count", ctypes.c_uint32),
        ("entry_pc", ctypes.c_uint64), ("budget", ctypes.c_uint64), ("order", ctypes.c_uint32),
        ("quantum", ctypes.c_uint32), ("seed", ctypes.c_uint64), ("workgroups_in_flight", ctypes.c_uint32),
        ("lds_fill", ctypes.c_uint32), ("late_loads", ctypes.c_uint32), ("posted_stores", ctypes.c_uint32),
        ("instant", ctypes.c_uint32), ("stalls", ctypes.c_uint32), ("strict", ctypes.c_uint32),
        ("mode_register", ctypes.c_uint32), ("workitem_dims", ctypes.c_uint32), ("group_id_sgpr", ctypes.c_int32 * 3),
        ("group_info_sgpr", ctypes.c_int32), ("sgpr_count", ctypes.c_uint32), ("sgprs", ctypes.c_uint32 * 32),
    ]  # fmt: skip


class NativeCounters(ctypes.Structure):
    """native/machine.hpp, Counters."""

    _fields_ = [
        ("lds_read_bytes", ctypes.c_uint64), ("lds_write_bytes", ctypes.c_uint64), ("lds_cycles", ctypes.c_uint64),
        ("lds_conflict_cycles", ctypes.c_uint64), ("barriers", ctypes.c_uint64),
    ]  # fmt: skip


class _Result(ctypes.Structure):
    _fields_ = [
        ("launch", ctypes.c_void_p), ("finding_count", ctypes.c_uint64), ("findings", ctypes.POINTER(NativeFinding)),
        ("executed", ctypes.POINTER(ctypes.c_uint64)), ("counters", NativeCounters),
    ]  # fmt: skip


@dataclass(frozen=True)
class BufferTraffic:
    """Bytes of one buffer: as lanes requested them, and how many different ones."""

    name: str
    requested_load: int
    requested_store: int
    unique_load: int
    unique_store: int


@dataclass
class NativeRun:
    """What the executor measured."""

    findings: list[NativeFinding]
    executed: list[int]  # per instruction of the program
    counters: dict[str, int]
    traffic: list[BufferTraffic]


def execute(program: Program, config: LaunchConfig, space: AddressSpace) -> NativeRun:
    """Runs one launch; the buffers of `space` are changed in place. Releases the GIL."""
    library = load_library()
    buffers = space.native()
    result = _Result()
    library.emu_launch(
        ctypes.c_void_p(program.handle), ctypes.byref(config), buffers, ctypes.c_uint64(len(buffers)), ctypes.byref(result)
    )
    try:
        findings = [NativeFinding.from_buffer_copy(result.findings[k]) for k in range(result.finding_count)]
        executed = result.executed[: len(program.instructions)]
        counters = {name: getattr(result.counters, name) for name in (entry[0] for entry in NativeCounters._fields_)}
    finally:
        library.emu_launch_destroy(ctypes.byref(result))
    names = [name for _, name, _ in space.entries]
    traffic = [
        BufferTraffic(name, b.requested_load, b.requested_store, b.unique_load, b.unique_store)
        for name, b in zip(names, buffers, strict=True)
    ]
    return NativeRun(findings, executed, counters, traffic)
