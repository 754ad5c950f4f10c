"""What mattered: how much of the variance of the logarithm of the time each parameter explains by itself."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from sweep.record import Record

BACKEND = "backend"


def importance(records: Sequence[Record]) -> dict[str, float]:
    """Parameter -> eta squared (between-group over total sum of squares of log time), the largest first.

    Candidates were not drawn at random and parameters act together: a guide, not a decomposition. Empty with fewer than
    three times, or where all are equal.
    """
    timed = [(record, math.log(record.median_ns)) for record in records if record.median_ns]
    values = [value for _, value in timed]
    total = _squares(values)
    if len(timed) < 3 or total == 0:
        return {}
    found = {name: _between(timed, name) / total for name in _names(records)}
    return {name: found[name] for name in sorted(found, key=lambda name: -found[name]) if found[name] > 0}


def _names(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys([BACKEND, *(name for record in records for name in record.variant.params)]))


def _between(timed: Sequence[tuple[Record, float]], name: str) -> float:
    """Sum of squares between the groups that have the same value."""
    groups: dict[str, list[float]] = defaultdict(list)
    for record, value in timed:
        setting = record.variant.backend if name == BACKEND else record.variant.params.get(name)
        groups[repr(setting)].append(value)
    values = [value for _, value in timed]
    return _squares(values) - sum(map(_squares, groups.values()))


def _squares(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values) if values else 0.0
    return math.fsum((value - mean) ** 2 for value in values)
