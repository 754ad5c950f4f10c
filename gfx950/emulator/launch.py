"""launch(): run one kernel of a code object in the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..codeobject import CodeObject, Kernel
from ..errors import BadLaunch, EmulationFault, UnimplementedOpcode
from .arguments import Dispatch, RawKernarg, build_kernarg
from .buffers import AddressSpace, Buffer, base_address
from .counters import Counters, count
from .executor import LaunchConfig, NativeRun, execute
from .findings import Finding, Translator
from .image import IMAGE_BASE, load_image
from .program import program_of
from .schedule import Schedule

FILLS = {"nan": 0xFF, "zero": 0x00}
DEFAULT_BUDGET = 2_000_000_000
LDS_LIMIT_BYTES = 160 * 1024
MAX_WORKGROUP = 1024
PRELOAD_PROLOGUE_BYTES = 256  # code that loads the arguments where firmware cannot preload them; skipped


@dataclass(frozen=True)
class Run:
    """A finished launch.

    args: the arrays and numbers it ran on (Buffers as their arrays). findings: in the order of their first occurrence.
    instructions: wave instructions executed; executed: the same for each instruction of the code object.
    """

    kernel: str
    schedule: Schedule
    lds_fill: str
    findings: list[Finding]
    counters: Counters
    instructions: int
    executed: list[int] = field(repr=False)
    args: list[Any] = field(repr=False, default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.findings


def launch(
    code: CodeObject,
    kernel_name: str | None = None,
    *,
    grid: Sequence[int] | int,
    block: Sequence[int] | int,
    args: Sequence[Any] | RawKernarg = (),
    lds_bytes: int = 0,
    schedule: Schedule | None = None,
    lds_fill: str = "nan",
    workgroups_in_flight: int = 8,
    budget: int = DEFAULT_BUDGET,
    strict: bool = True,
) -> Run:
    """Run a kernel; the buffers among `args` are read and written in place.

    grid: workgroups; block: work-items (x, y, z). args: one value for each argument of the kernel's metadata: numpy arrays,
    torch CPU tensors or Buffers for pointers, numbers for the rest; or a RawKernarg. lds_bytes: dynamic LDS. lds_fill: what
    LDS holds at the start, "nan" (0xff bytes) or "zero"; both are poison. budget: wave instructions before the launch counts
    as endless. strict: raise the first finding as EmulationFault (UnimplementedOpcode); otherwise collect them.
    Raises NoSuchKernel, BadArguments, BadLaunch, ToolchainMissing, EmulationFault.
    """
    kernel = code.kernel(kernel_name)
    schedule = schedule or Schedule.round_robin()
    dispatch = Dispatch(_triple(grid), _triple(block), lds_bytes)
    _check(kernel, dispatch, lds_fill)
    space = AddressSpace()
    space.place(load_image(code), "code object", True)
    kernarg = build_kernarg(kernel, args, dispatch, space)
    config = _config(kernel, dispatch, kernarg, space)
    _set_schedule(config, schedule, FILLS[lds_fill], workgroups_in_flight, budget, strict)
    native = execute(program_of(code), config, space)
    run = _run(code, kernel, schedule, lds_fill, space, native, _arrays(args))
    if strict and run.findings:
        first = run.findings[0]
        error = UnimplementedOpcode if first.kind == "unimplemented" else EmulationFault
        raise error(text=str(first), finding=first)
    return run


def _triple(size: Sequence[int] | int) -> tuple[int, int, int]:
    values = (size,) if isinstance(size, int | np.integer) else tuple(size)
    x, y, z = (*map(int, values), 1, 1, 1)[:3]
    return x, y, z


def _check(kernel: Kernel, dispatch: Dispatch, lds_fill: str) -> None:
    items = int(np.prod(dispatch.block))
    limit = min(kernel.max_workgroup_size, MAX_WORKGROUP)
    lds = kernel.lds_bytes + dispatch.dynamic_lds_bytes
    problem = ""
    if min(*dispatch.grid, *dispatch.block) < 1:
        problem = f"grid {dispatch.grid} and block {dispatch.block} must be at least 1 in every dimension"
    elif items > limit:
        problem = f"{items} work-items in a workgroup, compiled for at most {limit}; change its __launch_bounds__"
    elif lds > LDS_LIMIT_BYTES:
        problem = f"{lds} bytes of LDS, a workgroup has at most {LDS_LIMIT_BYTES}"
    elif lds_fill not in FILLS:
        problem = f"lds_fill={lds_fill!r}; choose one of {', '.join(FILLS)}"
    elif kernel.descriptor.wavefront_size32:
        problem = "compiled for 32-lane waves, which gfx950 does not have"
    if problem:
        raise BadLaunch(kernel=kernel.demangled, problem=problem)


def _config(kernel: Kernel, dispatch: Dispatch, kernarg: np.ndarray, space: AddressSpace) -> LaunchConfig:
    d = kernel.descriptor
    config = LaunchConfig()
    config.grid[:], config.block[:] = dispatch.grid, dispatch.block
    config.lds_bytes = kernel.lds_bytes + dispatch.dynamic_lds_bytes
    config.scratch_bytes = kernel.scratch_bytes
    config.vgpr_count, config.agpr_count = 256, 256
    config.entry_pc = IMAGE_BASE + kernel.address + (PRELOAD_PROLOGUE_BYTES if d.kernarg_preload_dwords else 0)
    config.workitem_dims = d.workitem_id_dimensions
    config.mode_register = (
        d.float_round_mode_32 | d.float_round_mode_16_64 << 2 | d.float_denorm_mode_32 << 4 | d.float_denorm_mode_16_64 << 6
        | d.dx10_clamp << 8 | d.ieee_mode << 9
    )  # fmt: skip
    _set_sgprs(config, kernel, dispatch, kernarg, space)
    return config


def _set_sgprs(config: LaunchConfig, kernel: Kernel, dispatch: Dispatch, kernarg: np.ndarray, space: AddressSpace) -> None:
    """What the SGPRs hold at entry (AMDGPUUsage, "Initial Kernel Execution State")."""
    address = space.place(kernarg, "kernarg", False)
    placed = kernel.descriptor.initial_sgprs
    values: dict[str, Sequence[int]] = {
        "kernarg_segment_ptr": _split64(address),
        "private_segment_size": [kernel.scratch_bytes],
        "kernarg_preload": kernarg.view(np.uint32)[kernel.descriptor.kernarg_preload_offset_dwords :].tolist()
        if kernarg.size % 4 == 0
        else [],
    }
    if "dispatch_ptr" in placed:
        values["dispatch_ptr"] = _split64(space.place(_dispatch_packet(kernel, dispatch, address), "dispatch packet", False))
    config.sgpr_count = kernel.descriptor.user_sgpr_count
    for name, (first, words) in placed.items():
        for k, value in enumerate(values.get(name, ())[:words]):
            config.sgprs[first + k] = value
    for axis, name in enumerate(("workgroup_id_x", "workgroup_id_y", "workgroup_id_z")):
        config.group_id_sgpr[axis] = placed.get(name, (-1, 0))[0]
    config.group_info_sgpr = placed.get("workgroup_info", (-1, 0))[0]


def _split64(value: int) -> list[int]:
    return [value & 0xFFFFFFFF, value >> 32]


def _dispatch_packet(kernel: Kernel, dispatch: Dispatch, kernarg_address: int) -> np.ndarray:
    """hsa_kernel_dispatch_packet_t, 64 bytes: sizes in work-items."""
    packet = np.zeros(16, np.uint32)
    packet.view(np.uint16)[2:5] = dispatch.block
    packet[3:6] = [g * b for g, b in zip(dispatch.grid, dispatch.block, strict=True)]
    packet[6], packet[7] = kernel.scratch_bytes, kernel.lds_bytes + dispatch.dynamic_lds_bytes
    packet[10:12] = _split64(kernarg_address)
    return packet.view(np.uint8)


def _set_schedule(config: LaunchConfig, schedule: Schedule, fill: int, in_flight: int, budget: int, strict: bool) -> None:
    config.order, config.quantum, config.seed = schedule.order, schedule.quantum, schedule.seed
    config.late_loads, config.posted_stores = schedule.late_loads, schedule.posted_stores
    config.lds_fill, config.workgroups_in_flight = fill, in_flight
    config.budget, config.strict, config.check_hazards = budget, strict, True


def _arrays(args: Sequence[Any] | RawKernarg) -> list[Any]:
    values = list(args.pointers.values()) if isinstance(args, RawKernarg) else args
    return [value.array if isinstance(value, Buffer) else value for value in values]


def _run(
    code: CodeObject, kernel: Kernel, schedule: Schedule, fill: str, space: AddressSpace, native: NativeRun, args: list[Any]
) -> Run:
    program = program_of(code)
    buffers = [(name, base_address(k), data.size) for k, (data, name, _) in enumerate(space.entries)]
    translate = Translator(code, kernel, program, buffers)
    return Run(
        kernel=kernel.demangled,
        schedule=schedule,
        lds_fill=fill,
        findings=[translate(raw) for raw in native.findings],
        counters=count(program.instructions, native),
        instructions=sum(native.executed),
        executed=native.executed,
        args=args,
    )
