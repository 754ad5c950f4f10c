"""The tables of the page, and what their columns mean."""

from collections.abc import Sequence

from harness.report.columns import Column, columns_of
from harness.report.markup import Html, join, tag
from harness.report.page_parts import chip, column_head, definitions, section, table
from harness.report.words import NOTHING, case_labels
from harness.result import CaseResult, Timing

TERMS = (
    (
        "policy",
        "Robust: sampled until the median's interval is narrow, scored by the median. Official: the public evaluator's "
        "stopping rule, scored by the mean.",
    ),
    (
        "refused",
        "The output is right, but the time is below the refusal floor: the bytes of the cheapest format at the datasheet's "
        "bandwidth. No cold measurement of the whole work can be that short.",
    ),
    (
        "floors",
        "Roofline: the bytes at the datasheet's bandwidth. Measured floor: a plain cold read of the bytes on this device, "
        "timed in the same way. They answer different questions and are never mixed.",
    ),
)
TIMING_KEYS = ("median_ns", "ci95 low", "ci95 high", "mean_ns", "err_ns", "std_ns", "best_ns", "worst_ns", "runs")
FLOOR_KEYS = ("roofline_ns", "measured_ns", "refusal_ns")
OTHER_KEYS = ("min_bytes", "compile_ns")


def cases_table(cases: Sequence[CaseResult]) -> Html:
    """A row per case, the columns that have something to say."""
    columns = columns_of(cases)
    heads = [column_head("case"), *(column_head(column.name, column.numeric, column.meaning) for column in columns)]
    links = [tag("a", label, href=f"#case-{index + 1}") for index, label in enumerate(case_labels(cases))]
    rows = [
        tag("tr", tag("th", link, scope="row"), [_cell(column, case) for column in columns])
        for case, link in zip(cases, links, strict=True)
    ]
    return table("Results, case by case", heads, rows)


def raw_section(cases: Sequence[CaseResult]) -> Html:
    """Every figure as it stands in the Result, and the samples."""
    labels = case_labels(cases)
    heads = [column_head("case"), *(column_head(key, numeric=True) for key in (*TIMING_KEYS, *FLOOR_KEYS, *OTHER_KEYS))]
    rows = [tag("tr", tag("th", label, scope="row"), _raw(case)) for case, label in zip(cases, labels, strict=True)]
    samples = [_samples(case.timing, label) for case, label in zip(cases, labels, strict=True) if case.timing]
    return section("raw", "Raw numbers", table("Nanoseconds and bytes", heads, rows), samples)


def glossary_section(cases: Sequence[CaseResult]) -> Html:
    """What the columns and the words mean."""
    terms = [*((column.name, column.meaning) for column in columns_of(cases)), *TERMS]
    return section("glossary", "How to read this page", definitions(terms, "glossary"))


def _cell(column: Column, case: CaseResult) -> Html:
    text = column.cell(case)
    if column.name in ("status", "official", "strict") and text != NOTHING:
        return tag("td", chip(text == "pass", text.replace("_", " ")))
    return tag("td", text, class_="number" if column.numeric else "text" if column.name == "why" else None)


def _raw(case: CaseResult) -> Html:
    timing, floor = case.timing, case.floor
    times = [None] * len(TIMING_KEYS) if timing is None else [timing.median_ns, *timing.ci95_ns, *_moments(timing), timing.runs]
    floors = [getattr(floor, key, None) for key in FLOOR_KEYS]
    return join(tag("td", _exact(value), class_="number") for value in (*times, *floors, case.min_bytes, case.compile_ns))


def _moments(timing: Timing) -> list[float]:
    return [timing.mean_ns, timing.err_ns, timing.std_ns, timing.best_ns, timing.worst_ns]


def _exact(value: float | None) -> str:
    """Nanoseconds to the hundredth, integers whole."""
    if value is None:
        return NOTHING
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _samples(timing: Timing, label: str) -> Html:
    listed = tag("pre", " ".join(map(str, timing.samples_ns)), class_="wrap")
    return tag("details", tag("summary", f"{label}: {timing.runs} samples in ns, in order"), listed)
