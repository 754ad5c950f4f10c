"""CSV: a line per case, every figure unrounded, under a header. docs/reading-results.md lists the columns.

The samples are the last column, separated by blanks, not a second file: one file is replaced whole, two are not.
"""

import csv
import io
from typing import Any

from harness.report.words import case_text, reasons
from harness.result import CaseResult, Comparison, Result
from harness.text import printable

RUN_COLUMNS = ("problem", "submission", "sha256", "device", "policy", "mode", "started_at", "harness_version")
TIMING_COLUMNS = ("median_ns", "ci95_low_ns", "ci95_high_ns", "mean_ns", "err_ns", "std_ns", "best_ns", "worst_ns", "runs")
FLOOR_COLUMNS = ("roofline_ns", "measured_ns", "refusal_ns")
COMPARISON_COLUMNS = ("ratio", "ratio_low", "ratio_high", "change", "baseline_median_ns")
STRICT_COLUMNS = ("strict_ok", "format", "rel_l2_worst", "cosine_worst", "max_abs", "nan_count")
FORMULA = ("=", "+", "-", "@", "\t", "\n")  # what a spreadsheet would take for one


def render_csv(result: Result) -> str:
    """The table as text, in RFC 4180's form with lines that end in LF."""
    rows = [{**_run(result), **_case(index, case)} for index, case in enumerate(result.cases)]
    keys = list(dict.fromkeys(key for case in result.cases for key in case.spec))
    out = io.StringIO()
    writer = csv.DictWriter(out, _header(keys), lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows({name: _safe(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def _header(keys: list[str]) -> list[str]:
    return [
        *RUN_COLUMNS, "case", "spec", *(f"spec.{key}" for key in keys), "status", "official_ok", *STRICT_COLUMNS,
        *TIMING_COLUMNS, "min_bytes", *FLOOR_COLUMNS, *COMPARISON_COLUMNS, "compile_ns", "backend", "message", "warnings",
        "samples_ns",
    ]  # fmt: skip


def _run(result: Result) -> dict[str, Any]:
    values = (
        result.problem, result.submission.name, result.submission.sha256, result.device.name, result.policy, result.mode,
        result.started_at, result.harness_version,
    )  # fmt: skip
    return dict(zip(RUN_COLUMNS, values, strict=True))


def _case(index: int, case: CaseResult) -> dict[str, Any]:
    return {
        "case": index + 1,
        "spec": case_text(case),
        **{f"spec.{key}": value for key, value in case.spec.items()},
        "status": case.status.value,
        "official_ok": case.official.ok if case.official else None,
        **_strict(case),
        **_timing(case),
        "min_bytes": case.min_bytes,
        **{name: getattr(case.floor, name, None) for name in FLOOR_COLUMNS},
        **_comparison(case.comparison),
        "compile_ns": case.compile_ns,
        "backend": case.backend,
        "message": "; ".join(reasons(case)),
        "warnings": "; ".join(case.warnings),
    }


def _strict(case: CaseResult) -> dict[str, Any]:
    return {name: getattr(case.strict, name.removeprefix("strict_"), None) for name in STRICT_COLUMNS}


def _timing(case: CaseResult) -> dict[str, Any]:
    timing = case.timing
    if timing is None:
        return {}
    low_ns, high_ns = timing.ci95_ns
    own = {name: getattr(timing, name) for name in TIMING_COLUMNS if hasattr(timing, name)}
    return {**own, "ci95_low_ns": low_ns, "ci95_high_ns": high_ns, "samples_ns": " ".join(map(str, timing.samples_ns))}


def _comparison(comparison: Comparison | None) -> dict[str, Any]:
    if comparison is None:
        return {}
    median_ns = comparison.baseline.median_ns if comparison.baseline else None
    values = (comparison.ratio, *comparison.ci95, comparison.change.value, median_ns)
    return dict(zip(COMPARISON_COLUMNS, values, strict=True))


def _safe(value: Any) -> Any:
    """Text without control characters, an apostrophe before what a spreadsheet would run; numbers stay as they are."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(FORMULA) else text
