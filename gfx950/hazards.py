"""Data hazards without a hardware interlock: pairs of instructions that need wait states between them on gfx950.

A hazard is `advisory` when it leaves no less than shipped kernels leave throughout (`tolerated`; a survey of 262 of AMD's
hand-written gfx950 code objects in PyPI's amd-aiter 0.1.7): the hardware evidently copes, but no document says so.

A wait state is one issued instruction, or one count of `s_nop N` (N + 1 states). RULES states the facts, `find_hazards`
applies them along every path of a kernel. Compilers insert the waits themselves; inline assembly and hand-written code do
not get them.

Source of every number: LLVM's lib/Target/AMDGPU/GCNHazardRecognizer.cpp, the branches taken for GFX940 and GFX950, cited by
function. AMD's "CDNA3 ISA" document, section 4.5 "Manually Inserted Wait States", has the same list for gfx942.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from . import mfma
from .decode import Instruction, Kind, Operand
from .effects import EXEC, M0, SGPR_BIT, VCC, VECTOR_MASK, Class, Effects, classify, effects, sgpr, vgpr, writes_high_half
from .flow import Flow

# LLVM looks no further back than this. Its own table asks for 20 after a 16-pass XDL, so 19 are accepted here too.
LONGEST_WAIT = 19
_HWREG_BIT = SGPR_BIT + 256  # hardware register ids, as further bits beside the registers
_ANYTHING = 1 << (_HWREG_BIT + 64)  # for a rule that does not look at registers


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction with what the rules ask about it worked out once."""

    inst: Instruction
    effects: Effects
    kind: Class
    family: str  # of an MFMA: xdl, sgemm or dgemm; "" for everything else
    passes: int  # of an MFMA; 0 for everything else

    @property
    def name(self) -> str:
        return self.inst.mnemonic

    @property
    def is_valu(self) -> bool:
        """VALU and not MFMA."""
        return self.kind is Class.VALU

    @property
    def is_memory(self) -> bool:
        return self.kind in (Class.VMEM, Class.LDS_DMA, Class.LDS)

    @property
    def wait_states(self) -> int:
        """How many its issue amounts to."""
        return (self.inst.words[0] & 0xF) + 1 if self.name == "s_nop" else 1


def step(inst: Instruction) -> Step:
    """Prepare one instruction for the rules."""
    kind = classify(inst)
    is_mfma = kind is Class.MFMA
    return Step(inst, effects(inst), kind, mfma.family(inst) if is_mfma else "", mfma.passes(inst) if is_mfma else 0)


# --- registers at stake ------------------------------------------------------------------------------------------------

_TRANS = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)(_iflag|_legacy)?_f(16|32|64)")
_DOT = re.compile(r"v_dot\d")
_BYTE_RESULT = re.compile(r"v_cvt_(scalef32_)?sr_(fp8|bf8)_")
_FP4_RESULT = re.compile(r"v_cvt_scalef32_sr_pk_fp4_")
_PERMLANE = re.compile(r"v_permlane\d+_swap")
_READS_M0_LATE = re.compile(r"s_movrel|s_sendmsg|s_ttracedata|ds_gws|ds_\w*addtid")

Mask = Callable[[Step], int]


def _nothing(s: Step) -> int:
    return 0


def _named(pattern: str | re.Pattern[str], mask: Mask) -> Mask:
    """`mask` for the instructions whose mnemonic matches, nothing for others."""
    matcher = re.compile(pattern)
    return lambda s: mask(s) if matcher.match(s.name) else 0


def _reads(s: Step) -> int:
    return s.effects.reads


def _vectors_read(s: Step) -> int:
    return s.effects.reads & VECTOR_MASK


def _valu_scalars(s: Step) -> int:
    """Scalar registers that a VALU instruction writes: compares, carries, v_readlane."""
    return s.effects.writes & ~VECTOR_MASK if s.is_valu else 0


def _valu_vectors(s: Step) -> int:
    return s.effects.writes & VECTOR_MASK if s.is_valu else 0


def _valu_exec(s: Step) -> int:
    return s.effects.writes & EXEC if s.is_valu else 0


def _valu_or_mfma_reads(s: Step) -> int:
    return s.effects.reads if s.kind in (Class.VALU, Class.MFMA) else 0


def _valu_touches(s: Step) -> int:
    return s.effects.reads | s.effects.writes if s.kind in (Class.VALU, Class.MFMA) else 0


def _valu_or_memory_reads(s: Step) -> int:
    return s.effects.reads & VECTOR_MASK if s.is_valu or s.is_memory else 0


def _valu_or_memory_writes(s: Step) -> int:
    return s.effects.writes & VECTOR_MASK if s.is_valu or s.is_memory else 0


def _vmem_scalars_read(s: Step) -> int:
    return s.effects.reads & ~VECTOR_MASK if s.kind in (Class.VMEM, Class.LDS_DMA) else 0


def _vectors_computed(s: Step) -> int:
    return s.effects.writes & VECTOR_MASK if s.kind in (Class.VALU, Class.MFMA) else 0


def _exec_needed(s: Step) -> int:
    """Every vector instruction reads EXEC, which effects() leaves unsaid."""
    return EXEC


def _dpp_vectors(s: Step) -> int:
    return (s.effects.reads | s.effects.merges) & VECTOR_MASK if "dpp_ctrl" in s.inst.modifiers else 0


def _dpp_exec(s: Step) -> int:
    return EXEC if "dpp_ctrl" in s.inst.modifiers else 0


def _partial_result(s: Step) -> int:
    """Results shifted into part of their register: SDWA, op_sel on the result, fp8 bytes; any fp4."""
    modifiers = s.inst.modifiers
    shifted = modifiers.get("dst_sel", 6) != 6 or writes_high_half(s.inst)
    byte = _BYTE_RESULT.match(s.name) and modifiers.get("op_sel", 0) >> 2
    return _valu_vectors(s) if shifted or byte or _FP4_RESULT.match(s.name) else 0


def _wide_store_data(s: Step) -> int:
    """Data registers of a store of more than 8 bytes."""
    if s.kind is not Class.VMEM or "_store" not in s.name:
        return 0
    data = s.inst.operands[0 if s.name.startswith(("buffer", "tbuffer")) else 1]
    return _vectors([data]) if data.words > 2 else 0


def _has_sgpr_offset(s: Step) -> bool:
    return s.name.startswith(("buffer_store", "tbuffer_store")) and s.inst.operands[3].kind == Kind.SGPR


def _lane_select(s: Step) -> int:
    select = s.inst.operands[2]
    return sgpr(select.index) if select.kind == Kind.SGPR else 0


def _hwreg(s: Step) -> int:
    symbol = next(operand for operand in s.inst.operands if operand.kind == Kind.SYMBOL)
    return 1 << (_HWREG_BIT + (symbol.value & 0x3F))


def _salu_m0(s: Step) -> int:
    return s.effects.writes & M0 if s.kind is Class.SALU else 0


def _late_m0(s: Step) -> int:
    return M0 if s.kind is Class.LDS_DMA or _READS_M0_LATE.match(s.name) else 0


def _mfma_result(s: Step) -> int:
    return s.effects.writes if s.family else 0


def _xdl_accumulator(s: Step) -> int:
    return accumulator(s) if s.family == "xdl" else 0


def accumulator(s: Step) -> int:
    """Registers of source C of an MFMA; SMFMAC accumulates into its result."""
    return _vectors([s.inst.operands[0 if "smfmac" in s.name else 3]]) if s.family else 0


def multiplicands(s: Step) -> int:
    """Registers of an MFMA's other sources: A, B, scales, sparse indices."""
    if not s.family:
        return 0
    sources = s.inst.operands[1:] if "smfmac" in s.name else (*s.inst.operands[1:3], *s.inst.operands[4:])
    return _vectors(sources)


def _vectors(operands: Iterable[Operand]) -> int:
    mask = 0
    for operand in operands:
        if operand.kind == Kind.VGPR:
            mask |= vgpr(operand.index, operand.words)
    return mask


# --- wait states -------------------------------------------------------------------------------------------------------

States = Callable[[Step, Step], int]


def _always(count: int) -> States:
    return lambda producer, consumer: count


def _result_to_valu_or_memory(p: Step, c: Step) -> int:
    """checkMAIVALUHazards, reads."""
    if p.family == "dgemm":
        if p.passes == 4:
            return 9 if c.is_memory else 6
        return 18 if c.is_memory else 19
    return _after_result(p)


def _result_overwritten(p: Step, c: Step) -> int:
    """checkMAIVALUHazards, write after write."""
    if p.family == "dgemm":
        return 6 if p.passes == 4 else 11
    return _after_result(p)


def _after_result(p: Step) -> int:
    return p.passes + 3 + (p.passes != 2) if p.family == "xdl" else p.passes + 2


def _accumulator_overwritten(p: Step, c: Step) -> int:
    """checkMAIVALUHazards, write after read of source C."""
    return p.passes - 1


def _result_to_multiplicand(p: Step, c: Step) -> int:
    """checkMAIHazards90A, sources A and B."""
    if p.family == "dgemm":
        return 6 if p.passes == 4 else 19
    return _after_result(p)


def _result_to_accumulator(p: Step, c: Step) -> int:
    """checkMAIHazards90A, source C: chains of the very same registers are forwarded."""
    if p.effects.writes == accumulator(c):
        both_f64_4x4 = p.family == c.family == "dgemm" and p.passes == c.passes == 4
        return 4 if both_f64_4x4 else 2 if p.passes == 2 else 0
    if p.family == "dgemm":
        return 0 if c.family == "xdl" else 4 if p.passes == 4 else 17
    if p.family == "sgemm":
        return 0 if c.family == "xdl" else p.passes
    return p.passes + 2 if c.family == "xdl" else p.passes + 1 + (p.passes != 2)


def _dot_read(p: Step, c: Step) -> int:
    """checkMAIVALUHazards: the same dot forwards into its source C."""
    if p.inst.base != c.inst.base:
        return 3
    source_c = _vectors(c.inst.operands[3:4])
    return 0 if not (c.effects.reads & ~source_c & p.effects.writes) else 3


def _other_dot_write(p: Step, c: Step) -> int:
    return 0 if p.inst.base == c.inst.base else 3


@dataclass(frozen=True)
class Rule:
    """Where the registers of `produces` and `consumes` meet, `wait_states` must lie between the two instructions."""

    name: str
    text: str
    source: str  # function of GCNHazardRecognizer.cpp
    produces: Mask
    consumes: Mask
    wait_states: States
    tolerated: int | None = None


RULES: tuple[Rule, ...] = (
    Rule("mfma-read", "reads an MFMA result", "checkMAIVALUHazards",
         _mfma_result, _valu_or_memory_reads, _result_to_valu_or_memory),
    Rule("mfma-write", "overwrites an MFMA result", "checkMAIVALUHazards",
         _mfma_result, _valu_or_memory_writes, _result_overwritten),
    Rule("mfma-accumulator-write", "overwrites the accumulator that an MFMA is still reading", "checkMAIVALUHazards",
         _xdl_accumulator, _valu_or_memory_writes, _accumulator_overwritten),
    Rule("mfma-multiplicand", "feeds an MFMA result into A or B", "checkMAIHazards90A",
         _mfma_result, multiplicands, _result_to_multiplicand),
    Rule("mfma-chain", "accumulates onto an overlapping MFMA result", "checkMAIHazards90A",
         _mfma_result, accumulator, _result_to_accumulator),
    Rule("valu-to-mfma", "MFMA reads a VALU result", "checkMAIHazards90A",
         lambda s: 0 if _DOT.match(s.name) else _valu_vectors(s), lambda s: _vectors_read(s) if s.family else 0, _always(2)),
    Rule("exec-to-mfma", "MFMA under an EXEC just written by a VALU", "checkMAIHazards90A",
         _valu_exec, lambda s: EXEC if s.family else 0, _always(4)),
    Rule("dgemm-to-fma64", "f64 FMA after a f64 MFMA", "checkMAIVALUHazards",
         lambda s: _ANYTHING if s.family == "dgemm" else 0, _named(r"v_fmac?_f64", lambda s: _ANYTHING), _always(2)),
    Rule("dot-read", "reads a dot product's result", "checkMAIVALUHazards",
         _named(_DOT, _valu_vectors), _valu_or_memory_reads, _dot_read),
    Rule("dot-write", "overwrites a dot product's result", "checkMAIVALUHazards",
         _named(_DOT, _valu_vectors), _valu_or_memory_writes, _other_dot_write),
    Rule("trans-use", "reads a transcendental's result", "checkVALUHazards",
         _named(_TRANS, _valu_vectors), lambda s: 0 if _TRANS.match(s.name) else _valu_or_mfma_reads(s), _always(1)),
    Rule("partial-result-use", "uses a result that is shifted into part of its register", "checkVALUHazards",
         _partial_result, _valu_touches, _always(1)),
    Rule("sgpr-to-valu", "VALU reads a scalar register that a VALU wrote", "checkVALUHazards",
         _valu_scalars, lambda s: _valu_or_mfma_reads(s) & ~VECTOR_MASK, _always(2), tolerated=1),
    Rule("vgpr-to-readlane", "v_readlane of a VALU result", "checkVALUHazards",
         _valu_vectors, _named(r"v_read(first)?lane", _vectors_read), _always(1)),
    Rule("exec-to-lane-access", "lane access under an EXEC just written by a VALU", "checkVALUHazards",
         _valu_exec, _named(r"v_(read|readfirst|write)lane", _exec_needed), _always(4)),
    Rule("lane-select", "lane number from a scalar register that a VALU wrote", "checkRWLaneHazards",
         _valu_scalars, _named(r"v_(read|write)lane_b32", _lane_select), _always(4)),
    Rule("sgpr-to-vmem", "memory instruction reads a scalar register that a VALU wrote", "checkVMEMHazards",
         _valu_scalars, _vmem_scalars_read, _always(5)),
    Rule("vgpr-to-dpp", "DPP reads a register just written", "checkDPPHazards",
         lambda s: s.effects.writes & VECTOR_MASK, _dpp_vectors, _always(2), tolerated=1),
    Rule("exec-to-dpp", "DPP under an EXEC just written by a VALU", "checkDPPHazards", _valu_exec, _dpp_exec, _always(5)),
    Rule("vcc-to-div-fmas", "v_div_fmas reads a VCC just written by a VALU", "checkDivFMasHazards",
         lambda s: _valu_scalars(s) & VCC, _named(r"v_div_fmas", lambda s: VCC), _always(4)),
    Rule("vgpr-to-permlane", "v_permlane swap of a VALU result", "checkPermlaneHazards",
         _valu_vectors, _named(_PERMLANE, _vectors_read), _always(2)),
    Rule("cmpx-to-permlane", "v_permlane swap under an EXEC written by v_cmpx", "checkPermlaneHazards",
         _named(r"v_cmpx", _valu_exec), _named(_PERMLANE, _exec_needed), _always(4)),
    Rule("store-data", "overwrites the data of a store of more than 8 bytes", "checkVALUHazardsHelper",
         lambda s: 0 if _has_sgpr_offset(s) else _wide_store_data(s), _vectors_computed, _always(2)),
    # Since LLVM 23; clang 22 leaves none.
    Rule("store-data-sgpr-offset", "overwrites the data of a store of more than 8 bytes", "checkSOFFSETWindowVALUHazardsHelper",
         lambda s: _wide_store_data(s) if _has_sgpr_offset(s) else 0, _vectors_computed, _always(1), tolerated=0),
    Rule("m0-use", "uses an M0 just written", "checkReadM0Hazards", _salu_m0, _late_m0, _always(1), tolerated=0),
    Rule("setreg-to-getreg", "reads a hardware register just set", "checkGetRegHazards",
         _named(r"s_setreg", _hwreg), _named(r"s_getreg", _hwreg), _always(2)),
    Rule("setreg-to-setreg", "sets a hardware register again", "checkSetRegHazards",
         _named(r"s_setreg", _hwreg), _named(r"s_setreg", _hwreg), _always(2)),
)  # fmt: skip


# --- search ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hazard:
    """`consumer` can be issued only `found` wait states after `producer` (addresses), where `needed` are required."""

    rule: Rule
    producer: int
    consumer: int
    needed: int
    found: int

    @property
    def advisory(self) -> bool:
        """Shipped code does the same."""
        return self.rule.tolerated is not None and self.found >= self.rule.tolerated


def find_hazards(code: Sequence[Instruction], flow: Flow) -> list[Hazard]:
    """Every pair, on any path of one kernel, with fewer wait states between than its rule asks; by consumer's address.

    A pair of instructions that is not in this list has its wait states on every path, so an emulator need only ask which of
    the listed pairs a launch executed.
    """
    steps = [step(inst) for inst in code]
    produced = [[(rule, mask) for rule in RULES if (mask := rule.produces(s))] for s in steps]
    hazards: list[Hazard] = []
    for index, consumer in enumerate(steps):
        consumed = {rule.name: mask for rule in RULES if (mask := rule.consumes(consumer))}
        if consumed:
            hazards += _hazards_of(index, consumed, steps, produced, flow)
    return hazards


def _hazards_of(
    index: int, consumed: dict[str, int], steps: list[Step], produced: list[list[tuple[Rule, int]]], flow: Flow
) -> Iterable[Hazard]:
    """The hazards that one consumer is part of; the nearest producer of each rule is reported."""
    found: dict[str, Hazard] = {}
    for earlier, distance in _nearest_before(index, steps, flow):
        for rule, mask in produced[earlier]:
            if rule.name in found or not mask & consumed.get(rule.name, 0):
                continue
            needed = min(rule.wait_states(steps[earlier], steps[index]), LONGEST_WAIT)
            if distance < needed and not _settled(index, earlier, mask & consumed[rule.name], steps, flow):
                producer, consumer = steps[earlier].inst.address, steps[index].inst.address
                found[rule.name] = Hazard(rule, producer, consumer, needed, distance)
    return found.values()


def _settled(index: int, producer: int, registers: int, steps: list[Step], flow: Flow) -> bool:
    """Whether on every path between, a later MFMA accumulates onto the producer's very registers: it ends after the producer
    does, so its own wait states are what counts."""
    result = steps[producer].effects.writes
    if not steps[producer].family or registers & ~result:
        return False

    def accumulates(s: Step) -> bool:
        return bool(s.family) and accumulator(s) == s.effects.writes == result

    return producer not in dict(_nearest_before(index, steps, flow, accumulates))


def _nearest_before(
    index: int, steps: list[Step], flow: Flow, ends: Callable[[Step], bool] = lambda s: False
) -> Iterable[tuple[int, int]]:
    """(instruction, wait states between it and `index`), the fewest over all paths, nearest first. A path ends at an
    instruction that `ends` holds for."""
    best: dict[int, int] = {}
    pending = [(earlier, 0) for earlier in flow.predecessors[index]]
    while pending:
        earlier, distance = pending.pop()
        if distance >= LONGEST_WAIT or best.get(earlier, LONGEST_WAIT) <= distance:
            continue
        best[earlier] = distance
        if ends(steps[earlier]):
            continue
        further = distance + steps[earlier].wait_states
        pending += [(before, further) for before in flow.predecessors[earlier]]
    return sorted(best.items(), key=lambda item: item[1])
