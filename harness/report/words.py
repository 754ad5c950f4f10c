"""Numbers and cases as people read them."""

import math
from collections.abc import Sequence
from typing import Any

from harness.compare import change_text
from harness.figures import us
from harness.result import CaseResult, Comparison, Result, State, Status

NOTHING = "–"
THIN_SPACE = "\u2009"
MEANS = {"geom": "geometric mean of the cases' {}s", "mean": "mean of the cases' {}s", "last": "{} of the last case"}
BYTE_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def microseconds(ns: float) -> str:
    """Nanoseconds in microseconds, four significant digits; five digits and more before the point are grouped."""
    if not math.isfinite(ns):
        return str(ns)
    whole, point, rest = us(ns).partition(".")
    return (f"{int(whole):,}".replace(",", THIN_SPACE) if len(whole) > 4 else whole) + point + rest


def duration(ns: float) -> str:
    """Nanoseconds in the unit that suits them, three significant digits."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}" if ns < 1000 * size else f"{ns / size:.0f} {unit}"
    return f"{ns / 1e3:.3g} µs"


def size(nbytes: float) -> str:
    """Bytes in the unit that suits them."""
    for unit, unit_bytes in BYTE_UNITS:
        if nbytes >= unit_bytes:
            return f"{nbytes / unit_bytes:.4g} {unit}"
    return "1 byte" if nbytes == 1 else f"{nbytes} bytes"


def number(value: float | None) -> str:
    """An error or another figure without unit, two significant digits."""
    return NOTHING if value is None else f"{value:.2g}"


def ratio(comparison: Comparison) -> str:
    """A ratio of times, its interval, and what that says."""
    low, high = comparison.ci95
    return f"{comparison.ratio:.3f} [{low:.3f}, {high:.3f}] {comparison.change.value}"


def compared(result: Result) -> str:
    """How the submission as a whole compares with its baseline, a sentence; empty without one."""
    if result.comparison is None or result.baseline is None:
        return ""
    text = change_text(result.comparison, result.baseline.name)
    return text[0].upper() + text[1:]


def case_text(case: CaseResult) -> str:
    """The line of a case file that asks for this case."""
    return "; ".join(f"{key}: {value}" for key, value in case.spec.items())


def case_title(case: CaseResult) -> str:
    """The whole case, to read."""
    return " · ".join(f"{key} {value}" for key, value in case.spec.items())


def case_labels(cases: Sequence[CaseResult]) -> list[str]:
    """Names that tell these cases apart: the keys that differ, the seed only if nothing else does."""
    keys = list(dict.fromkeys(key for case in cases for key in case.spec))
    varying = [key for key in keys if len({repr(case.spec.get(key)) for case in cases}) > 1]
    for chosen in ([key for key in varying if key != "seed"], varying):
        labels = [" · ".join(f"{key} {case.spec[key]}" for key in chosen if key in case.spec) for case in cases]
        if len(set(labels)) == len(labels) and all(labels):
            return labels
    return [case_title(case) for case in cases]


def reasons(case: CaseResult) -> list[str]:
    """Why a case did not pass: its message, those of the verdicts that fail; empty for a case that passed."""
    failed = [verdict.message for verdict in (case.official, case.strict) if verdict and not verdict.ok]
    return [text for text in dict.fromkeys([case.message, *failed]) if text]


def headline(result: Result) -> str:
    """How the evaluation ended, or how far it is."""
    done, total = len(result.cases), result.cases_total
    if result.state is State.FAILED:
        return f"Failed: {result.error}" if result.error else "Failed"
    if result.state is State.RUNNING:
        return f"Running, {done} of {_cases(total)} done"
    if result.state is State.INTERRUPTED:
        return f"Interrupted after {done} of {_cases(total)}"
    failing = sum(case.status is not Status.PASS for case in result.cases)
    if failing:
        return f"{failing} of {_cases(total)} {'fails' if failing == 1 else 'fail'}"
    verdicts = "both verdicts" if any(case.strict for case in result.cases) else "the official verdict"
    return f"{'All ' if total > 1 else ''}{_cases(total)} {'pass' if total > 1 else 'passes'} {verdicts}"


def score_meaning(result: Result) -> str:
    """What the score is made of."""
    score = result.score
    return MEANS.get(score.ranking_by, score.ranking_by + " of {}s").format(score.statistic) if score else ""


def started(result: Result) -> str:
    """The start of the run, to the minute."""
    return result.started_at[:16].replace("T", " ") + " UTC"


def version_and_commit(result: Result) -> tuple[str, str]:
    """The harness's version, and its commit as git describes it (empty outside a checkout)."""
    version, _, commit = result.harness_version.partition("+")
    return version, commit


def plain(value: Any) -> str:
    """A parameter's value without quotes."""
    return ", ".join(map(plain, value)) if isinstance(value, list | tuple) else str(value)


def _cases(count: int) -> str:
    return f"{count} case" if count == 1 else f"{count} cases"
