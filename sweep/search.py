"""The search for one shape, as a generator of Asks: explore, refine, choose a challenger, let it duel with the incumbent.

It says what is to be measured and is sent what came of it, so one loop can run many shapes against any executor.
"""

from __future__ import annotations

import random
import statistics
import zlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace

from harness.records import from_json, to_json
from sweep.config import Preset
from sweep.decision import Decision, Duel, decide
from sweep.finals import Finals
from sweep.racing import losers
from sweep.record import Record, Status
from sweep.sampler import Proposer
from sweep.space import Grid, Space
from sweep.store import StoredStudy
from sweep.variant import Ask, Outcome, Target, Variant

DECISION = "decision"
REFINING = 1.3  # candidates in all for one that the sampler proposes
MAX_SEEDS = 8  # settings of other shapes that are tried first

Steps = Generator[Ask, list[Outcome], Decision]
Measured = Generator[Ask, list[Outcome], None]


@dataclass
class ShapeSearch:
    """One shape's search. `entry`: what dispatch.yml says for it now; `seeds`: settings worth trying first.

    `screen` says why a variant must not run, or None. `is_late`: whether the time for new candidates is over.
    """

    target: Target
    space: Space
    study: StoredStudy
    preset: Preset
    entry: Variant | None = None
    seeds: Sequence[Variant] = ()
    screen: Callable[[Variant], str | None] = lambda variant: None
    is_late: Callable[[], bool] = lambda: False
    phase: str = "waiting"
    incumbent: Variant | None = None
    incumbent_ns: float | None = None
    finals: Finals | None = None
    _records: dict[Variant, Record] = field(default_factory=dict)

    def run(self) -> Steps:
        """Everything that is left to do. Raises SpaceError if no backend of the space can be used."""
        self._read_records()
        if decision := self._decided():
            self.phase = "done before"
            return decision
        met = yield from self._meet_incumbent()
        yield from self._explore()
        yield from self._refine()
        decision = yield from self._settle(met)
        found = {"entry": self.entry, "decision": decision, "finals": self.finals}
        self.study.set(DECISION, {name: to_json(value) for name, value in found.items()})
        self.phase = "done"
        return decision

    @property
    def tried(self) -> int:
        """Candidates with a record."""
        return len(self._records)

    @property
    def planned(self) -> int:
        """About how many candidates there will be."""
        sampled = min(len(self.space.part(self._is_sampled)), round(REFINING * self.preset.trials))
        return len(self.space.part(self._is_whole)) + sampled

    def best(self) -> Record | None:
        """The fastest candidate that was measured to the end."""
        done = [record for record in self._records.values() if record.status == "ok"]
        return min(done, key=lambda record: record.median_ns or 0.0, default=None)

    def records(self) -> list[Record]:
        """What is known of every candidate."""
        return list(self._records.values())

    def _read_records(self) -> None:
        """Everything that is stored, other machines' trials too."""
        self._records = {record.variant: record for record in self.study.records()}

    def _decided(self) -> Decision | None:
        """The stored decision, as long as the table says what it said then, or what was decided."""
        stored = self.study.get(DECISION)
        if stored is None:
            return None
        before = from_json(Variant, stored["entry"]) if stored["entry"] else None
        decision: Decision = from_json(Decision, stored["decision"], "decision")
        applied = decision.changes and self.entry == decision.challenger
        if not applied and self.entry != before:
            return None
        self.incumbent = decision.incumbent
        self.incumbent_ns = statistics.median(decision.duel.incumbent_ns) if decision.duel else None
        finals = stored.get("finals")
        self.finals = from_json(Finals, finals, "finals") if finals else None
        return decision

    # ---- phases

    def _meet_incumbent(self) -> Generator[Ask, list[Outcome], Outcome]:
        """Measure what the table says now; a submission that describes itself says what that is."""
        self.phase = "incumbent"
        (outcome,) = yield Ask(self.target, (None,), sum(self.preset.race_samples), f"{self.target}/incumbent")
        self.incumbent = outcome.described or self.entry
        if outcome.ok:
            self.incumbent_ns = statistics.median(outcome.samples_ns)
        return outcome

    def _explore(self) -> Measured:
        """Everything that small backends have, then of the others seeds and the sampler's proposals, until enough are tried."""
        self.phase = "exploring"
        yield from self._try_all(self.space.part(self._is_whole))
        while (missing := self.preset.trials - self._sampled()) > 0 and not self.is_late():
            batch = self._proposals(min(self.preset.batch, missing))
            if not batch:
                return
            yield from self._race(batch)

    def _is_whole(self, grid: Grid) -> bool:
        return self.preset.exhaustive or len(grid) <= self.preset.whole

    def _is_sampled(self, grid: Grid) -> bool:
        return not self._is_whole(grid)

    def _sampled(self) -> int:
        """Candidates with a record of backends that are not tried whole."""
        whole = self.space.part(self._is_whole).grids
        return sum(variant.backend not in whole for variant in self._records)

    def _try_all(self, space: Space) -> Measured:
        rest = [variant for variant in space if variant not in self._records]
        self._random().shuffle(rest)
        for start in range(0, len(rest), self.preset.batch):
            if self.is_late():
                return
            there = [variant for variant in rest[start : start + self.preset.batch] if variant.backend in self.space.grids]
            yield from self._race(there)

    def _refine(self) -> Measured:
        """Neighbours of the best, until none is better: the sampler finds the region, this its lowest point."""
        self.phase = "refining"
        for _ in range(self.preset.refine_rounds):
            best = self.best()
            fresh = [v for v in self.space.neighbours(best.variant) if v not in self._records] if best else []
            for start in range(0, len(fresh), self.preset.batch):
                if self.is_late():
                    return
                yield from self._race(fresh[start : start + self.preset.batch])
            if not fresh or self.best() == best:
                return

    def _settle(self, met: Outcome) -> Steps:
        """The decision, from fresh samples."""
        self.phase = "finals"
        challenger = yield from self._challenger(met)
        self.phase = "duel"
        if not met.ok:
            return self._without_incumbent(met, challenger)
        if challenger is None:
            a, b = yield self._duel_of(())
            failed = self.finals is not None and self.finals.all_failed
            why = "every finalist failed in the finals" if failed else "nothing tried was faster"
            return self._kept(f"kept: {why}", Duel(a.samples_ns, b.samples_ns, b.samples_ns), a, b)
        a, b, c = yield self._duel_of((challenger,))
        if not (a.ok and b.ok and c.ok):
            return self._kept(f"kept: the duel with {challenger} failed: {a.message or b.message or c.message}", None, a, b)
        return decide(self.incumbent, challenger, Duel(a.samples_ns, b.samples_ns, c.samples_ns))

    def _duel_of(self, challengers: tuple[Variant, ...]) -> Ask:
        return Ask(self.target, (None, None, *challengers), self.preset.duel_samples, f"{self.target}/duel")

    def _challenger(self, met: Outcome) -> Generator[Ask, list[Outcome], Variant | None]:
        """The best of the finalists in runs of their own, if it is not the incumbent and not behind it."""
        finalists = self._finalists()
        if not finalists:
            return None
        finals = Finals(finalists[0].variant, finalists[0].median_ns or 0.0, tuple(record.variant for record in finalists))
        finals = replace(finals, entrants=(*finals.entrants, None)) if met.ok else finals
        for number in range(self.preset.final_rounds):
            entrants = finals.next_entrants()
            if not entrants:
                break
            ask = Ask(self.target, entrants, self.preset.final_samples, f"{self.target}/final{number}")
            self.finals = finals = finals.with_round(ask, (yield ask))
        return finals.winner()

    def _finalists(self) -> list[Record]:
        """The fastest candidates that are not the incumbent; of those that races cut short as many as there is room for."""
        timed = [r for r in self._records.values() if r.median_ns and not r.variant.within(self.incumbent)]
        return sorted(timed, key=lambda r: (r.status != "ok", r.median_ns))[: self.preset.finalists]

    def _without_incumbent(self, met: Outcome, challenger: Variant | None) -> Decision:
        if challenger is None:
            why = next((record.message for record in self._records.values() if record.message), "none was tried")
            reason = f"kept: neither the entry ({met.message}) nor any candidate runs ({why})"
            return Decision(False, reason, self.incumbent, None)
        median_ns = self._records[challenger].median_ns
        return Decision(True, f"changed: the entry does not run: {met.message}", self.incumbent, challenger, None, median_ns)

    def _kept(self, reason: str, duel: Duel | None, a: Outcome, b: Outcome) -> Decision:
        if not (a.ok and b.ok):
            return Decision(False, reason, self.incumbent, None)
        return Decision(False, reason, self.incumbent, None, duel, statistics.median(a.samples_ns))

    # ---- candidates

    def _proposals(self, count: int) -> list[Variant]:
        """Seeds not yet tried, then what the sampler says, whose seed is the number of trials: a resumed search goes the same
        way."""
        self._read_records()
        space = self.space.part(self._is_sampled)
        if not space.grids:
            return []
        seeds = [found for variant in (self.incumbent, *self.seeds) if (found := space.exact(variant))][:MAX_SEEDS]
        fresh = [seed for seed in dict.fromkeys(seeds) if seed not in self._records][:count]
        proposer = Proposer(space, self._seed())
        for record in self._records.values():
            proposer.learn(record)
        return fresh + proposer.propose(count - len(fresh), {*self._records, *fresh})

    def _seed(self) -> int:
        return zlib.crc32(f"{self.study.name}/{self.tried}".encode())

    def _random(self) -> random.Random:
        return random.Random(self._seed())

    def _race(self, batch: Sequence[Variant]) -> Measured:
        """Measure a batch step by step, the slow ones dropping out; every candidate ends as a record."""
        alive: dict[int, Variant] = {}
        for number, variant in enumerate(batch):
            if reason := self.screen(variant):
                self._finish(variant, "screened", (), reason)
            else:
                alive[number] = variant
        samples: dict[int, tuple[int, ...]] = dict.fromkeys(alive, ())
        tag = f"{self.target}/race{self.tried}"
        for step, count in enumerate(self.preset.race_samples):
            if alive:
                outcomes = yield Ask(self.target, tuple(alive.values()), count, f"{tag}/{step}")
                self._take(alive, samples, outcomes)
                self._drop_losers(alive, samples)
        for number, variant in alive.items():
            self._finish(variant, "ok", samples[number])

    def _take(self, alive: dict[int, Variant], samples: dict[int, tuple[int, ...]], outcomes: list[Outcome]) -> None:
        """Note what an Ask brought; candidates without a right result are out."""
        missing: set[str] = set()
        for number, outcome in zip(list(alive), outcomes, strict=True):
            if outcome.ok:
                samples[number] += outcome.samples_ns
                continue
            variant = alive.pop(number)
            if outcome.status == "unavailable":
                missing.add(variant.backend)
            else:
                self._finish(variant, "wrong" if outcome.status == "wrong" else "failed", (), outcome.message)
        if missing:
            self.space.without(missing)

    def _drop_losers(self, alive: dict[int, Variant], samples: dict[int, tuple[int, ...]]) -> None:
        best = self.best()
        for number in losers({n: samples[n] for n in alive}, best.samples_ns if best else ()):
            self._finish(alive.pop(number), "raced out", samples[number])

    def _finish(self, variant: Variant, status: Status, samples_ns: tuple[int, ...], message: str = "") -> None:
        record = Record(variant, status, samples_ns, message)
        self.study.add(record)
        self._records[variant] = record


