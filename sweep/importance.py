"""What mattered: how much of the variance of the logarithm of the time each parameter explains by itself."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from sweep.record import Record

BACKEND = "backend"


def importance(records: Sequence[Record]) -> dict[str, float]:
    """Parameter -> eta squared (between-group over total sum of squares of log time), the largest first.

    Of a parameter the candidates of backends that have it count. Candidates were not drawn at random and parameters act
    together: a guide, not a decomposition. Left out are those with fewer than three times, or where all are equal.
    """
    found = {name: share for name in _names(records) if (share := _share(records, name)) > 0}
    return {name: found[name] for name in sorted(found, key=lambda name: -found[name])}


def _names(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys([BACKEND, *(name for record in records for name in record.variant.params)]))


def _share(records: Sequence[Record], name: str) -> float:
    """Sum of squares between the groups that have the same value, over that of all."""
    groups: dict[str, list[float]] = defaultdict(list)
    for record in records:
        settings = {BACKEND: record.variant.backend, **record.variant.params}
        if record.median_ns and name in settings:
            groups[repr(settings[name])].append(math.log(record.median_ns))
    values = [value for group in groups.values() for value in group]
    total = _squares(values)
    return 1 - sum(map(_squares, groups.values())) / total if len(values) >= 3 and total > 0 else 0.0


def _squares(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values) if values else 0.0
    return math.fsum((value - mean) ** 2 for value in values)
