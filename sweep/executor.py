"""The seam between the search and what measures for it: this machine's devices, a Ray cluster, a leaderboard server."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from sweep.variant import Ask, Machine, Outcome


class Executor(Protocol):
    """Measures. Whatever goes wrong with a variant is an Outcome; a SweepError means that nothing can be measured any more."""

    machine: Machine

    def run(self, asks: Sequence[Ask]) -> Iterator[tuple[int, list[Outcome]]]:
        """Answers as they come: the index of an Ask, and an Outcome for each of its variants.

        Raises DeviceLost, ServerFailed, KernelsNotLoaded, CaseRefused.
        """
        ...

    def close(self) -> None:
        """Give every device back."""
        ...
