"""The loop: what every shape's search asks for goes to the executor in rounds, what comes back goes to the searches."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sweep.decision import Decision
from sweep.executor import Executor
from sweep.report_text import progress_line
from sweep.search import ShapeSearch
from sweep.variant import Ask, Outcome

REFINING = 1.3  # candidates in all for one that the sampler proposes
LAST_SHARE = 0.95  # of a search whose duel is not over
DUEL_SHARE = 0.12  # of the time limit, kept for finals and duels


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
        """Run every search to its decision. Raises what the executor and the store raise; all that came back is stored."""
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
        return self.decisions

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
        limit = len(search.space) if search.preset.exhaustive else REFINING * search.preset.trials
        return min(search.tried / min(limit, len(search.space)), LAST_SHARE)

    def _tell(self, search: ShapeSearch) -> None:
        share = self.share_done()
        self._out(progress_line(search, share, self._deadline.left_s(share)))
