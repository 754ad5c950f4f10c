"""A finished trial: a variant, and what was found out about it. The form in which studies are stored."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any, Literal

from sweep.variant import Variant, variant_from

Status = Literal["ok", "raced out", "wrong", "failed", "screened"]


@dataclass(frozen=True)
class Record:
    """`raced out`: slow enough that its samples were cut short. `screened`: refused before it ran."""

    variant: Variant
    status: Status
    samples_ns: tuple[int, ...] = ()
    message: str = ""

    @property
    def median_ns(self) -> float | None:
        """Median of the samples; None for a variant that has none to be trusted."""
        trusted = self.status in ("ok", "raced out") and self.samples_ns
        return float(statistics.median(self.samples_ns)) if trusted else None

    def to_json(self) -> dict[str, Any]:
        """The stored form."""
        return {
            "backend": self.variant.backend,
            "params": self.variant.params,
            "status": self.status,
            "samples_ns": list(self.samples_ns),
            "message": self.message,
        }


def record_from(data: dict[str, Any]) -> Record:
    """The record of its stored form."""
    return Record(variant_from(data), data["status"], tuple(data["samples_ns"]), data["message"])
