"""The referee's own accounts of a worker, kept by the kernel: processor time that a reported time must be able to hold.

Within a call a process cannot use more processor time than the call lasts on every core. And between the moment when it
learns of new contents and the call it has nothing to do. Both hold however busy the machine is, which wall clocks do not.
"""

import os
import time
from dataclasses import dataclass

# Answering costs the worker some: reading the request, describing the output.
CALL_OVERHEAD_NS = 3_000_000
QUIET_NS = 1_000_000
CORES_SLACK = 1.25
MIN_CALLS = 3  # before a contradiction is believed
CPUCLOCK_SCHED = 2  # linux/posix-timers.h: the clock id of another process's processor time


def cpu_time_ns(pid: int) -> int | None:
    """Processor time that a process has used so far, all its threads together; None once it is gone."""
    try:
        return time.clock_gettime_ns((~pid << 3) | CPUCLOCK_SCHED)
    except OSError:
        return None


@dataclass
class Ledger:
    """Sums over the calls of one case."""

    cores: int = os.cpu_count() or 1
    calls: int = 0
    reported_ns: int = 0
    used_ns: int = 0

    def enter(self, reported_ns: int, used_ns: int) -> None:
        """A call that is said to have taken `reported_ns`, in which the process used `used_ns` of processor time."""
        self.calls += 1
        self.reported_ns += reported_ns
        self.used_ns += used_ns

    def contradiction(self) -> str:
        """Why the reported times cannot be true; empty if they can."""
        possible_ns = CORES_SLACK * self.cores * self.reported_ns + CALL_OVERHEAD_NS * self.calls
        if self.calls < MIN_CALLS or self.used_ns <= possible_ns:
            return ""
        said, used = self.reported_ns / self.calls / 1e3, self.used_ns / self.calls / 1e3
        return f"reported {said:.0f} us a call and used {used:.0f} us of processor time a call on {self.cores} cores"


def worked_ahead_ns(used_ns: int) -> int:
    """Processor time used at rest that counts as the next call's."""
    return max(0, used_ns - QUIET_NS)
