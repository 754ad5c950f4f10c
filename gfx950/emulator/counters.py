"""What a launch executed and moved: wave instructions by class, bytes per buffer, LDS work, busy cycles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..decode import Instruction
from ..effects import Class, classify
from ..mfma import label
from ..report import busy_cycles
from .executor import BufferTraffic, NativeRun


@dataclass(frozen=True)
class Counters:
    """Sums over all waves of a launch.

    by_class: wave instructions (salu, valu, mfma, vmem, lds, lds-dma, smem, branch, wait); mfma: the same by matrix shape and
    formats; cycles: class -> cycles its pipe is busy, an estimate. buffers: bytes by buffer. LDS in bytes, and in cycles of
    its 64 four-byte banks, of which lds_conflict_cycles are there only because of conflicts.
    """

    by_class: dict[str, int]
    mfma: dict[str, int]
    cycles: dict[str, int]
    buffers: dict[str, BufferTraffic]
    workgroups: int
    lds_read_bytes: int
    lds_write_bytes: int
    lds_cycles: int
    lds_conflict_cycles: int
    barriers: int

    @property
    def unique_bytes(self) -> int:
        """Global bytes loaded and stored, each counted once."""
        return sum(buffer.unique_load + buffer.unique_store for buffer in self.buffers.values())


def count(instructions: Sequence[Instruction], native: NativeRun, workgroups: int) -> Counters:
    """Counters of one launch from what the executor measured."""
    by_class: Counter[str] = Counter()
    mfma: Counter[str] = Counter()
    cycles: Counter[str] = Counter()
    for inst, executed in zip(instructions, native.executed, strict=True):
        if not executed:
            continue
        kind = classify(inst)
        by_class[kind.value] += executed
        if kind is Class.MFMA:
            mfma[label(inst)] += executed
        for pipe, busy in busy_cycles([inst]).items():
            cycles[pipe] += busy * executed
    buffers = {traffic.name: traffic for traffic in native.traffic}
    return Counters(dict(by_class), dict(mfma), dict(cycles), buffers, workgroups, **native.counters)
