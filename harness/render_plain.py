"""The terminal, without colour: one row per case as it is finished, warnings and score below."""

import sys
from typing import TextIO

from harness.compare import change_text
from harness.figures import percent, rate, us
from harness.labels import case_label
from harness.observer import Progress
from harness.profile_table import tabulate
from harness.result import CaseResult, Result, State, Status

COLUMNS = (
    ("case", 24), ("official", 8), ("strict", 8), ("reads", 5), ("median [95 %] us", 22), ("mean ± err us", 16), ("GB/s", 6),
    ("of roofline", 11), ("of cold read", 12), ("rel. L2", 7), ("backend", 7),
)  # fmt: skip
DETAIL_LINES, PRINTED_LINES, PRINTED_WIDTH = 40, 10, 200


class PlainRenderer:
    """Writes to `out` whatever is final: what a pipe, a log file or a bare terminal can show."""

    def __init__(self, out: TextIO | None = None):
        self._out = out or sys.stdout

    def started(self, result: Result) -> None:
        device = result.device
        self._print(f"{result.problem}  {result.mode}, policy {result.policy}, cases: {result.cases_from}")
        self._print(f"{device.name}  {device.arch}, driver {device.driver}, torch {device.torch}")
        for warning in result.warnings:
            self._print(f"note: {warning}")
        self._print("  ".join(name.ljust(width) for name, width in COLUMNS).rstrip())

    def progress(self, progress: Progress) -> None:
        pass

    def case_done(self, result: Result) -> None:
        case = result.cases[-1]
        self._print("  ".join(text.ljust(width) for text, (_, width) in zip(case_row(case), COLUMNS, strict=True)).rstrip())
        for line in [*case_notes(case), *profile_lines(case)]:
            self._print(f"    {line}")

    def finished(self, result: Result) -> None:
        for line in summary_lines(result):
            self._print(line)

    def close(self) -> None:
        """Nothing is to be given back."""

    def _print(self, line: str) -> None:
        self._out.write(f"{line}\n")
        self._out.flush()


def case_row(case: CaseResult) -> tuple[str, ...]:
    """One case's cells, in the order of COLUMNS."""
    spec = case_label(case.spec)
    official = _verdict(case.official.ok if case.official else None, case.status)
    strict = _verdict(case.strict.ok if case.strict else None, case.status) if case.strict or not case.official else "-"
    reads = (case.strict.format if case.strict else None) or "-"
    worst, backend = case.strict.rel_l2_worst if case.strict else None, case.backend or "-"
    error = "-" if worst is None else f"{worst:.1e}"
    if case.timing is None:
        return spec, official, strict, reads, "-", "-", "-", "-", "-", error, backend
    timing, floor = case.timing, case.floor
    low, high = timing.ci95_ns
    return (
        spec, official, strict, reads,
        f"{us(timing.median_ns)} [{us(low)}, {us(high)}]",
        f"{us(timing.mean_ns)} ± {us(timing.err_ns)}",
        rate(case.min_bytes, timing.median_ns),
        percent(floor.roofline_ns if floor else None, timing.median_ns),
        percent(floor.measured_ns if floor else None, timing.median_ns),
        error,
        backend,
    )  # fmt: skip


def case_notes(case: CaseResult) -> list[str]:
    """What a row cannot say: the reason of a failure, the author's traceback, what was printed, warnings, the comparison."""
    printed = [f"printed: {line[:PRINTED_WIDTH]}" for line in case.printed.splitlines()[-PRINTED_LINES:]]
    compared = [f"compared: {change_text(case.comparison, 'the baseline')}"] if case.comparison else []
    warnings = [f"warning: {warning}" for warning in case.warnings]
    return [*failures(case), *case.detail.splitlines()[-DETAIL_LINES:], *printed, *compared, *warnings]


def failures(case: CaseResult) -> list[str]:
    """Why a case failed: its status and a line for each reason."""
    messages = [verdict.message for verdict in (case.official, case.strict) if verdict and not verdict.ok]
    return [f"{case.status.value}: {message}" for message in dict.fromkeys([case.message, *messages]) if message]


def profile_lines(case: CaseResult) -> list[str]:
    """The operators that cost most, per call, and where the trace lies."""
    if case.profile is None:
        return []
    table = tabulate(case.profile)
    lines = [f"{f'{table.where} us':>10}  {'share':>5}  {'calls':>6}  operator"]
    for row in table.rows:
        lines.append(f"{us(row.own_ns):>10}  {row.share:>5.0%}  {row.calls:>6.4g}  {row.name}")
    return [*lines, *table.below, f"trace: {case.profile.trace}"]


def summary_lines(result: Result) -> list[str]:
    """The last lines: how it ended, the score, the comparison."""
    lines = [ended(result)]
    score = result.score
    if score and score.value_ns is not None:
        lines.append(f"score: {us(score.value_ns)} us ({score.ranking_by} of the cases' {score.statistic}s)")
    elif score:
        lines.append("no score: it needs a time for every case, which needs the official verdict to pass")
    if result.comparison and result.baseline:
        lines.append(f"compared: {change_text(result.comparison, result.baseline.name)}")
    return lines


def ended(result: Result) -> str:
    """How the run ended and how many cases pass."""
    passed = sum(case.status is Status.PASS for case in result.cases)
    text = f"{passed} of {result.cases_total} cases pass"
    if result.state in (State.INTERRUPTED, State.FAILED):
        return f"{result.state.value}; {text}, {len(result.cases)} were run"
    return text


def _verdict(ok: bool | None, status: Status) -> str:
    return status.value if ok is None else "pass" if ok else "FAIL"
