"""Clocks for one call, cold. Built before the submission is imported; every callable that takes part is bound then.

Cold by `read`: a buffer larger than the last-level cache is READ before the call (a memset would leave dirty lines,
whose write-back the call would pay). Cold by `randn`: the official evaluator's 62.5 GiB of random numbers.
On a GPU the host's launch latency is hidden: a device-side sleep is queued before the start event, so that the call's
kernels are waiting when the event fires.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch

RANDN_SHAPE = (16000, 1024, 1024)  # fp32: 62.5 GiB, as in the official utils.clear_l2_cache_large
RANDN_BYTES = 4 * 16000 * 1024 * 1024
CALIBRATION_CYCLES = 2_000_000


@dataclass(frozen=True)
class Cold:
    """How the caches are emptied before a timed call: by reading `nbytes`, by the official randn, or not at all."""

    method: Literal["read", "randn", "none"]
    nbytes: int = 0


@dataclass(frozen=True)
class Sample:
    """One timed call."""

    elapsed_ns: int  # device time between the events; on a CPU, wall time
    host_ns: int  # until custom_kernel returned to Python
    exposed: bool  # the device reached the start event before the call had been queued: launch latency was timed


class Timer(Protocol):
    """Times one call at a time."""

    def time(self, call: Callable[[], Any], sleep_ns: int) -> tuple[Sample, Any]:
        """Empty the caches, run `call` once, wait for the whole device; the sample and what `call` returned."""
        ...

    def run(self, call: Callable[[], Any]) -> tuple[Sample, Any]:
        """Run `call` once by the host's clock alone, whatever the caches hold."""
        ...


def make_timer(device: torch.device, cold: Cold) -> Timer:
    """The timer for a device."""
    return CpuTimer(cold) if device.type == "cpu" else GpuTimer(device, cold)


class CpuTimer:
    """Wall time around the call."""

    def __init__(self, cold: Cold):
        self._now, self._evict = time.perf_counter_ns, _evictor(torch.device("cpu"), cold)

    def time(self, call: Callable[[], Any], sleep_ns: int = 0) -> tuple[Sample, Any]:
        self._evict()
        return self.run(call)

    def run(self, call: Callable[[], Any]) -> tuple[Sample, Any]:
        start_ns = self._now()
        output = call()
        elapsed_ns = self._now() - start_ns
        return Sample(elapsed_ns, elapsed_ns, False), output


class GpuTimer:
    """Device events around the call (torch.cuda is CUDA and HIP)."""

    def __init__(self, device: torch.device, cold: Cold):
        self._device, self._now = device, time.perf_counter_ns
        self._synchronize, self._sleep = torch.cuda.synchronize, torch.cuda._sleep
        event = torch.cuda.Event
        self._record, self._query, self._elapsed = event.record, event.query, event.elapsed_time
        self._start, self._end = event(enable_timing=True), event(enable_timing=True)
        self._evict = _evictor(device, cold)
        self._cycles_per_ns = self._calibrate()

    def time(self, call: Callable[[], Any], sleep_ns: int = 0) -> tuple[Sample, Any]:
        self._synchronize(self._device)
        self._evict()
        if sleep_ns:
            self._sleep(int(sleep_ns * self._cycles_per_ns))
        self._record(self._start)
        host_start_ns = self._now()
        output = call()
        host_ns = self._now() - host_start_ns
        self._record(self._end)
        exposed = self._query(self._start)
        self._synchronize(self._device)
        elapsed_ns = round(self._elapsed(self._start, self._end) * 1e6)
        return Sample(elapsed_ns, host_ns, exposed), output

    def run(self, call: Callable[[], Any]) -> tuple[Sample, Any]:
        self._synchronize(self._device)
        start_ns = self._now()
        output = call()
        host_ns = self._now() - start_ns
        self._synchronize(self._device)
        return Sample(self._now() - start_ns, host_ns, True), output

    def _calibrate(self) -> float:
        """Device cycles per nanosecond of torch.cuda._sleep, whose unit differs between CUDA and HIP."""
        for _ in range(2):  # the first sleep also loads the kernel
            self._record(self._start)
            self._sleep(CALIBRATION_CYCLES)
            self._record(self._end)
            self._synchronize(self._device)
        return CALIBRATION_CYCLES / max(self._elapsed(self._start, self._end) * 1e6, 1.0)


def _evictor(device: torch.device, cold: Cold) -> Callable[[], Any]:
    if cold.method == "read":
        return reader(device, cold.nbytes)
    if cold.method == "randn":
        randn = torch.randn
        return lambda: discard(randn(RANDN_SHAPE, device=device))
    return lambda: None


def reader(device: torch.device, nbytes: int) -> Callable[[], Any]:
    """A call that reads `nbytes` of memory once, from a buffer of its own."""
    buffer = words(device, nbytes)
    read = torch.sum
    return lambda: read(buffer)


def words(device: torch.device, nbytes: int) -> torch.Tensor:
    """`nbytes` of fp32 ones. Written: untouched host memory is one page of zeros, mapped over and over, always cached."""
    return torch.empty(max(nbytes // 4, 1), dtype=torch.float32, device=device).fill_(1.0)


def discard(_: Any) -> None:
    """Drop a value at once, so that its memory is free before the call that follows."""
