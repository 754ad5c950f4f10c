"""The terminal, without colour: one row per case as it is finished, warnings and score below."""

import sys
import time
from typing import TextIO

from harness.observer import Progress
from harness.result import CaseResult, Result, State, Status

COLUMNS = (
    ("case", 50), ("official", 8), ("strict", 8), ("reads", 6), ("median [95 %] us", 26), ("mean ± err us", 20), ("GB/s", 7),
    ("roofline", 8), ("cold read", 9), ("backend", 8),
)  # fmt: skip
TICK_S = 0.2
PROFILE_ROWS, DETAIL_LINES, PRINTED_LINES, PRINTED_WIDTH = 12, 40, 10, 200


class PlainRenderer:
    """Writes to `out`; on a terminal a progress line is rewritten in place, elsewhere each case announces itself once."""

    def __init__(self, out: TextIO | None = None):
        self._out = out or sys.stdout
        self._live = self._out.isatty()
        self._last_tick_s, self._announced = 0.0, -1

    def started(self, result: Result) -> None:
        device = result.device
        self._print(f"{result.problem}  {result.mode}, policy {result.policy}, cases: {result.cases_from}")
        self._print(f"{device.name}  {device.arch}, driver {device.driver}, torch {device.torch}")
        for warning in result.warnings:
            self._print(f"note: {warning}")
        self._print("  ".join(name.ljust(width) for name, width in COLUMNS).rstrip())

    def progress(self, progress: Progress) -> None:
        line = f"{progress.index + 1}/{progress.total}  {progress.case.text}  {progress.phase}"
        if self._live and time.monotonic() - self._last_tick_s > TICK_S:
            self._last_tick_s = time.monotonic()
            count = f", {len(progress.samples_ns)} samples" if progress.samples_ns else ""
            left = f", at most {progress.left_s:.0f} s left for this case" if progress.left_s is not None else ""
            self._out.write(f"\r\x1b[K{line}{count}{left}"[:160])
            self._out.flush()

    def case_done(self, result: Result) -> None:
        case = result.cases[-1]
        self._print("  ".join(text.ljust(width) for text, (_, width) in zip(case_row(case), COLUMNS, strict=True)).rstrip())
        for line in [*case_notes(case), *profile_lines(case)]:
            self._print(f"    {line}")

    def finished(self, result: Result) -> None:
        for line in summary_lines(result):
            self._print(line)

    def _print(self, line: str) -> None:
        clear = "\r\x1b[K" if self._live else ""
        self._out.write(f"{clear}{line}\n")
        self._out.flush()


def case_row(case: CaseResult) -> tuple[str, ...]:
    """One case's cells, in the order of COLUMNS."""
    spec = "  ".join(f"{key} {value}" for key, value in case.spec.items())
    official = _verdict(case.official.ok if case.official else None, case.status)
    strict = _verdict(case.strict.ok if case.strict else None, case.status) if case.strict or not case.official else "-"
    reads = (case.strict.format if case.strict else None) or "-"
    if case.timing is None:
        return spec, official, strict, reads, "-", "-", "-", "-", "-", case.backend or "-"
    timing, floor = case.timing, case.floor
    low, high = timing.ci95_ns
    return (
        spec, official, strict, reads,
        f"{us(timing.median_ns)} [{us(low)}, {us(high)}]",
        f"{us(timing.mean_ns)} ± {us(timing.err_ns)}",
        rate(case.min_bytes, timing.median_ns),
        percent(floor.roofline_ns if floor else None, timing.median_ns),
        percent(floor.measured_ns if floor else None, timing.median_ns),
        case.backend or "-",
    )  # fmt: skip


def case_notes(case: CaseResult) -> list[str]:
    """What a row cannot say: the reason of a failure, the author's traceback, what was printed, warnings."""
    messages = [verdict.message for verdict in (case.official, case.strict) if verdict and not verdict.ok]
    notes = [f"{case.status.value}: {message}" for message in dict.fromkeys([case.message, *messages]) if message]
    printed = [f"printed: {line[:PRINTED_WIDTH]}" for line in case.printed.splitlines()[-PRINTED_LINES:]]
    return [*notes, *case.detail.splitlines()[-DETAIL_LINES:], *printed, *(f"warning: {warning}" for warning in case.warnings)]


def profile_lines(case: CaseResult) -> list[str]:
    """The operators that cost most, per call, and where the trace lies."""
    if case.profile is None:
        return []
    total_ns = sum(row.device_ns for row in case.profile.rows) or sum(row.host_ns for row in case.profile.rows) or 1
    on_device = any(row.device_ns for row in case.profile.rows)
    lines = [f"{'device us' if on_device else 'host us':>10}  {'share':>5}  operator"]
    for row in case.profile.rows[:PROFILE_ROWS]:
        own_ns = row.device_ns if on_device else row.host_ns
        lines.append(f"{us(own_ns):>10}  {own_ns / total_ns:>5.0%}  {row.name[:100]}")
    return [*lines, f"trace: {case.profile.trace}"]


def summary_lines(result: Result) -> list[str]:
    """The last lines: how it ended, the score."""
    passed = sum(case.status is Status.PASS for case in result.cases)
    lines = [f"{passed} of {result.cases_total} cases pass"]
    if result.state in (State.INTERRUPTED, State.FAILED):
        lines[0] = f"{result.state.value}; {lines[0]}, {len(result.cases)} were run"
    score = result.score
    if score and score.value_ns is not None:
        lines.append(f"score: {us(score.value_ns)} us ({score.ranking_by} of the cases' {score.statistic}s)")
    elif score:
        lines.append("no score: it needs a time for every case, which needs the official verdict to pass")
    return lines


def us(ns: float) -> str:
    """Nanoseconds as microseconds with four significant digits."""
    value = ns / 1e3
    decimals = 3 - len(f"{value:.0f}") + 1
    return f"{value:.{max(decimals, 0)}f}"


def percent(floor_ns: float | None, time_ns: float) -> str:
    """A floor as a share of a time: 100 % is as fast as the floor."""
    return "-" if floor_ns is None else f"{floor_ns / time_ns:.0%}"


def rate(nbytes: int | None, time_ns: float) -> str:
    """Bytes in a time as GB/s; two digits below 10."""
    return "-" if nbytes is None else f"{nbytes / time_ns:.2g}" if nbytes < 10 * time_ns else f"{nbytes / time_ns:.0f}"


def _verdict(ok: bool | None, status: Status) -> str:
    return status.value if ok is None else "pass" if ok else "FAIL"
