"""Three floors, never mixed: what physics allows, what a plain cold read takes here, what is refused."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from harness.result import Device, Floor
from harness.timing import Cold, make_timer, reader, words

READS = 15
MAX_BUFFER_BYTES = {"cpu": 1 << 30, "cuda": 4 << 30}  # beyond it, bandwidth is constant and the time is scaled
SLEEP_NS = 200_000  # longer than it takes to queue one reduction


def roofline_ns(nbytes: int, device: Device) -> float | None:
    """`nbytes` at the datasheet bandwidth; None for a device that configs/devices.yml does not know."""
    return nbytes / device.peaks.bandwidth_bytes_per_s * 1e9 if device.peaks else None


def floor_of(read_bytes: int, cheapest_bytes: int, device: Device, measured: "ReadFloor") -> Floor:
    """The floors of a case that read `read_bytes` and could have read `cheapest_bytes`."""
    return Floor(
        roofline_ns=roofline_ns(read_bytes, device),
        measured_ns=measured.ns(read_bytes),
        refusal_ns=roofline_ns(cheapest_bytes, device),
    )


def gpu_reader(device: torch.device, nbytes: int) -> Callable[[], Any]:
    """A call that reads `nbytes` of device memory; by torch.sum, slower on small sizes, where Triton is missing."""
    try:
        from harness.read_kernel import BLOCK_WORDS, NUM_WARPS, read_kernel
    except ImportError:
        return reader(device, nbytes)
    source, sink = words(device, nbytes), torch.zeros(1, device=device)
    launch: Any = read_kernel[(-(-source.numel() // BLOCK_WORDS),)]
    read = functools.partial(launch, source, sink, source.numel(), BLOCK_WORDS=BLOCK_WORDS, num_warps=NUM_WARPS)
    read()  # compiles
    return read


class ReadFloor:
    """Times plain reads on one device, cold by reading whatever the policy does. The median of 15, kept per size."""

    def __init__(self, device: torch.device, cold: Cold):
        self._device = device
        self._timer = functools.cache(lambda: make_timer(device, cold))
        self.ns = functools.cache(self._measure)

    def _measure(self, nbytes: int) -> float:
        within = min(nbytes, MAX_BUFFER_BYTES[self._device.type])
        read = gpu_reader(self._device, within) if self._device.type == "cuda" else reader(self._device, within)
        samples = sorted(self._timer().time(read, SLEEP_NS)[0].elapsed_ns for _ in range(READS))
        return samples[READS // 2] * nbytes / within
