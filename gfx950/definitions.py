"""Registers that a kernel reads although nothing on any path has written them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .decode import Instruction, Kind, Operand
from .descriptor import KernelDescriptor
from .effects import EXEC, Effects, effects, sgpr, vgpr
from .flow import Flow

PRELOAD_FALLBACK_BYTES = 256  # code before the real entry of a kernel whose arguments the hardware preloads
# flat_scratch, xnack_mask and the trap registers, then apertures and constants: the hardware's own.
_ALWAYS_SET = EXEC | sgpr(102, 4) | sgpr(108, 16) | sgpr(235, 5) | sgpr(251, 2)


def entry_registers(descriptor: KernelDescriptor) -> int:
    """Mask of the registers that hold something when the first instruction runs."""
    mask = _ALWAYS_SET | vgpr(0)  # v0: work-item ids, packed
    for first, count in descriptor.initial_sgprs.values():
        mask |= sgpr(first, count)
    return mask


def entries(descriptor: KernelDescriptor, code: Sequence[Instruction]) -> list[int]:
    """Instructions at which execution may begin."""
    if not code:
        return []
    if not descriptor.kernarg_preload_dwords:
        return [0]
    start = code[0].address + PRELOAD_FALLBACK_BYTES
    return [0, *(index for index, inst in enumerate(code) if inst.address == start)]


def addresses_registers_at_run_time(code: Sequence[Instruction]) -> bool:
    """Relative register addressing: an instruction then touches other registers than it names."""
    return any(inst.mnemonic.startswith(("s_set_gpr_idx", "s_movrel", "v_movrel")) for inst in code)


def undefined_reads(descriptor: KernelDescriptor, code: Sequence[Instruction], flow: Flow) -> Iterator[tuple[int, int]]:
    """(index of an instruction, mask of registers it reads that no path has written), in address order.

    Meaningless when `flow` is not exact, or with registers addressed at run time. A 64-bit source counts only when both
    halves are undefined: compilers leave a half that does not matter undefined (v_mad_u64_u32 of which the low word is used,
    packed operations on one element).
    """
    facts = [effects(inst) for inst in code]
    reloads = _whole_wave_reloads(code)
    written = _written_before(facts, entries(descriptor, code), entry_registers(descriptor), flow)
    for index, before in sorted(written.items()):
        undefined = facts[index].reads & ~before
        if undefined and index not in reloads:
            undefined &= ~_half_undefined(code[index].operands, undefined)
            if undefined:
                yield index, undefined


def _whole_wave_reloads(code: Sequence[Instruction]) -> set[int]:
    """Indices of `v_accvgpr_read` between `s_or_saveexec_b64 ..., -1` and the next change of EXEC.

    clang spills SGPRs to lanes of a VGPR, and that VGPR to an AGPR: the first reload comes before any lane is written.
    """
    found: set[int] = set()
    whole = False
    for index, inst in enumerate(code):
        if inst.mnemonic == "s_or_saveexec_b64":
            whole = inst.text.endswith(", -1")
        elif effects(inst).writes & EXEC:
            whole = False
        elif whole and inst.base.startswith("v_accvgpr_read"):
            found.add(index)
    return found


def _written_before(facts: Sequence[Effects], starts: list[int], at_entry: int, flow: Flow) -> dict[int, int]:
    """For every reachable instruction, the registers written on some path before it (a forward may-analysis)."""
    written = dict.fromkeys(starts, at_entry)
    pending = list(starts)
    while pending:
        index = pending.pop()
        after = written[index] | facts[index].writes
        for successor in flow.successors[index]:
            known = written.get(successor)
            if known is None or after & ~known:
                written[successor] = after | (known or 0)
                pending.append(successor)
    return written


def _half_undefined(operands: Sequence[Operand], undefined: int) -> int:
    """Registers of 64-bit operands of which the other half is defined."""
    mask = 0
    for operand in operands:
        if operand.words == 2 and operand.kind in (Kind.VGPR, Kind.SGPR):
            both = vgpr(operand.index, 2) if operand.kind == Kind.VGPR else sgpr(operand.index, 2)
            mask |= both if both & ~undefined else 0
    return mask
