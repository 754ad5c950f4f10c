"""Axes: from values to positions in percent, and where the ticks stand."""

import math
from dataclasses import dataclass
from typing import Protocol

MOST_LOG_TICKS = 9
SMALLEST, LARGEST = 1e-6, 1e18  # in nanoseconds: far from what can be timed, to 30 years


class Scale(Protocol):
    """An axis. Positions run from 0 (low end) to 100 (high end); values beyond an end lie on it."""

    def percent(self, value: float) -> float:
        """The position of `value`."""
        ...

    def ticks(self) -> list[float]:
        """Round values between the ends, ascending."""
        ...


@dataclass(frozen=True)
class Linear:
    """Equal differences are equal distances; `low` < `high`."""

    low: float
    high: float

    def percent(self, value: float) -> float:
        return _clamped((value - self.low) / (self.high - self.low))

    def ticks(self, about: int = 4) -> list[float]:
        """Multiples of 1, 2 or 5 times a power of ten, around `about` of them."""
        raw = (self.high - self.low) / about
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [index * step for index in range(first, last + 1)]


@dataclass(frozen=True)
class Log:
    """Equal ratios are equal distances; 0 < `low` < `high`."""

    low: float
    high: float

    def percent(self, value: float) -> float:
        return _clamped(math.log(value / self.low) / math.log(self.high / self.low)) if value > 0 else 0.0

    def ticks(self) -> list[float]:
        """1, 2, 5 of every decade, or 1 alone where these are too many."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for steps in ((1, 2, 5), (1,)):
            found = [step * 10.0**decade for decade in decades for step in steps]
            found = [value for value in found if self.low <= value <= self.high]
            if len(found) <= MOST_LOG_TICKS:
                return found
        return found[:: math.ceil(len(found) / MOST_LOG_TICKS)]


def fits(value: float | None) -> bool:
    """Whether an axis can hold `value`, a time or a size: a number, positive, of this world."""
    return value is not None and SMALLEST <= value <= LARGEST


def _clamped(share: float) -> float:
    if math.isnan(share):
        return 0.0
    return 100 * min(max(share, 0.0), 1.0)
