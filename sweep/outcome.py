"""What a sweep found out about one shape: what reports show, and what stands in the file of samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.records import to_json
from sweep.decision import Decision
from sweep.finals import Finals
from sweep.record import Record
from sweep.search import ShapeSearch
from sweep.variant import Target


@dataclass(frozen=True)
class ShapeOutcome:
    """A shape's records, in the order in which they were measured, and its decision."""

    target: Target
    records: tuple[Record, ...]
    decision: Decision
    incumbent_ns: float | None = None
    finals: Finals | None = None

    @property
    def normalised(self) -> list[Record]:
        """The records with times relative to the shape's best (x 1e6), so that shapes can be put together."""
        best = min((record.median_ns for record in self.records if record.median_ns), default=None)
        if best is None:
            return []
        scaled = ((record, tuple(round(sample / best * 1e6) for sample in record.samples_ns)) for record in self.records)
        return [replace(record, samples_ns=samples) for record, samples in scaled]

    def to_json(self) -> dict[str, Any]:
        """Everything, samples included."""
        return {
            "shape": list(self.target.shape),
            "case": self.target.case.text,
            "decision": to_json(self.decision),
            "finals": to_json(self.finals),
            "records": [record.to_json() for record in self.records],
        }


def outcome_of(search: ShapeSearch, decision: Decision | None) -> ShapeOutcome:
    """The outcome of a search, finished or not."""
    unfinished = Decision(False, f"not decided yet: {search.phase}", search.incumbent, None)
    return ShapeOutcome(search.target, tuple(search.records()), decision or unfinished, search.incumbent_ns, search.finals)


def outcomes_of(searches: Sequence[ShapeSearch], decisions: dict[int, Decision]) -> list[ShapeOutcome]:
    """One for each search."""
    return [outcome_of(search, decisions.get(number)) for number, search in enumerate(searches)]
