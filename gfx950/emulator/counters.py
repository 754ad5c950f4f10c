"""What a launch executed and moved: wave instructions by class, bytes per buffer, LDS work."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..decode import Instruction
from .executor import BufferTraffic, NativeRun

_CLASSES = (
    ("mfma", re.compile(r"v_(mfma|smfmac)_(?!ld_scale)")),
    ("valu", re.compile(r"v_")),
    ("lds", re.compile(r"ds_")),
    ("smem", re.compile(r"s_(buffer_load|load|store|scratch|atomic|dcache|memtime|memrealtime)")),
    ("branch", re.compile(r"s_(cbranch|branch|setpc|swappc|call|endpgm)")),
    ("wait", re.compile(r"s_(waitcnt|barrier|nop|sleep)")),
    ("salu", re.compile(r"s_")),
    ("vmem", re.compile(r"global_|flat_|buffer_|scratch_|tbuffer_")),
)


@dataclass(frozen=True)
class Counters:
    """Wave instructions by class and by MFMA shape; traffic in bytes; LDS in bytes and in cycles of its 64 banks."""

    by_class: dict[str, int]
    mfma: dict[str, int]  # mnemonic -> wave instructions
    buffers: dict[str, BufferTraffic]
    lds_read_bytes: int
    lds_write_bytes: int
    lds_cycles: int
    lds_conflict_cycles: int
    barriers: int


def instruction_class(inst: Instruction) -> str:
    """salu, valu, mfma, vmem, lds, lds-dma, smem, branch or wait."""
    if "lds" in inst.modifiers or "_load_lds_" in inst.mnemonic:
        return "lds-dma"
    return next((name for name, pattern in _CLASSES if pattern.match(inst.mnemonic)), "other")


def count(instructions: Sequence[Instruction], native: NativeRun) -> Counters:
    by_class: Counter[str] = Counter()
    mfma: Counter[str] = Counter()
    for inst, executed in zip(instructions, native.executed, strict=True):
        if executed:
            kind = instruction_class(inst)
            by_class[kind] += executed
            if kind == "mfma":
                mfma[inst.base] += executed
    buffers = {traffic.name: traffic for traffic in native.traffic}
    return Counters(dict(by_class), dict(mfma), buffers, **native.counters)
