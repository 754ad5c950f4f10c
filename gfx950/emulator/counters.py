"""What a launch executed and moved: wave instructions by class, bytes per buffer, LDS work, busy cycles."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from .executor import BufferTraffic, NativeRun
from .program import Program


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


def count(program: Program, native: NativeRun, workgroups: int) -> Counters:
    """Counters of one launch from what the executor measured."""
    by_class: Counter[str] = Counter()
    mfma: Counter[str] = Counter()
    cycles: Counter[str] = Counter()
    for cost, executed in zip(program.costs, native.executed, strict=True):
        if executed:
            by_class[cost.kind] += executed
            cycles[cost.kind] += cost.cycles * executed
            if cost.mfma:
                mfma[cost.mfma] += executed
    buffers = {traffic.name: traffic for traffic in native.traffic}
    busy = {kind: total for kind, total in cycles.items() if total}
    return Counters(dict(by_class), dict(mfma), busy, buffers, workgroups, **native.counters)
