"""The referee's own accounts of a worker, kept by the kernel and the wall clock: what a reported time must be able to hold.

Within a call a process cannot use more processor time than the call lasts on every core. Between the moment when it can
know new contents and the call it has nothing to do. And a call cannot have lasted much less than its answer took, apart
from the time in which referee and worker waited for a processor. All three hold however busy the machine is.
"""

import contextlib
import math
import os
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from harness.family import family

# Answering costs the worker some: reading the request, describing and copying the output.
CALL_OVERHEAD_NS = 3_000_000
NS_PER_OUTPUT_BYTE = 1.0  # first touch of fresh pages included
NS_PER_DEVICE_BYTE = 2.0  # copied from a device as well: 1.1 on an H200
NS_PER_DELIVERED_BYTE = 0.03  # copied three times by a device: 0.0015 on an H200
NS_PER_DELIVERED_STORAGE = 60_000  # described, copied and decoded on the host: some 100 for 10 us of kernel on an H200's
QUIET_NS = 200_000  # a blocked worker uses none; its supervisor looks around now and then
AHEAD_CHARGE = 4  # work at rest must never pay, whatever honest work takes on a busy machine
CORES_SLACK = 1.25
MIN_CALLS = 2  # before a contradiction is believed
WALL_TOLERANCE = 1.5
WALL_ALLOWANCE_NS = 2_000_000  # beside an answer in which nothing was called
DEVICE_ALLOWANCE_NS = 2_000_000  # more where a device is held before the call and read empty: 1.9 ms in all on an H200
IDLE_VARIES = 0.5  # by what share that answer may vary: a device that clears gigabytes first takes longer once it is warm
BURST_TOLERANCE = 2.0
BURST_NS, MAX_BURST_CALLS = 10_000_000, 32  # a burst is to last so long, that its answer's own time does not matter
MAX_DEVICE_BURST_CALLS = 16  # plans are kept by address, and each call has addresses of its own
MAX_BURSTS = 4  # the fastest counts
EMPTYING_NS = 150_000  # a device that is held reads its caches empty before it lets go
CPUCLOCK_SCHED = 2  # linux/posix-timers.h: the clock id of another process's processor time
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
CHILDREN_USER, CHILDREN_SYSTEM = 13, 14  # fields of /proc/PID/stat, counted from the state


@dataclass(frozen=True)
class Used:
    """Processor time that a process and all its descendants have used so far. Only what was used since tells something.

    `processes`: own time of each that lives, and that of its children which have ended and been waited for, in ticks of the
    kernel, usually 10 ms. `first_thread_ns`: of that, the first thread of the process that calls are made in.
    """

    processes: dict[int, tuple[int, int]] = field(default_factory=dict)
    first_thread_ns: int = 0

    @classmethod
    def by(cls, pid: int, root: int) -> Self:
        """What `root`, of which `pid` descends, and its family have used; nothing once they are gone."""
        found = {}
        for member in family(root):
            with contextlib.suppress(OSError, ValueError):  # it has ended since
                found[member] = (_own_time_ns(member), _ended_children_ns(member))
        return cls(found, _scheduled_ns(pid)[0])

    @classmethod
    def metered(cls, used_ns: int, pid: int) -> Self:
        """The same as perf events count it (harness.meter), whoever has ended since."""
        return cls({0: (used_ns, 0)}, _scheduled_ns(pid)[0])

    def since(self, earlier: Self) -> int:
        """Processor time between two moments, never less than what those used that live: who ends takes nothing along."""
        gone_ns, own_ns, ended_ns = sum(map(sum, earlier.processes.values())), 0, 0
        for pid, (own, ended) in self.processes.items():
            own_before, ended_before = earlier.processes.get(pid, (0, 0))
            if own >= own_before:  # else the number is another process's now
                gone_ns -= own_before + ended_before
                own, ended = own - own_before, ended - ended_before
            own_ns, ended_ns = own_ns + own, ended_ns + ended
        return own_ns + max(0, ended_ns - gone_ns)

    def others_since(self, earlier: Self) -> int:
        """The same without the first thread, which may wait for the others on purpose, as a referee may have to because of
        them."""
        return max(0, self.since(earlier) - (self.first_thread_ns - earlier.first_thread_ns))


def run_delay_ns(task: int | str) -> int:
    """How long a thread has been ready and waited for a processor; 0 on a kernel that does not say."""
    return _scheduled_ns(task)[1]


def _scheduled_ns(task: int | str) -> tuple[int, int]:
    """How long a thread has run, and how long it was ready and waited; zeros on a kernel that does not say."""
    try:
        ran_ns, waited_ns, _ = Path(f"/proc/{task}/schedstat").read_text().split()
        return int(ran_ns), int(waited_ns)
    except (OSError, ValueError):
        return 0, 0


def _own_time_ns(pid: int) -> int:
    return time.clock_gettime_ns((~pid << 3) | CPUCLOCK_SCHED)


def _ended_children_ns(pid: int) -> int:
    """Processor time of the children that a process has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[CHILDREN_USER]) + int(fields[CHILDREN_SYSTEM])) * TICK_NS


@dataclass
class Ledger:
    """The calls of one case: what was reported, and what kernel and wall clock saw from the request until the output was
    there. `idle_ns` is how long an answer takes in which nothing is called; `on_device`: the calls are on a GPU."""

    idle_ns: int = 0
    on_device: bool = False
    cores: int = os.cpu_count() or 1
    reported_ns: list[int] = field(default_factory=list)
    at_most_ns: list[int] = field(default_factory=list)  # by the wall clock
    running_ns: list[int] = field(default_factory=list)  # the same without waiting for a processor
    used_ns: list[int] = field(default_factory=list)  # processor time, where that says something
    hidden_ns: list[int] = field(default_factory=list)  # launch latencies that reported times leave out
    warm_ns: list[int] = field(default_factory=list)  # calls before the samples, what their launches hid included
    bursts_ns: list[tuple[float, float]] = field(default_factory=list)  # of a call in a burst, and what the answer may add
    output_bytes: int = 0
    output_storages: int = 1

    def enter(
        self, reported_ns: int, wall_ns: int, waited_ns: int, used_ns: int | None, output_bytes: int, hidden_ns: int = 0
    ) -> None:
        """A call that is said to have taken `reported_ns`, and `hidden_ns` of the host's time that do not count."""
        self.reported_ns.append(reported_ns)
        self.hidden_ns.append(hidden_ns)
        self.at_most_ns.append(max(0, wall_ns - self.idle_ns))
        self.running_ns.append(max(0, wall_ns - self.idle_ns - waited_ns))
        self.used_ns += [] if used_ns is None else [used_ns]
        self.output_bytes = max(self.output_bytes, output_bytes)

    def enter_burst(self, calls: int, wall_ns: int, waited_ns: int, storages: int = 1) -> None:
        """Calls in a row that took the referee `wall_ns` in all; each of their outputs lies in so many storages."""
        self.bursts_ns.append((max(0, wall_ns - self.idle_ns - waited_ns) / calls, WALL_ALLOWANCE_NS / calls))
        self.output_storages = max(self.output_storages, storages)

    @property
    def burst_calls(self) -> int:
        """How many calls the next burst needs, so that it tells more than single calls did; 0 if it would not."""
        enough = len(self.bursts_ns) >= MAX_BURSTS or (self.bursts_ns and not self._too_long_in_a_row())
        most = MAX_DEVICE_BURST_CALLS if self.on_device else MAX_BURST_CALLS
        calls = min(most, math.ceil(BURST_NS / max(1.0, self._said_ns)))
        return 0 if enough or calls < 2 else calls

    @property
    def _said_ns(self) -> float:
        return statistics.median(self.reported_ns)

    @property
    def bound_ns(self) -> float | None:
        """What a call took at most, by the referee's own clock: the median."""
        return statistics.median(self.at_most_ns) if self.at_most_ns else None

    def contradiction(self) -> str:
        """Why the reported times cannot be true; empty if they can."""
        if len(self.reported_ns) < MIN_CALLS:
            return ""
        return self._too_much_work() or self._too_long() or self._too_long_in_a_row()

    def _too_much_work(self) -> str:
        calls = len(self.used_ns)
        overhead_ns = CALL_OVERHEAD_NS + NS_PER_OUTPUT_BYTE * self.output_bytes
        reported_ns, used_ns = sum(self.reported_ns), sum(self.used_ns)
        if not calls or used_ns <= CORES_SLACK * self.cores * reported_ns + overhead_ns * calls:
            return ""
        said, used = reported_ns / calls / 1e3, used_ns / calls / 1e3
        return f"reported {said:.0f} us a call and used {used:.0f} us of processor time a call on {self.cores} cores"

    def _too_long(self) -> str:
        said_ns, seen_ns = self._said_ns, statistics.median(self.running_ns)
        allowance_ns = WALL_ALLOWANCE_NS + IDLE_VARIES * self.idle_ns
        allowance_ns += (NS_PER_DEVICE_BYTE if self.on_device else NS_PER_OUTPUT_BYTE) * self.output_bytes
        allowance_ns += DEVICE_ALLOWANCE_NS if self.on_device else 0
        if seen_ns <= WALL_TOLERANCE * said_ns + allowance_ns:
            return ""
        return f"reported {said_ns / 1e3:.0f} us a call and kept the referee waiting for {seen_ns / 1e3:.0f} us"

    def _too_long_in_a_row(self) -> str:
        if not self.bursts_ns:
            return ""
        said_ns, (seen_ns, overhead_ns) = self._said_ns, min(self.bursts_ns)
        if self.on_device:
            overhead_ns += NS_PER_DELIVERED_BYTE * self.output_bytes + NS_PER_DELIVERED_STORAGE * self.output_storages
        else:
            overhead_ns += NS_PER_OUTPUT_BYTE * self.output_bytes
        with_launches_ns = min([said_ns + statistics.median(self.hidden_ns), *self.warm_ns])
        if seen_ns <= BURST_TOLERANCE * with_launches_ns + overhead_ns:
            return ""
        return f"reported {said_ns / 1e3:.0f} us a call and took {seen_ns / 1e3:.0f} us for each of several in a row"


def hidden_launch_ns(host_ns: int, hold_ns: int) -> int:
    """How much of the time that a call kept the host can be missing from its device time: none after the device was let go.
    A call that waits for the device keeps the host for as long as the device is held."""
    return min(host_ns, hold_ns + EMPTYING_NS)


def worked_ahead_ns(used_ns: int) -> int:
    """What processor time used at rest adds to the next call's time."""
    return AHEAD_CHARGE * max(0, used_ns - QUIET_NS)
