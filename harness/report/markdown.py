"""A compact Markdown table for pull requests (GitHub's dialect)."""

import re
from collections.abc import Sequence

from harness.report.columns import Column, columns_of
from harness.report.words import NOTHING, case_labels, compared, headline, microseconds, reasons, score_meaning, started
from harness.result import CaseResult, Result, Status
from harness.text import printable

FLOORS = (("roofline µs", "roofline_ns"), ("measured floor µs", "measured_ns"), ("refusal floor µs", "refusal_ns"))
LEFT_OUT = ("% of roofline", "% of measured floor", "strict error", "why")  # too wide for a pull request
DIGEST_DIGITS = 12
BAR = "\\|"  # a bar inside a cell, in a code span too


def render_markdown(result: Result) -> str:
    """Score, where it comes from, a row per case, reasons of failures, warnings."""
    blocks = [_title(result), _origin(result), _table(result.cases), _failures(result.cases), _warnings(result)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def code(text: str) -> str:
    """Text as a code span, inside which nothing is a link, a mention or a tag."""
    one_line = " ".join(printable(text).split())
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", one_line)), default=0))
    return f"{fence} {one_line} {fence}" if "`" in one_line else f"{fence}{one_line or ' '}{fence}"


def _title(result: Result) -> str:
    score = result.score
    timed = score is not None and score.value_ns is not None
    value = f"{microseconds(score.value_ns)} µs" if timed else "no score"  # pyright: ignore
    meaning = f" Score: {score_meaning(result)}." if timed else ""
    ended = code(headline(result)) if result.error else headline(result)
    against = f"\n\n{code(compared(result))}" if result.comparison else ""
    return f"### {code(result.problem)}: {value}\n\n**{ended}.**{meaning}{against}"


def _origin(result: Result) -> str:
    submission = result.submission
    said = (
        f"{code(submission.name)} {code(submission.sha256[:DIGEST_DIGITS])}", code(result.device.name),
        f"{result.policy} policy, {result.mode} mode, {code(result.cases_from)} cases", started(result),
        f"Kernelproof {code(result.harness_version)}",
    )  # fmt: skip
    return " · ".join(said)


def _table(cases: Sequence[CaseResult]) -> str:
    if not cases:
        return ""
    columns = [column for column in columns_of(cases) if column.name not in LEFT_OUT]
    floors = [(name, key) for name, key in FLOORS if any(getattr(case.floor, key, None) for case in cases)]
    names = ["case", *(column.name for column in columns), *(name for name, _ in floors)]
    aligned = ["---", *("---:" if column.numeric else "---" for column in columns), *("---:" for _ in floors)]
    rows = [names, aligned]
    for case, label in zip(cases, case_labels(cases), strict=True):
        cells = [_cell(column, case) for column in columns]
        rows.append([code(label), *cells, *(_floor(case, key) for _, key in floors)])
    return "\n".join(f"| {' | '.join(cell.replace('|', BAR) for cell in row)} |" for row in rows)


def _cell(column: Column, case: CaseResult) -> str:
    text = column.cell(case)
    if column.name in ("reads", "backend") and text != NOTHING:
        return code(text)
    return f"**{text}**" if column.name in ("status", "official", "strict") and text not in ("pass", NOTHING) else text


def _floor(case: CaseResult, key: str) -> str:
    value_ns = getattr(case.floor, key, None)
    return NOTHING if value_ns is None else microseconds(value_ns)


def _failures(cases: Sequence[CaseResult]) -> str:
    lines = []
    for case, label in zip(cases, case_labels(cases), strict=True):
        if case.status is not Status.PASS:
            lines += [f"- {code(label)} {case.status.value}: {code(text)}" for text in reasons(case)]
    return "\n".join(["Failures:", *lines]) if lines else ""


def _warnings(result: Result) -> str:
    lines = [f"- {code(warning)}" for warning in result.warnings]
    for case, label in zip(result.cases, case_labels(result.cases), strict=True):
        lines += [f"- {code(label)}: {code(warning)}" for warning in case.warnings]
    return "\n".join(["Warnings:", *lines]) if lines else ""
