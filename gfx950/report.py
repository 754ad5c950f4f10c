"""What a kernel costs before it runs: registers, memory, occupancy, instruction mix, and an estimate of cycles."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from . import mfma
from .codeobject import CodeObject, Kernel
from .decode import Instruction
from .effects import Class, classify
from .errors import BadLaunch, ToolchainMissing, too_large
from .limits import WAVE_SIZE, occupancy
from .subject import Subject

# Cycles that an instruction keeps its pipe busy for one wave. A SIMD's vector ALU takes 16 lanes a cycle, transcendental
# functions a quarter of that; one MFMA pass is 4 cycles (LLVM, SISchedule.td, in units of 4 cycles). LDS moves 128 bytes a
# cycle for the whole CU (AMD, "CDNA4 architecture" white paper); address and scalar instructions issue one in 4 cycles.
VALU_CYCLES, TRANS_CYCLES, ISSUE_CYCLES, PASS_CYCLES = 4, 16, 4, 4
LDS_BYTES_PER_CYCLE = 128
_TRANS = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_")
_LDS_BITS = re.compile(r"_b(?:it)?(\d+)|_[uif](\d+)")


@dataclass(frozen=True)
class LoopReport:
    """One innermost loop: what one iteration of it costs one wave."""

    address: int
    file: str | None
    line: int | None
    instructions: int
    mix: dict[str, int]  # class -> instructions
    cycles: dict[str, int]  # pipe -> cycles that it is busy


@dataclass(frozen=True)
class CodeReport:
    """What the disassembly tells; every instruction counted once, loops as if they ran once."""

    mix: dict[str, int]  # class -> instructions
    mfma: dict[str, int]  # shape and formats -> instructions
    mfma_flops: int  # of one wave
    cycles: dict[str, int]  # pipe -> cycles that it is busy: an estimate
    loops: tuple[LoopReport, ...]


@dataclass(frozen=True)
class KernelReport:
    """Counts are registers of one lane (v, a) or wave (s); sizes are bytes. `code` is None without llvm-objdump."""

    name: str
    mangled: str
    vgprs: int
    agprs: int
    sgprs: int
    vgprs_allocated: int
    vgpr_spills: int
    sgpr_spills: int
    scratch_bytes: int
    lds_bytes: int
    dynamic_lds: bool  # the kernel asks how much LDS the launch added
    max_workgroup_size: int
    waves_per_simd: int
    occupancy_limited_by: str
    code_bytes: int
    code: CodeReport | None

    def to_json(self) -> dict[str, object]:
        """JSON object with these fields' names."""
        return asdict(self)


def report(
    code: CodeObject, kernel: str | None = None, *, workgroup_size: int | None = None, dynamic_lds_bytes: int = 0
) -> list[KernelReport]:
    """Reports of one kernel, or of all of a code object.

    workgroup_size: work-items of the launch, by default the most that the kernel admits; dynamic_lds_bytes: what the launch
    adds to the static LDS. Both only change the occupancy. Raises NoSuchKernel, BadLaunch.
    """
    kernels = [code.kernel(kernel)] if kernel else code.kernels
    return [_kernel_report(code, each, workgroup_size, dynamic_lds_bytes) for each in kernels]


def _kernel_report(code: CodeObject, kernel: Kernel, workgroup_size: int | None, dynamic_lds_bytes: int) -> KernelReport:
    allocated = kernel.descriptor.vgpr_count
    size = workgroup_size or kernel.max_workgroup_size
    if size > kernel.max_workgroup_size:
        raise BadLaunch(kernel=kernel.demangled, problem=too_large(size, kernel.max_workgroup_size))
    fits = occupancy(allocated, kernel.sgpr_count, kernel.lds_bytes + dynamic_lds_bytes, size)
    return KernelReport(
        name=kernel.display_name,
        mangled=kernel.name,
        vgprs=kernel.vgpr_count,
        agprs=kernel.agpr_count,
        sgprs=kernel.sgpr_count,
        vgprs_allocated=allocated,
        vgpr_spills=kernel.vgpr_spill_count,
        sgpr_spills=kernel.sgpr_spill_count,
        scratch_bytes=kernel.scratch_bytes,
        lds_bytes=kernel.lds_bytes,
        dynamic_lds=any(arg.value_kind in ("hidden_dynamic_lds_size", "dynamic_shared_pointer") for arg in kernel.args),
        max_workgroup_size=kernel.max_workgroup_size,
        waves_per_simd=fits.waves_per_simd,
        occupancy_limited_by=fits.limited_by,
        code_bytes=kernel.code_bytes,
        code=_code_report(Subject(code, kernel)),
    )


def _code_report(subject: Subject) -> CodeReport | None:
    try:
        instructions = subject.reachable
    except ToolchainMissing:
        return None
    matrix = [inst for inst in instructions if classify(inst) is Class.MFMA]
    return CodeReport(
        mix=instruction_mix(instructions),
        mfma=dict(Counter(map(mfma.label, matrix)).most_common()),
        mfma_flops=sum(mfma.shape(inst).flops for inst in matrix),
        cycles=busy_cycles(instructions),
        loops=tuple(_loop_report(subject, body) for body in innermost_loops(instructions)),
    )


def instruction_mix(instructions: Iterable[Instruction]) -> dict[str, int]:
    """class -> instructions, classes that do not occur left out."""
    counts = Counter(classify(inst) for inst in instructions)
    return {kind.value: counts[kind] for kind in Class if counts[kind]}


def busy_cycles(instructions: Iterable[Instruction]) -> dict[str, int]:
    """pipe -> cycles that these instructions keep it busy for one wave, each issued once and nothing waited for.

    An estimate from below: the largest entry bounds the time of one wave; waves on the same SIMD share its valu and mfma
    pipes, the whole CU its lds pipe.
    """
    cycles: Counter[str] = Counter()
    for inst in instructions:
        kind = classify(inst)
        cycles[kind.value] += _cycles(inst, kind)
    return {kind.value: cycles[kind.value] for kind in Class if cycles[kind.value]}


def _cycles(inst: Instruction, kind: Class) -> int:
    if kind is Class.MFMA:
        return PASS_CYCLES * mfma.passes(inst)
    if kind is Class.VALU:
        return TRANS_CYCLES if _TRANS.match(inst.mnemonic) else VALU_CYCLES
    if kind is Class.LDS:
        return max(ISSUE_CYCLES, WAVE_SIZE * lds_bytes_per_lane(inst) // LDS_BYTES_PER_CYCLE)
    if kind is Class.WAIT:
        return ISSUE_CYCLES * ((inst.words[0] & 0xF) + 1) if inst.mnemonic == "s_nop" else 0
    return ISSUE_CYCLES


def lds_bytes_per_lane(inst: Instruction) -> int:
    """Bytes that one lane moves: ds_read_b128 -> 16, ds_read2_b64 -> 16, ds_read_u16 -> 2."""
    found = _LDS_BITS.search(inst.mnemonic)
    bits = int(found[1] or found[2]) if found else 32
    return bits // 8 * (2 if re.match(r"ds_(read|write)2", inst.mnemonic) else 1)


def innermost_loops(instructions: Sequence[Instruction]) -> list[list[Instruction]]:
    """Bodies of loops that hold no other loop: from the target of a backward branch to the branch."""
    spans = sorted({(i.target, i.address) for i in instructions if i.target is not None and i.target <= i.address})
    innermost = [(a, b) for a, b in spans if not any((c, d) != (a, b) and a <= c and d <= b for c, d in spans)]
    return [[inst for inst in instructions if first <= inst.address <= last] for first, last in innermost]


def _loop_report(subject: Subject, body: list[Instruction]) -> LoopReport:
    frame = subject.code.source_line(body[0].address)
    place = (frame.file, frame.line) if frame else (None, None)
    return LoopReport(body[0].address, *place, len(body), instruction_mix(body), busy_cycles(body))


# --- text --------------------------------------------------------------------------------------------------------------


def as_text(item: KernelReport) -> str:
    """A few lines for people."""
    spilled = f", {item.vgpr_spills} VGPRs and {item.sgpr_spills} SGPRs spilled" if item.vgpr_spills or item.sgpr_spills else ""
    dynamic = " static, and what the launch adds" if item.dynamic_lds else ""
    lines = [
        item.name,
        f"  registers   {item.vgprs} VGPR, {item.agprs} AGPR ({item.vgprs_allocated} allocated), {item.sgprs} SGPR{spilled}",
        f"  memory      LDS {item.lds_bytes} B{dynamic}; scratch {item.scratch_bytes} B a work-item; code {item.code_bytes} B",
        f"  occupancy   {item.waves_per_simd} waves per SIMD, limited by {item.occupancy_limited_by};"
        f" workgroups of up to {item.max_workgroup_size} work-items",
    ]
    return "\n".join(lines + (_code_lines(item.code) if item.code else ["  code        not disassembled: needs llvm-objdump"]))


def _code_lines(code: CodeReport) -> list[str]:
    lines = [f"  mix         {_pairs(code.mix)}"]
    if code.mfma:
        lines.append(f"  mfma        {_pairs(code.mfma, ', ')}; {code.mfma_flops} flop a wave")
    lines.append(f"  estimate    busy cycles, everything once: {_pairs(code.cycles)}")
    for loop in code.loops:
        place = f"{loop.file.rsplit('/', 1)[-1]}:{loop.line}" if loop.file else f"{loop.address:#x}"
        lines.append(
            f"  loop        {place}: {loop.instructions} instructions; busy cycles an iteration: {_pairs(loop.cycles)}"
        )
    return lines


def _pairs(counts: dict[str, int], separator: str = "  ") -> str:
    return separator.join(f"{name} {count}" for name, count in counts.items())
