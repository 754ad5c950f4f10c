"""The loop: what every shape's search asks for goes to the executor in rounds, what comes back goes to the searches."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sweep.decision import Decision
from sweep.errors import MostRefused
from sweep.executor import Executor
from sweep.report_text import progress_line
from sweep.search import ShapeSearch
from sweep.variant import Ask, Outcome

LAST_SHARE = 0.95  # of a search whose duel is not over
MIN_REFUSED = 32  # settings, of all shapes together, that say something about all others
DUEL_SHARE = 0.2  # of the time limit, kept for finals and duels


class Deadline:
    """A limit of wall time. Candidates stop before it, so that finals and duels have theirs."""

    def __init__(self, minutes: float | None, now_s: Callable[[], float] = time.monotonic):
        self._now_s, self._began_s, self._limit_s = now_s, now_s(), None if minutes is None else 60 * minutes

    def is_late(self) -> bool:
        """Whether no new candidates are to be tried."""
        return self._limit_s is not None and self.elapsed_s() > (1 - DUEL_SHARE) * self._limit_s

    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return self._now_s() - self._began_s

    def left_s(self, share_done: float) -> float | None:
        """Seconds that are left, by the share that is done and by the limit; None before anything is done."""
        if share_done <= 0:
            return self._limit_s
        left_s = self.elapsed_s() * (1 - share_done) / share_done
        return left_s if self._limit_s is None else max(min(left_s, self._limit_s - self.elapsed_s()), 0.0)


class Sweep:
    """Runs searches against an executor. `decisions` holds what is decided, also after an interruption."""

    def __init__(
        self,
        searches: Sequence[ShapeSearch],
        executor: Executor,
        deadline: Deadline,
        out: Callable[[str], None] = print,
        after_round: Callable[[], None] = lambda: None,
    ):
        self.searches, self.decisions = list(searches), {}
        self._executor, self._deadline, self._out, self._after_round = executor, deadline, out, after_round

    decisions: dict[int, Decision]

    def run(self) -> dict[int, Decision]:
        """Run every search to its decision. Raises MostRefused and what executor and store raise; all that came back is
        stored."""
        steps = {number: search.run() for number, search in enumerate(self.searches)}
        asks: dict[int, Ask] = {}
        for number in steps:
            self._advance(number, steps, asks, None)
        while asks:
            order = list(asks)
            for index, outcomes in self._executor.run([asks[number] for number in order]):
                self._advance(order[index], steps, asks, outcomes)
                self._tell(self.searches[order[index]])
            self._after_round()
            self._stop_if_most_are_refused()
        return self.decisions

    def _stop_if_most_are_refused(self) -> None:
        """Raises MostRefused: to go on would measure the few that run, or nothing."""
        records = [record for search in self.searches for record in search.records() if record.status != "screened"]
        refused = [record for record in records if record.median_ns is None]
        if len(refused) >= MIN_REFUSED and 2 * len(refused) > len(records):
            raise MostRefused(len(refused), len(records), f"{refused[0].variant}: {refused[0].message}")

    def _advance(self, number: int, steps: dict, asks: dict[int, Ask], outcomes: list[Outcome] | None) -> None:
        """Give a search its answer; note what it asks for next, or its decision."""
        try:
            asks[number] = steps[number].send(outcomes)
        except StopIteration as end:
            self.decisions[number] = end.value
            asks.pop(number, None)

    def share_done(self) -> float:
        """Of all that may have to be tried."""
        shares = [self._share(number, search) for number, search in enumerate(self.searches)]
        return sum(shares) / len(shares)

    def _share(self, number: int, search: ShapeSearch) -> float:
        if number in self.decisions:
            return 1.0
        return min(search.tried / max(search.planned, 1), LAST_SHARE)

    def _tell(self, search: ShapeSearch) -> None:
        share = self.share_done()
        self._out(progress_line(search, share, self._deadline.left_s(share)))
