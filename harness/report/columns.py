"""The columns of the table of cases, the same on the page and in Markdown, and what each means."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.figures import percent, rate
from harness.report.scale import fits
from harness.report.words import NOTHING, microseconds, number, ratio, reasons
from harness.result import CaseResult, Status


@dataclass(frozen=True)
class Column:
    """`cell` gives a case's text, NOTHING where the case has no such figure."""

    name: str
    meaning: str
    cell: Callable[[CaseResult], str]
    numeric: bool = True


def _verdict(verdict: object) -> str:
    return NOTHING if verdict is None else "pass" if getattr(verdict, "ok", False) else "fail"


def _median(case: CaseResult) -> str:
    if case.timing is None:
        return NOTHING
    low, high = case.timing.ci95_ns
    return f"{microseconds(case.timing.median_ns)} [{microseconds(low)}, {microseconds(high)}]"


def _mean(case: CaseResult) -> str:
    timing = case.timing
    return f"{microseconds(timing.mean_ns)} ± {microseconds(timing.err_ns)}" if timing else NOTHING


def _against(case: CaseResult) -> str:
    return ratio(case.comparison) if case.comparison else NOTHING


def bandwidth(case: CaseResult) -> str:
    """The bytes that must move over the median, in GB/s."""
    if case.timing is None or not case.min_bytes or not fits(case.timing.median_ns):
        return NOTHING
    return rate(case.min_bytes, case.timing.median_ns)


def share(case: CaseResult, floor: str) -> str:
    """The floor `roofline`, `measured` or `refusal` as a share of the median: 100% is as fast as the floor."""
    both = _floor_and_median(case, floor)
    return percent(*both) if both else NOTHING


def mean_share(cases: Sequence[CaseResult], floor: str) -> float | None:
    """Geometric mean over all cases of a floor as a share of the median; None unless every case has both."""
    pairs = [both for case in cases if (both := _floor_and_median(case, floor))]
    logs = [math.log(floor_ns / median_ns) for floor_ns, median_ns in pairs]
    return math.exp(math.fsum(logs) / len(logs)) if logs and len(logs) == len(cases) else None


def _floor_and_median(case: CaseResult, floor: str) -> tuple[float, float] | None:
    floor_ns, median_ns = getattr(case.floor, f"{floor}_ns", None), case.timing and case.timing.median_ns
    return (floor_ns, median_ns) if floor_ns and median_ns and fits(floor_ns) and fits(median_ns) else None


def _strict(name: str) -> Callable[[CaseResult], Any]:
    return lambda case: getattr(case.strict, name, None)


def _official(case: CaseResult) -> str:
    return _verdict(case.official)


COLUMNS = (
    Column("status", "How the case ended.", lambda case: case.status.value, numeric=False),
    Column("official", "The problem's own check: whether the leaderboard accepts the output.", _official, numeric=False),
    Column(
        "strict", "The check against an fp64 result: only the rounding noise of an honest kernel passes.",
        lambda case: _verdict(case.strict), numeric=False,
    ),
    Column(
        "reads", "The format of the input that the output says was read.",
        lambda case: _strict("format")(case) or NOTHING, numeric=False,
    ),
    Column("median [95 %] µs", "Median of the samples and its bootstrap 95 % interval. The robust policy scores it.", _median),
    Column("mean ± err µs", "Mean of the samples and its standard error. The official policy scores it.", _mean),
    Column("× baseline", "Median over the baseline's median, 95 % interval, and what the interval says.", _against),
    Column("GB/s", "Bytes that any kernel must move for this case and format, over the median.", bandwidth),
    Column(
        "% of roofline", "Time of those bytes at the datasheet's bandwidth, over the median.",
        lambda case: share(case, "roofline"),
    ),
    Column(
        "% of measured floor", "Time of a plain cold read of those bytes on this device, over the median.",
        lambda case: share(case, "measured"),
    ),
    Column(
        "strict error", "Worst relative L2 distance of an output row from the fp64 result.",
        lambda case: number(_strict("rel_l2_worst")(case)),
    ),
    Column("backend", "What the submission says that it ran; not checked.", lambda case: case.backend or NOTHING, False),
    Column("why", "Why the case did not pass.", lambda case: "; ".join(reasons(case)) or NOTHING, numeric=False),
)  # fmt: skip


def columns_of(cases: Sequence[CaseResult]) -> list[Column]:
    """The columns that have something to say on these cases; the verdicts alone tell `pass` from `wrong`."""
    plain = all(case.status in (Status.PASS, Status.WRONG) for case in cases)
    columns = COLUMNS[1:] if plain else COLUMNS
    return [column for column in columns if any(column.cell(case) != NOTHING for case in cases)]
