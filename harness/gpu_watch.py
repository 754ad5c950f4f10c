"""What the device does while a case is sampled: clocks, throttling, other processes. Looked at between calls.

The driver is asked directly: NVIDIA's through its library, AMD's through sysfs. Where neither answers, nothing is known.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch

from harness.clock import Clock
from harness.gpu_amd import AmdProbe
from harness.gpu_nvidia import NvidiaProbe
from harness.result import Conditions

INTERVAL_NS = 300_000_000


@dataclass(frozen=True)
class GpuState:
    """One look. `pids`: processes with memory on the device, in the numbering of the driver."""

    core_mhz: int | None = None
    core_limit_mhz: int | None = None
    throttled: tuple[str, ...] = ()
    pids: frozenset[int] | None = None


class Probe(Protocol):
    """Asks a driver about one device."""

    def read(self) -> dict:
        """The fields of a GpuState that are known."""
        ...


@dataclass
class GpuWatch:
    """Collects looks until `take`; `look` may be called after every sample and looks every 0.3 s."""

    probe: Probe | None
    clock: Clock
    own_pids: Callable[[], frozenset[int]] = field(default=lambda: descendants(os.getpid()))
    _states: list[GpuState] = field(default_factory=list)
    _looked_ns: int | None = None

    def look(self) -> None:
        """Ask the driver, unless it has just been asked."""
        now_ns = self.clock.now_ns()
        if self.probe and (self._looked_ns is None or now_ns - self._looked_ns >= INTERVAL_NS):
            self._states.append(GpuState(**self.probe.read()))
            self._looked_ns = now_ns

    def take(self, exposed_samples: int) -> Conditions:
        """What was seen since the last time."""
        states, self._states, self._looked_ns = self._states, [], None
        own = self.own_pids() if states else frozenset()
        clocks = [state.core_mhz for state in states if state.core_mhz]
        limits = [state.core_limit_mhz for state in states if state.core_limit_mhz]
        return Conditions(
            core_low_mhz=min(clocks, default=None),
            core_high_mhz=max(clocks, default=None),
            core_limit_mhz=max(limits, default=None),
            throttled=tuple(sorted({reason for state in states for reason in state.throttled})),
            other_processes=max((count for state in states if (count := _others(state, own)) is not None), default=None),
            exposed_samples=exposed_samples,
        )



def _others(state: GpuState, own: frozenset[int]) -> int | None:
    """Processes that are not ours; None if none of ours is seen: the driver numbers those of another namespace."""
    return len(state.pids - own) if state.pids is not None and state.pids & own else None


def descendants(pid: int) -> frozenset[int]:
    """A process and everything that it has started, as /proc tells."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue  # it has ended since
    found, fresh = {pid}, {pid}
    while fresh:
        fresh = {child for child, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return frozenset(found)


def probe_of(device: torch.device) -> Probe | None:
    """The probe for a device; None for a CPU, and where the driver does not answer."""
    if device.type != "cuda":
        return None
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip is None:
        return NvidiaProbe.open(str(properties.uuid))
    if not hasattr(properties, "pci_bus_id"):  # torch before 2.8
        return None
    return AmdProbe.open((properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id), Path("/sys"))
