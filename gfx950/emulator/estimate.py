"""A lower bound on an MI355X's time for a launch, from its counters: an ESTIMATE, no hardware was involved."""

from __future__ import annotations

from dataclasses import dataclass

from ..limits import SIMDS_PER_CU
from ..report import LDS_BYTES_PER_CYCLE
from .counters import Counters

# AMD Instinct MI355X data sheet.
COMPUTE_UNITS = 256
PEAK_CLOCK_GHZ = 2.4
BANDWIDTH_BYTES_PER_NS = 8000


@dataclass(frozen=True)
class Estimate:
    """Nanoseconds that each resource needs at its peak if nothing else were in the way; the largest bounds the launch.

    Launch latency, cache misses, waits and uneven work come on top: real times are longer. `compute_units`: how many the
    launch can keep busy (one workgroup sits on one).
    """

    bandwidth_ns: float
    mfma_ns: float
    valu_ns: float
    lds_ns: float
    compute_units: int

    @property
    def by_resource(self) -> dict[str, float]:
        return {"bandwidth": self.bandwidth_ns, "mfma": self.mfma_ns, "valu": self.valu_ns, "lds": self.lds_ns}

    @property
    def lower_bound_ns(self) -> float:
        return max(self.by_resource.values())

    @property
    def bound(self) -> str:
        """The resource that sets the lower bound."""
        return max(self.by_resource, key=lambda name: self.by_resource[name])

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {time_ns / 1000:.2f}" for name, time_ns in self.by_resource.items())
        least = f"at least {self.lower_bound_ns / 1000:.2f} us on MI355X, {self.bound} bound"
        return f"estimate, not a measurement: {least} ({parts} us)"


def estimate(counters: Counters) -> Estimate:
    """bandwidth: unique global bytes at the HBM peak; the pipes: busy cycles spread over the units that have work."""
    units = min(COMPUTE_UNITS, counters.workgroups)
    simd_cycles_per_ns = PEAK_CLOCK_GHZ * units * SIMDS_PER_CU
    lds_bytes = counters.lds_read_bytes + counters.lds_write_bytes
    lds_cycles = max(lds_bytes / LDS_BYTES_PER_CYCLE, counters.lds_cycles)
    return Estimate(
        bandwidth_ns=counters.unique_bytes / BANDWIDTH_BYTES_PER_NS,
        mfma_ns=counters.cycles.get("mfma", 0) / simd_cycles_per_ns,
        valu_ns=counters.cycles.get("valu", 0) / simd_cycles_per_ns,
        lds_ns=lds_cycles / (PEAK_CLOCK_GHZ * units),
        compute_units=units,
    )
