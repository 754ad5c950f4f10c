"""A leaderboard server as the executor: an author without the GPU tunes on the leaderboard's.

One submission holds one variant for each shape, so a run of the server's eight cases is a measurement for eight searches at
once. The server tells a case's mean over its samples: that is one sample here, and turns are whole runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sweep.errors import ServerFailed
from sweep.ledger import Ledger
from sweep.popcorn_run import BenchmarkServer, RunFigures
from sweep.variant import Ask, Machine, Outcome, Shape, Variant

MAX_SILENT_RUNS = 3  # in a row without a figure although every shape ran as the table says


@dataclass
class Progress:
    """How far an Ask is: turn by turn, each variant once a turn."""

    ask: Ask
    samples: list[list[int]] = field(default_factory=list)
    failures: dict[int, tuple[str, str]] = field(default_factory=dict)  # place -> status, message

    def __post_init__(self) -> None:
        self.samples = [[] for _ in self.ask.variants]

    def next_place(self) -> int | None:
        """The place of the variant that is to be run next; None when the Ask is answered."""
        open_places = [place for place in range(len(self.samples)) if place not in self.failures]
        turn = min((len(self.samples[place]) for place in open_places), default=self.ask.samples)
        if turn >= self.ask.samples:
            return None
        return next(place for place in self.ask.order(turn) if place in open_places and len(self.samples[place]) == turn)

    def outcomes(self) -> list[Outcome]:
        """The answer."""
        done = []
        for place, samples in enumerate(self.samples):
            status, message = self.failures.get(place, ("ok", ""))
            done.append(Outcome(tuple(samples) if status == "ok" else (), status, message))
        return done


class PopcornExecutor:
    """An Executor that submits. `text_of` makes the submission that serves shapes by the variants given."""

    def __init__(
        self, server: BenchmarkServer, machine: Machine, text_of: Callable[[Mapping[Shape, Variant]], str], ledger: Ledger
    ):
        self.machine = machine
        self._server, self._text_of, self._ledger = server, text_of, ledger
        self._silent = 0

    def run(self, asks: Sequence[Ask]) -> Iterator[tuple[int, list[Outcome]]]:
        """See Executor."""
        waiting = {index: Progress(ask) for index, ask in enumerate(asks)}
        while waiting:
            for index in [index for index, progress in waiting.items() if progress.next_place() is None]:
                yield index, waiting.pop(index).outcomes()
            places = {index: place for index, progress in waiting.items() if (place := progress.next_place()) is not None}
            if places:
                self._run(waiting, places)

    def close(self) -> None:
        """Nothing is held."""

    def _run(self, waiting: Mapping[int, Progress], places: Mapping[int, int]) -> None:
        """One submission for the next variant of every Ask; if it says nothing, halves of it, to find who is to blame."""
        figures = self._submit(waiting, places)
        by_spec = {json.dumps(case.spec, sort_keys=True): case for case in figures.cases}
        unanswered = {}
        for index, place in places.items():
            progress = waiting[index]
            case = by_spec.get(json.dumps(dict(progress.ask.target.case.spec), sort_keys=True))
            if case is None:
                unanswered[index] = place
            elif case.mean_ns is None:
                progress.failures[place] = ("wrong" if "mismatch" in case.error.lower() else "failed", case.error)
            else:
                progress.samples[place].append(case.mean_ns)
        if len(unanswered) < len(places):
            self._silent = 0  # what stood behind a failing case comes again with the next submission
        else:
            self._blame(waiting, unanswered, figures.error)

    def _blame(self, waiting: Mapping[int, Progress], places: Mapping[int, int], error: str) -> None:
        """A run without a figure: one variant alone is to blame, several are split."""
        guilty = {i: p for i, p in places.items() if waiting[i].ask.variants[p] is not None}
        if not guilty:
            self._silent += 1
            if self._silent >= MAX_SILENT_RUNS:
                raise ServerFailed(f"the server gives no figures even for the present table: {error or 'cases are missing'}")
        elif len(guilty) == 1:
            ((index, place),) = guilty.items()
            waiting[index].failures[place] = ("failed", error or "the server gave no figures for its case")
        else:
            items = list(guilty.items())
            for half in (items[: len(items) // 2], items[len(items) // 2 :]):
                self._run(waiting, dict(half))

    def _submit(self, waiting: Mapping[int, Progress], places: Mapping[int, int]) -> RunFigures:
        """The figures of one submission, from the ledger if this very step was finished before."""
        choices, steps = {}, []
        for index, place in sorted(places.items()):
            ask, variant = waiting[index].ask, waiting[index].ask.variants[place]
            if variant is not None:
                choices[ask.target.shape] = variant
            steps.append([ask.tag, place, len(waiting[index].samples[place])])
        text = self._text_of(choices)
        key = hashlib.sha256(json.dumps([text, steps, self._server.gpu]).encode()).hexdigest()
        figures = self._ledger.get(key)
        if figures is None:
            figures = self._server.run(text.encode())
            self._ledger.put(key, figures)
        return figures
