"""Times, scores and gaps as the pages say them."""

import math
from datetime import UTC, datetime, timedelta

from harness.report.markup import Html, tag
from harness.report.words import NOTHING, microseconds

SCORE_DIGITS = 6  # ties stay visible: more than a case's median is shown with
STATUS_WORDS = {
    "pending": "waiting", "running": "running", "succeeded": "succeeded", "failed": "failed", "timed_out": "timed out",
    "hacked": "excluded",
}  # fmt: skip
SPANS = (
    ("day", timedelta(days=1)),
    ("hour", timedelta(hours=1)),
    ("minute", timedelta(minutes=1)),
    ("second", timedelta(seconds=1)),
)


def score(score_ns: float | None) -> str:
    """A score in microseconds with digits enough to tell near-ties apart, without the unit."""
    if score_ns is None:
        return NOTHING
    whole = max(1, math.floor(math.log10(max(score_ns / 1e3, 1))) + 1)
    return f"{score_ns / 1e3:.{max(0, SCORE_DIGITS - whole)}f}"


def big_score(score_ns: float) -> str:
    """A score for a heading, without the unit."""
    return microseconds(score_ns)


def gap(value: float) -> str:
    """How far behind the best, as a share of the best."""
    if value == 0:
        return "best"
    return f"+{value:.2%}" if value < 0.1 else f"+{value:.1%}" if value < 2 else f"{1 + value:.3g}×"


def moment(when: datetime | None) -> Html | str:
    """A time to the minute, UTC."""
    if when is None:
        return NOTHING
    utc = when.astimezone(UTC)
    return tag("time", f"{utc:%Y-%m-%d %H:%M}", datetime=utc.isoformat(timespec="seconds"))


def span(length: timedelta) -> str:
    """A length of time in its two largest units."""
    rest, said = max(length, timedelta()), []
    for name, unit in SPANS:
        amount, rest = divmod(rest, unit)
        if amount:
            said.append(count(amount, name))
    return " ".join(said[:2]) or "0 seconds"


def deadline(until: datetime | None, now: datetime) -> str:
    """When a leaderboard closes, or closed."""
    if until is None:
        return "Open, without a deadline"
    said = f"{until.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    return f"Closed since {said}" if until <= now else f"Open until {said}, {span(until - now)} left"


def ordinal(rank: int) -> str:
    """1st, 2nd, 3rd, 11th."""
    suffix = "th" if rank % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th")
    return f"{rank}{suffix}"


def status(value: str) -> str:
    """A job's status for people."""
    return STATUS_WORDS.get(value, value.replace("_", " "))


def count(number: int, noun: str) -> str:
    """1 user, 2 users."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
