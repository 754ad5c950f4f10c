"""What one instruction reads and writes, implicit registers included, and which class of instruction it is.

Registers are the bits of one integer, so that overlap is `&` and union `|`: vector registers 0..511 (a0 at 256), then the
scalar ones by their hardware number (s0.., VCC 106, M0 124, EXEC 126, SCC 253).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from .decode import AGPR_BASE, Instruction, Kind, Operand

SGPR_BIT = 512
VECTOR_MASK = (1 << SGPR_BIT) - 1


def sgpr(index: int, count: int = 1) -> int:
    """Mask of `count` scalar registers from `index` on."""
    return ((1 << count) - 1) << (SGPR_BIT + index)


def vgpr(index: int, count: int = 1) -> int:
    """Mask of `count` vector registers; a registers from 256 on."""
    return ((1 << count) - 1) << index


VCC, M0, EXEC, SCC = sgpr(106, 2), sgpr(124), sgpr(126, 2), sgpr(253)
_PAIRS = {"vcc": 106, "exec": 126}
_NAMES = {106: "vcc_lo", 107: "vcc_hi", 124: "m0", 126: "exec_lo", 127: "exec_hi", 253: "scc"}


def register_names(mask: int) -> str:
    """'v[4:7], s2, vcc': the registers of a mask, runs joined."""
    special = [name for name, first in _PAIRS.items() if mask >> (SGPR_BIT + first) & 3 == 3]
    for name in special:
        mask &= ~sgpr(_PAIRS[name], 2)
    return ", ".join([*(_run_name(first, last) for first, last in _runs(mask)), *special])


def _runs(mask: int) -> Iterator[tuple[int, int]]:
    """First and last bit of each run of registers with consecutive names."""
    while mask:
        first = (mask & -mask).bit_length() - 1
        last = first
        while mask >> (last + 1) & 1 and (last + 1) % AGPR_BASE and last + 1 - SGPR_BIT not in _NAMES:
            last += 1
        yield first, last
        mask &= ~vgpr(first, last - first + 1)


def _run_name(first: int, last: int) -> str:
    if first - SGPR_BIT in _NAMES:
        return _NAMES[first - SGPR_BIT]
    letter, base = ("v", 0) if first < AGPR_BASE else ("a", AGPR_BASE) if first < SGPR_BIT else ("s", SGPR_BIT)
    return f"{letter}{first - base}" if first == last else f"{letter}[{first - base}:{last - base}]"


class Class(Enum):
    """The pipeline that an instruction goes to; the values are the names in reports."""

    SALU = "salu"
    VALU = "valu"
    MFMA = "mfma"
    VMEM = "vmem"
    LDS = "lds"
    LDS_DMA = "lds-dma"
    SMEM = "smem"
    BRANCH = "branch"
    WAIT = "wait"


_CLASS_PATTERNS = (
    (Class.MFMA, r"v_(mfma|smfmac)_"),
    (Class.VALU, r"v_"),
    (Class.LDS_DMA, r"global_load_lds_"),
    (Class.VMEM, r"(buffer|tbuffer|global|flat|scratch)_"),
    (Class.LDS, r"ds_"),
    (Class.BRANCH, r"s_(c?branch|setpc|swappc|call|endpgm|rfe|trap|cbranch)"),
    (Class.WAIT, r"s_(waitcnt|nop|barrier|sleep|setprio|sethalt|wakeup|sendmsg|icache_inv|(inc|dec)perflevel|ttracedata)"),
    (Class.SMEM, r"s_(load|store|buffer_|scratch_|atomic|dcache|memtime|memrealtime|atc_probe)"),
    (Class.SALU, r"s_"),
)


def classify(inst: Instruction) -> Class:
    """Class of an instruction, by its mnemonic; buffer loads with the `lds` modifier are LDS-DMA."""
    if "lds" in inst.modifiers and inst.mnemonic.startswith("buffer_load"):
        return Class.LDS_DMA
    for kind, pattern in _CLASS_PATTERNS:
        if re.match(pattern, inst.mnemonic):
            return kind
    return Class.WAIT


@dataclass(frozen=True, slots=True)
class Effects:
    """Register masks. `merges`: registers written in part, whose old bits or lanes live on (also among `writes`)."""

    reads: int
    writes: int
    merges: int = 0


_NO_RESULT = re.compile(
    r"s_(cmp|bitcmp|cbranch|branch|waitcnt|nop|barrier|endpgm|set(prio|halt|reg|pc|vskip|kill)|sleep|sendmsg|trap|dcache|icache"
    r"|store|buffer_store|scratch_store|set_gpr_idx|rfe|(inc|dec)perflevel|ttracedata|wakeup|atc_probe)"
    r"|v_(nop|clrexcp)"
    r"|(buffer|tbuffer|global|flat|scratch)_store|buffer_(wbl2|inv|wbinv)|global_load_lds"
    r"|ds_(write|nop|gws)"
)
_TWO_RESULTS = re.compile(
    r"v_(add|sub|subrev|addc|subb|subbrev)_co_|v_div_scale_|v_mad_[ui]64_[ui]32|v_swap_|v_permlane\d+_swap"
)
_RETURNING_DS = re.compile(r"ds_(read|bpermute|permute|swizzle|consume|append|ordered|condxchg)|ds_\w+_rtn_")
_READS_RESULT = re.compile(
    r"v_(fmac|mac|pk_fmac)_|v_dot\d+c_|v_smfmac_|v_swap_|v_permlane\d+_swap|s_(addk|mulk)_|s_cmov|v_pk_mac"
)
_MERGES = re.compile(
    r"v_(writelane|fma_mixlo|fma_mixhi|mad_mixlo|mad_mixhi)|v_cvt_(pk|sr)_(fp8|bf8)_|v_cvt_scalef32_(sr_)?(pk_)?(fp8|bf8|fp4)_"
    r"|v_cvt_scalef32_f16_(fp8|bf8)|\w+_d16|s_bitset"
)
_SCC_FROM_SALU = re.compile(
    r"s_(add|addc|addk|sub|subb|min|max|and|or|xor|andn[12]|orn[12]|nand|nor|xnor|lshl|lshr|ashr|lshl[1-4]_add|bfe|abs|absdiff"
    r"|cmp|cmpk|bitcmp[01]|not|wqm|quadmask|bcnt[01])_(?!lo_|hi_)"
)
_READS_SCC = re.compile(r"s_(addc|subb)_u32|s_cselect_|s_cmov|s_cbranch_scc")
_EXEC_FROM_SALU = re.compile(r"s_\w+_(saveexec|wrexec)_")
_READS_M0 = re.compile(r"global_load_lds_|s_movrel|v_movrel|ds_gws|ds_\w*addtid|ds_(append|consume)|s_sendmsg|s_ttracedata")


def effects(inst: Instruction) -> Effects:
    """Registers read and written by `inst`."""
    results = _result_count(inst)
    reads = writes = 0
    for position, operand in enumerate(inst.operands):
        mask = _operand_mask(operand)
        if position < results:
            writes |= mask
        else:
            reads |= mask
    return _with_implicit(inst, reads, writes, writes & VECTOR_MASK)


def _result_count(inst: Instruction) -> int:
    """How many of the leading operands are results."""
    name = inst.mnemonic
    if _NO_RESULT.match(name) or ("lds" in inst.modifiers and name.startswith("buffer_load")):
        return 0
    if "_atomic" in name:
        return int("sc0" in inst.modifiers or (name.startswith("s_") and "glc" in inst.modifiers))
    if name.startswith("ds_"):
        return int(bool(_RETURNING_DS.match(name)))
    return 2 if _TWO_RESULTS.match(name) else 1


def _operand_mask(operand: Operand) -> int:
    if operand.kind == Kind.VGPR:
        return vgpr(operand.index, operand.words)
    return sgpr(operand.index, operand.words) if operand.kind == Kind.SGPR else 0


def _with_implicit(inst: Instruction, reads: int, writes: int, vector_result: int) -> Effects:
    name = inst.mnemonic
    merges = 0
    if _READS_RESULT.match(name) or (name.startswith("buffer_atomic") and vector_result):
        reads |= writes & ~SCC
    if _MERGES.match(name) or _is_partial(inst):
        merges = writes & ~VCC
    if name.startswith("s_"):
        writes |= (SCC if _SCC_FROM_SALU.match(name) else 0) | (EXEC | SCC if _EXEC_FROM_SALU.match(name) else 0)
        reads |= SCC if _READS_SCC.match(name) else 0
        reads |= VCC if "_vcc" in name else 0
    if name.startswith(("s_set_gpr_idx_on", "s_set_gpr_idx_idx", "s_set_gpr_idx_mode")):
        reads, writes = reads | M0, writes | M0  # M0 keeps the index and the mode
    if name.startswith("v_cmpx_"):
        writes |= EXEC
    if name.startswith("v_div_fmas"):
        reads |= VCC
    if _READS_M0.match(name) or ("lds" in inst.modifiers and name.startswith("buffer_load")):
        reads |= M0
    return Effects(reads, writes, merges)


def _is_partial(inst: Instruction) -> bool:
    """SDWA that keeps the rest of its register, DPP that may leave lanes alone, a 16-bit result in the upper half."""
    modifiers = inst.modifiers
    if modifiers.get("dst_unused") == 2:  # UNUSED_PRESERVE
        return True
    if "dpp_ctrl" in modifiers:
        return True
    return writes_high_half(inst)


def writes_high_half(inst: Instruction) -> bool:
    """VOP3 (not packed) with the last op_sel bit set: the result goes to bits 31:16."""
    length = inst.modifiers.get("op_sel_length", 0)
    packed = inst.mnemonic.startswith(("v_pk_", "v_mfma", "v_dot", "v_fma_mix", "v_mad_mix"))
    return bool(length > 1 and not packed and inst.modifiers["op_sel"] >> (length - 1) & 1)
