"""launch(): run one kernel of a code object in the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..codeobject import CodeObject, Kernel
from ..errors import BadLaunch, EmulationFault, NotACodeObject, UnimplementedOpcode, too_large
from .arguments import Dispatch, RawKernarg, build_kernarg
from .buffers import AddressSpace, Buffer, base_address
from .counters import Counters, count
from .executor import NativeRun, execute
from .findings import Finding, Translator
from .image import load_image
from .initial import allocated_registers, initial_state
from .program import Program, program_of
from .schedule import Schedule

FILLS = {"nan": 0xFF, "zero": 0x00}
DEFAULT_BUDGET = 5_000_000  # a wave that decodes 8192 tokens alone needs about a fiftieth
LDS_LIMIT_BYTES = 160 * 1024
MAX_WORKGROUP = 1024
MAX_WORKGROUPS = 2**31 - 1


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
    LDS holds at the start, "nan" (0xff bytes) or "zero"; both are poison. budget: instructions that one wave may execute before
    it counts as endless. strict: raise the first finding as EmulationFault (UnimplementedOpcode); otherwise collect them.
    Raises NoSuchKernel, BadArguments, BadLaunch, NotACodeObject, ToolchainMissing, EmulationFault.
    """
    kernel = code.kernel(kernel_name)
    schedule = schedule or Schedule.round_robin()
    dispatch = Dispatch(_triple(kernel, grid), _triple(kernel, block), lds_bytes)
    _check(kernel, dispatch, lds_fill)
    space = AddressSpace()
    space.place(load_image(code), "code object", True)
    kernarg = build_kernarg(kernel, args, dispatch, space)
    config = initial_state(kernel, dispatch, kernarg, space)
    config.order, config.quantum, config.seed = schedule.order, schedule.quantum, schedule.seed
    config.late_loads, config.posted_stores = schedule.late_loads, schedule.posted_stores
    config.instant, config.stalls = schedule.instant, schedule.stalls
    config.lds_fill, config.workgroups_in_flight = FILLS[lds_fill], workgroups_in_flight
    config.budget, config.strict = budget, strict
    program = program_of(code)
    if not program.begins_at(kernel.address):
        raise NotACodeObject(path=code.path, reason=f"damaged: {kernel.name} begins at {kernel.address:#x}, no instruction")
    program.find_hazards(kernel)
    native = execute(program, config, space)
    findings = _findings(code, kernel, program, space, native)
    if strict and findings:
        error = UnimplementedOpcode if findings[0].kind == "unimplemented" else EmulationFault
        raise error(text=str(findings[0]), finding=findings[0])
    counters = count(program, native, dispatch.workgroups)
    total = sum(native.executed)
    return Run(kernel.demangled, schedule, lds_fill, findings, counters, total, native.executed, _arrays(args))


def _triple(kernel: Kernel, size: Sequence[int] | int) -> tuple[int, int, int]:
    values = (size,) if isinstance(size, int | np.integer) else tuple(size)
    if not 1 <= len(values) <= 3:
        raise BadLaunch(kernel=kernel.demangled, problem=f"{values} has {len(values)} dimensions; give x, y and z at most")
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
        problem = too_large(items, limit)
    elif dispatch.workgroups > MAX_WORKGROUPS:
        problem = f"{dispatch.workgroups} workgroups, the emulator counts to {MAX_WORKGROUPS}; launch a smaller grid"
    elif dispatch.dynamic_lds_bytes < 0:
        problem = f"{dispatch.dynamic_lds_bytes} bytes of dynamic LDS; give 0 or more"
    elif lds > LDS_LIMIT_BYTES:
        problem = f"{lds} bytes of LDS, a workgroup has at most {LDS_LIMIT_BYTES}"
    elif lds_fill not in FILLS:
        problem = f"lds_fill={lds_fill!r}; choose one of {', '.join(FILLS)}"
    elif kernel.descriptor.wavefront_size32:
        problem = "compiled for 32-lane waves, which gfx950 does not have"
    if problem:
        raise BadLaunch(kernel=kernel.demangled, problem=problem)


def _findings(code: CodeObject, kernel: Kernel, program: Program, space: AddressSpace, native: NativeRun) -> list[Finding]:
    buffers = [(name, base_address(k), data.size) for k, (data, name, _) in enumerate(space.entries)]
    translate = Translator(code, kernel, program, buffers)
    found = [translate(raw) for raw in native.findings]
    return found + translate.beyond_registers(native.executed, *allocated_registers(kernel))


def _arrays(args: Sequence[Any] | RawKernarg) -> list[Any]:
    values = list(args.pointers.values()) if isinstance(args, RawKernarg) else args
    return [value.array if isinstance(value, Buffer) else value for value in values]
