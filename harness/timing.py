"""Clocks for one call, cold. Built before the submission is imported; every callable that takes part is bound then.

Cold by `read`: a buffer larger than the last-level cache is READ before the call (a memset would leave dirty lines,
whose write-back the call would pay). Cold by `randn`: the official evaluator's 62.5 GiB of random numbers.
On a GPU the host's launch latency is hidden: the device is held until the call has queued its kernels, which are waiting
when the start event fires. Held by harness.blocker, none of its kernels can run before; where that is not to be had, the
call's queue sleeps, and what a submission does on another queue meanwhile goes unseen.
"""

import ctypes
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch

from harness.blocker import Blocker, CannotBlock, NotHeld
from harness.codec import plain_bytes

RANDN_SHAPE = (16000, 1024, 1024)  # fp32: 62.5 GiB, as in the official utils.clear_l2_cache_large
RANDN_BYTES = 4 * 16000 * 1024 * 1024
CALIBRATION_CYCLES = 2_000_000
CALIBRATIONS = 50  # the last counts: the first also loads the kernel, and a device that was idle raises its clock meanwhile
COPY_JITTER_NS = 2_000  # beyond half as much again as a copy takes; on an H200 the first took up to 2.4 us more
COPIED_BYTES = 64 << 20  # to find out how fast a device copies
COPIES, COPIES_HELD_NS = 5, 1_000_000  # for which a device is held until the host has queued both copies of that
START_JITTER_NS = 2_000  # from the end of a hold to the stamp, beyond the events and the quickest; on an H200 up to 1.7 us
STAMP_JITTER_NS = 20_000  # at most, of what the host takes for the stamp of an exposed call, which the device waits for
WAIT_JITTER_NS = 50_000  # of the host: two waits for an idle device, the second of them for all queues
IDLE_JITTER_NS = 1_000_000  # until an idle device is held; on an H200 0.1 ms, and more when another context had it before
QUEUE_JITTER_NS = 1_000_000  # of the host: two copies that are queued; on an H200 the first took up to 0.1 ms more
PERSISTING_L2_LIMIT = 6  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE


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


Keep = Callable[[Any], Any]


def as_it_is(value: Any) -> Any:
    """Keeps an output without copying it."""
    return value


def nothing() -> None:
    """Nothing to do while the device is held."""


class Timer(Protocol):
    """Times one call at a time. `keep` copies what the call returned; the copy is handed back with the sample. `held` is called
    once, while nothing but copy engines can work on the device."""

    unheld: str  # why work on another queue can begin before the clock; empty if it cannot, or if nobody wanted that

    @property
    def parts(self) -> tuple[Any, ...]:
        """The objects that a time is made by; their classes are those of this module and the blocker's."""
        ...

    def time(
        self, call: Callable[[], Any], sleep_ns: int, keep: Keep = as_it_is, held: Callable[[], object] = nothing
    ) -> tuple[Sample, Any]:
        """Empty the caches, run `call` once, copy its output in queue order, wait for the whole device."""
        ...

    def run(self, call: Callable[[], Any], keep: Keep = as_it_is) -> tuple[Sample, Any]:
        """Run `call` once by the host's clock alone, whatever the caches hold."""
        ...


def make_timer(device: torch.device, cold: Cold, **ways: bool) -> Timer:
    """The timer for a device; `ways` as GpuTimer's."""
    return CpuTimer(cold) if device.type == "cpu" else GpuTimer(device, cold, **ways)


def in_a_row(call: Callable[[Any], Any], values: Sequence[Any], keep: Keep) -> list[Any]:
    """What `keep` makes of the outputs of calls that follow each other at once, one on each value."""
    return [keep(call(value)) for value in values]


class CpuTimer:
    """Wall time around the call and the copy of its output: what a thread fills in later is not in the copy."""

    unheld = ""

    def __init__(self, cold: Cold):
        self._now, self._evict = time.perf_counter_ns, evictor(torch.device("cpu"), cold)

    @property
    def parts(self) -> tuple[Any, ...]:
        return (self,)

    def time(
        self, call: Callable[[], Any], sleep_ns: int = 0, keep: Keep = as_it_is, held: Callable[[], object] = nothing
    ) -> tuple[Sample, Any]:
        self._evict()
        held()
        return self.run(call, keep)

    def run(self, call: Callable[[], Any], keep: Keep = as_it_is) -> tuple[Sample, Any]:
        start_ns = self._now()
        kept = keep(call())
        elapsed_ns = self._now() - start_ns
        return Sample(elapsed_ns, elapsed_ns, False), kept


class GpuTimer:
    """Device events around the call (torch.cuda is CUDA and HIP); the output is copied right behind the second one.

    Work on another queue that the call did not wait for is missing from that copy, and what it takes until the whole
    device is idle counts as the call's. Work that slips in between the event and the copy delays the copy: compared with a
    second copy, that delay counts too. A kernel right behind the second event notes how long ago the device was let go: what
    the events do not account for counts, whatever was recorded when. So does the time for which something else had the device
    while it was held, and, beyond a millisecond, before, when nothing of an earlier call is left: what a thread launches as
    soon as it finds new contents. What the first copy keeps the host longer counts beyond what copies vary by; below that the
    bursts bound it, which are timed as a whole.
    """

    def __init__(
        self, device: torch.device, cold: Cold, synchronized: bool = True, occupied: bool = True, stamped: bool = True
    ):
        """Without `synchronized` it waits for its own queue alone, without `occupied` it only lets that queue sleep, without
        `stamped` it believes its events: for tests of those defences."""
        self._device, self._now, self._synchronize = device, time.perf_counter_ns, torch.cuda.synchronize
        event = torch.cuda.Event
        self._record, self._query, self._elapsed = event.record, event.query, event.elapsed_time
        self._wait, self._synchronized, self._stamped = event.synchronize, synchronized, stamped
        self._start, self._end, self._kept, self._again = (event(enable_timing=True) for _ in range(4))
        self._holder, self._copying, self.unheld = _holder(device, cold, occupied)

    @property
    def parts(self) -> tuple[Any, ...]:
        return self, self._copying, *self._holder.parts

    def time(
        self, call: Callable[[], Any], sleep_ns: int = 0, keep: Keep = as_it_is, held: Callable[[], object] = nothing
    ) -> tuple[Sample, Any]:
        waited_ns = self._holder.hold(sleep_ns, self._begin)
        held()
        host_start_ns = self._now()
        output = call()
        host_ns = self._now() - host_start_ns
        end_asked_ns = self._now()
        self._record(self._end)
        if self._stamped:
            self._holder.stamp()
        stamping_ns = self._now() - end_asked_ns
        kept, first_ns = self._copied(keep, output, self._kept)
        _, second_ns = self._copied(keep, output, self._again)
        exposed = self._query(self._start)
        elsewhere_ns = self._elsewhere_ns()
        elapsed_ns = round(self._elapsed(self._start, self._end) * 1e6) + self._holder.lost_ns
        hidden = sleep_ns > 0 and not exposed  # else the copies wait for the host
        late_ns = max(first_ns - 2 * second_ns - QUEUE_JITTER_NS, self._late_ns(output) if hidden else 0, 0)
        unaccounted_ns = self._unaccounted_ns(0 if hidden else stamping_ns)
        return Sample(waited_ns + unaccounted_ns + elapsed_ns + elsewhere_ns + late_ns, host_ns, exposed), kept

    def run(self, call: Callable[[], Any], keep: Keep = as_it_is) -> tuple[Sample, Any]:
        self._synchronize(self._device)
        start_ns = self._now()
        output = call()
        host_ns = self._now() - start_ns
        self._synchronize(self._device)
        elapsed_ns = self._now() - start_ns
        return Sample(elapsed_ns, host_ns, True), keep(output)

    def _begin(self) -> None:
        """From here on the device's time counts, once it is let go: also that of what a thread puts on this queue meanwhile."""
        self._record(self._start)

    def _copied(self, keep: Keep, output: Any, event: torch.cuda.Event) -> tuple[Any, int]:
        """A copy of the output, `event` recorded behind it, and how long both kept the host."""
        start_ns = self._now()
        copy = keep(output)
        self._record(event)
        return copy, self._now() - start_ns

    def _elsewhere_ns(self) -> int:
        """Wait for the whole device; how much longer that took than waiting for this queue, beyond what waiting varies by."""
        self._wait(self._again)
        queue_done_ns = self._now()
        if self._synchronized:
            self._synchronize(self._device)
        return max(0, self._now() - queue_done_ns - WAIT_JITTER_NS)

    def _unaccounted_ns(self, stamping_ns: int) -> int:
        """From the end of the hold to the stamp behind the end event, beyond the time between the events and what that varies
        by: what was queued before the first or after the second, or for how long after the hold somebody recorded both anew.
        stamping_ns: for how long an exposed stamp may have waited for the host."""
        jitter_ns = START_JITTER_NS + min(stamping_ns, STAMP_JITTER_NS)
        return max(0, self._holder.since_ns - self._span_ns(self._start, self._end) - jitter_ns) if self._stamped else 0

    def _late_ns(self, output: Any) -> int:
        """By how much the copy of the output took the device longer than copying it again, or than copying so much took before
        there was a submission, beyond what copies vary by."""
        first_ns = self._span_ns(self._end, self._kept) - self._copying.stamp_ns
        usual_ns = min(self._span_ns(self._kept, self._again), self._copying.expected_ns(output))
        return max(0, round(first_ns - 1.5 * usual_ns) - COPY_JITTER_NS)

    def _span_ns(self, start: torch.cuda.Event, end: torch.cuda.Event) -> int:
        return round(self._elapsed(start, end) * 1e6)


class Sleeper:
    """Waits for an idle device, empties the caches, lets the current queue sleep. Kernels of other queues run meanwhile."""

    lost_ns = since_ns = 0

    def stamp(self) -> None:
        """Nobody knows when a sleep ends."""

    def __init__(self, device: torch.device, cold: Cold):
        self._device, self._evict, self._sleep = device, evictor(device, cold), torch.cuda._sleep
        self._now, self._synchronize = time.perf_counter_ns, torch.cuda.synchronize
        self._cycles_per_ns = self._calibrate()

    @property
    def parts(self) -> tuple[Any, ...]:
        return (self,)

    def hold(self, hold_ns: int, behind: Callable[[], object]) -> int:
        """Wait, and queue both and what `behind` does; returns at once. -> for how many ns something ran before; what does
        afterwards is not seen."""
        busy_ns = _kept_ns(self._now, lambda: self._synchronize(self._device))
        self._evict()
        if hold_ns:
            self._sleep(int(hold_ns * self._cycles_per_ns))
        behind()
        return max(0, busy_ns - IDLE_JITTER_NS)

    def _calibrate(self) -> float:
        """Device cycles per nanosecond of torch.cuda._sleep, whose unit differs between CUDA and HIP."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(CALIBRATIONS):
            start.record()
            self._sleep(CALIBRATION_CYCLES)
            end.record()
            torch.cuda.synchronize(self._device)
        return CALIBRATION_CYCLES / max(start.elapsed_time(end) * 1e6, 1.0)


class Occupier:
    """Takes the whole device, and reads the caches empty as the last thing before it lets go. Raises CannotBlock."""

    def __init__(self, device: torch.device, cold: Cold):
        torch.cuda.synchronize(device)  # the driver is asked in the context that this makes
        reads = cold.method == "read"
        self._clear = persistence_reset(device) if reads else waited_for(evictor(device, cold))
        self._blocker = Blocker(device, words(device, cold.nbytes) if reads else None)
        self._device, self._now, self._synchronize = device, time.perf_counter_ns, torch.cuda.synchronize

    def stamp(self) -> None:
        """Note behind what the queue holds now how long ago the device was let go."""
        self._blocker.stamp()

    @property
    def since_ns(self) -> int:
        """From the end of the last hold to the stamp; known once the device is idle."""
        return self._blocker.since_ns

    @property
    def lost_ns(self) -> int:
        """For how long something else had the device during the last hold or right after it; known once the device is idle."""
        return self._blocker.lost_ns

    @property
    def parts(self) -> tuple[Any, ...]:
        return self, self._blocker

    def hold(self, hold_ns: int, behind: Callable[[], object]) -> int:
        """Returns once nothing else can run there; what `behind` puts on the current queue comes first. -> for how many ns
        something ran before. Raises NotHeld."""
        busy_ns = _kept_ns(self._now, lambda: self._synchronize(self._device))
        self._clear()
        return max(0, busy_ns + _kept_ns(self._now, lambda: self._blocker.hold(hold_ns, behind)) - IDLE_JITTER_NS)


@dataclass(frozen=True)
class Copying:
    """What copies of tensors take a device, one behind another, and a stamp before them."""

    stamp_ns: int
    tensor_ns: int
    ns_per_byte: float

    def expected_ns(self, value: Any) -> float:
        """For the tensors of a nested value; without limit where they have to be rearranged."""
        sizes = plain_bytes(value)
        return math.inf if sizes is None else len(sizes) * self.tensor_ns + sum(sizes) * self.ns_per_byte


def copying(holder: Sleeper | Occupier, device: torch.device) -> Copying:
    """Measured while the host is ahead of the device; the quickest counts. Raises NotHeld."""
    small, large = (torch.zeros(nbytes, dtype=torch.uint8, device=device) for nbytes in (1, COPIED_BYTES))
    events = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
    large.clone()  # takes the memory
    tries = []
    for _ in range(COPIES):
        holder.hold(COPIES_HELD_NS, events[0].record)
        holder.stamp()
        for tensor, event in zip((small, small, large), events[1:], strict=True):
            tensor.clone()
            event.record()
        torch.cuda.synchronize(device)
        tries.append([round(start.elapsed_time(end) * 1e6) for start, end in itertools.pairwise(events)])
    first_ns, small_ns, large_ns = (min(spans) for spans in zip(*tries, strict=True))
    del small, large
    torch.cuda.empty_cache()  # all of the memory is the submission's
    return Copying(max(0, first_ns - small_ns), small_ns, max(0, large_ns - small_ns) / COPIED_BYTES)


def _kept_ns(now: Callable[[], int], step: Callable[[], Any]) -> int:
    """How long a step keeps the host."""
    asked_ns = now()
    step()
    return now() - asked_ns


def _holder(device: torch.device, cold: Cold, occupied: bool) -> tuple[Sleeper | Occupier, Copying, str]:
    """What keeps a device until the start event, what copies take behind it, and why it is not what was wanted."""
    try:
        holder = Occupier(device, cold) if occupied else Sleeper(device, cold)
        return holder, copying(holder, device), ""
    except (CannotBlock, NotHeld) as error:
        holder = Sleeper(device, cold)
        return holder, copying(holder, device), str(error)


def evictor(device: torch.device, cold: Cold) -> Callable[[], Any]:
    """A call that empties the caches of a device."""
    if cold.method == "read":
        read, reset = reader(device, cold.nbytes), persistence_reset(device)
        return lambda: (reset(), read())
    return randomizer(device, RANDN_SHAPE) if cold.method == "randn" else lambda: None


def waited_for(clear: Callable[[], Any]) -> Callable[[], Any]:
    """The same, done when it returns; what other queues do meanwhile is not waited for."""
    done = torch.cuda.Event(enable_timing=True)
    record, wait = done.record, done.synchronize
    return lambda: (clear(), record(), wait())


def persistence_reset(device: torch.device) -> Callable[[], Any]:
    """A call that takes back what was set aside in NVIDIA's L2 for persisting lines: a plain read would not evict them."""
    try:
        driver = ctypes.CDLL("libcuda.so.1") if device.type == "cuda" else None
        limit, reset = (driver.cuCtxSetLimit, driver.cuCtxResetPersistingL2Cache) if driver else (None, None)
    except (OSError, AttributeError):  # HIP, and drivers before CUDA 11
        return lambda: None
    if limit is None or reset is None:
        return lambda: None
    return lambda: (limit(PERSISTING_L2_LIMIT, ctypes.c_size_t(0)), reset())


def randomizer(device: torch.device, shape: tuple[int, ...]) -> Callable[[], Any]:
    """A call that fills fp32 [shape] with random numbers. The memory is taken at the first call and kept: the allocator would
    cut other tensors out of a block that is free between the calls, and need a second one of that size for the next."""
    empty, randn, buffer = torch.empty, torch.randn, []

    def fill() -> None:
        if not buffer:
            buffer.append(empty(shape, device=device))
        randn(shape, out=buffer[0])

    return fill


def reader(device: torch.device, nbytes: int) -> Callable[[], Any]:
    """A call that reads `nbytes` of memory once, from a buffer of its own."""
    buffer = words(device, nbytes)
    read = torch.sum
    return lambda: read(buffer)


def words(device: torch.device, nbytes: int) -> torch.Tensor:
    """`nbytes` of fp32 ones. Written: untouched host memory is one page of zeros, mapped over and over, always cached."""
    return torch.empty(max(nbytes // 4, 1), dtype=torch.float32, device=device).fill_(1.0)
