"""The referee's wall clock, as an object, so that tests can bring their own."""

import time
from typing import Protocol


class Clock(Protocol):
    """A monotonic clock."""

    def now_ns(self) -> int:
        """Nanoseconds since an arbitrary moment."""
        ...


class WallClock:
    """The machine's monotonic clock."""

    def now_ns(self) -> int:
        return time.perf_counter_ns()
