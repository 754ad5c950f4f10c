"""The finals of a shape: its fastest candidates and the incumbent once more, in rounds, until one is left or rounds are over.

What was measured, and what follows from it; the search does the asking. Whoever may still be the fastest goes on. So do
the favourite, which was the fastest while exploring (two measurements that contradict each other want a third), and
whoever failed for the first time.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.figures import us
from sweep.racing import losers
from sweep.variant import Ask, Outcome, Variant

MAX_FAILURES = 2  # of one finalist
Entrant = Variant | None  # None: the incumbent, whatever the dispatch table says


@dataclass(frozen=True)
class Round:
    """One Ask and its answer. `turns`: for each turn the places in `variants`, in the order in which they were measured."""

    variants: tuple[Entrant, ...]
    outcomes: tuple[Outcome, ...]
    turns: tuple[str, ...]


@dataclass(frozen=True)
class Finals:
    """Rounds so far, and the variant that was the fastest before them, at `favourite_ns`."""

    favourite: Variant
    favourite_ns: float
    entrants: tuple[Entrant, ...]
    rounds: tuple[Round, ...] = ()

    def with_round(self, ask: Ask, outcomes: Sequence[Outcome]) -> Finals:
        """These finals after another round."""
        turns = tuple(" ".join(map(str, ask.order(turn))) for turn in range(ask.samples))
        return replace(self, rounds=(*self.rounds, Round(ask.variants, tuple(outcomes), turns)))

    def next_entrants(self) -> tuple[Entrant, ...]:
        """Who is to be measured in a further round; nobody if it is decided."""
        if not self.rounds:
            return self.entrants
        running = self._running()
        out = losers({number: self.samples_ns(entrant) for number, entrant in enumerate(running)})
        ahead = [entrant for number, entrant in enumerate(running) if number not in out or entrant == self.favourite]
        failures = self._failures()
        again = [entrant for entrant in self._failed() if failures[entrant] < MAX_FAILURES]
        return (*ahead, *again) if again or len(ahead) > 1 else ()

    def winner(self) -> Entrant:
        """The fastest of the last round by the median over all rounds; the incumbent if nobody runs."""
        return min(self._running(), key=self.median_ns, default=None)

    @property
    def all_failed(self) -> bool:
        """Whether no candidate ran in any round."""
        return not any(self.samples_ns(entrant) for entrant in self.entrants if entrant)

    def samples_ns(self, entrant: Entrant) -> tuple[int, ...]:
        """Its samples of all rounds, in order."""
        return tuple(sample for outcome in self._outcomes(entrant) for sample in outcome.samples_ns)

    def median_ns(self, entrant: Entrant) -> float:
        """The median over all rounds."""
        return float(statistics.median(self.samples_ns(entrant)))

    def messages(self, entrant: Entrant) -> list[str]:
        """How it failed, round by round."""
        return [f"{outcome.status}: {outcome.message}" for outcome in self._outcomes(entrant) if not outcome.ok]

    def remarks(self) -> list[str]:
        """What a reader should know: failures, and a favourite that did not win."""
        said = []
        for entrant in self.entrants:
            if messages := self.messages(entrant):
                times = f"{len(messages)} of {len(self._outcomes(entrant))} rounds"
                said.append(f"{name_of(entrant)} failed in {times} of the finals: {messages[0]}")
        winner = self.winner()
        if self.favourite in self._running() and winner != self.favourite:
            exploring, now = us(self.favourite_ns), us(self.median_ns(self.favourite))
            behind = f"behind {name_of(winner)} ({us(self.median_ns(winner))} us)"
            said.append(f"{self.favourite} was the fastest while exploring ({exploring} us); in the finals {now} us, {behind}")
        return said

    def _outcomes(self, entrant: Entrant) -> list[Outcome]:
        pairs = (pair for one in self.rounds for pair in zip(one.variants, one.outcomes, strict=True))
        return [outcome for variant, outcome in pairs if variant == entrant]

    def _running(self) -> list[Entrant]:
        """Those of the last round that it has samples of."""
        last = self.rounds[-1:]
        return [variant for one in last for variant, outcome in zip(one.variants, one.outcomes, strict=True) if outcome.ok]

    def _failed(self) -> list[Entrant]:
        running = self._running()
        return [variant for one in self.rounds[-1:] for variant in one.variants if variant not in running]

    def _failures(self) -> Counter[Entrant]:
        return Counter({entrant: len(self.messages(entrant)) for entrant in self.entrants})


def name_of(entrant: Entrant) -> str:
    """A finalist in words."""
    return str(entrant) if entrant else "the entry"
