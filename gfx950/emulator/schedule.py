"""Wave schedules: which wave executes next, and when its memory operations take effect."""

from __future__ import annotations

from dataclasses import dataclass, replace

ROUND_ROBIN, REVERSE, RANDOM, TO_BARRIER = range(4)  # native/machine.hpp, Order


@dataclass(frozen=True)
class Schedule:
    """One legal behaviour of the hardware.

    order, quantum: each wave in turn executes `quantum` instructions (random: 1..quantum of a random wave; to_barrier: until
    it waits at a barrier). late_loads: global memory is read when a wait covers the load, not at issue. posted_stores:
    global stores become visible to other waves when a wait covers them, not at issue. stalls: a wave that waits for memory
    goes on only when all others wait too, and one that ends with stores on their way waits for them; waits for loads end
    first, those for stores last (random: any first). instant:
    every memory operation is complete at issue, so that missing waits do not show: no behaviour to rely on, but it tells a
    missing wait from wrong arithmetic.
    """

    name: str
    order: int = ROUND_ROBIN
    quantum: int = 1
    seed: int = 0
    late_loads: bool = True
    posted_stores: bool = True
    stalls: bool = True
    instant: bool = False

    @staticmethod
    def round_robin(quantum: int = 1) -> Schedule:
        """Each wave in turn executes `quantum` instructions."""
        return Schedule(f"round-robin {quantum}", ROUND_ROBIN, quantum)

    @staticmethod
    def reverse(quantum: int = 1) -> Schedule:
        """As round_robin, the last wave of the last workgroup first."""
        return Schedule(f"reverse {quantum}", REVERSE, quantum)

    @staticmethod
    def random(seed: int = 0, quantum: int = 16) -> Schedule:
        """A random wave executes 1..quantum instructions."""
        return Schedule(f"random seed {seed}", RANDOM, quantum, seed)

    @staticmethod
    def to_barrier() -> Schedule:
        """Each wave runs until it waits at a barrier or ends."""
        return Schedule("to the barrier", TO_BARRIER, stalls=False)

    def prompt(self) -> Schedule:
        """The same order with memory operations that take effect at issue."""
        return replace(self, name=f"{self.name}, prompt memory", late_loads=False, posted_stores=False, stalls=False)

    def without_latency(self) -> Schedule:
        """The same order with memory operations that are complete at issue; no part of a verdict."""
        return replace(self.prompt(), name=f"{self.name}, no latency", instant=True)


# What verify() runs when nothing else is asked for: every order, with slow and with prompt memory operations.
CONJUNCTION = (
    Schedule.round_robin(1),
    Schedule.round_robin(16).prompt(),
    Schedule.random(seed=1),
    Schedule.to_barrier(),
    Schedule.reverse(1).prompt(),
)
