"""CSV: a line per case, nothing rounded, nothing that a spreadsheet would run."""

import csv
import io
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_results import H200, STATES, hostile
from snapshots import check_snapshot

from harness.report.csv_rows import render_csv
from harness.result import Result
from harness.text import printable


def rows(result: Result) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render_csv(result), newline="")))


@pytest.mark.parametrize("name", ["h200", "every status", "compared", "started"])
def test_snapshot(name):
    check_snapshot(f"report-{name.replace(' ', '-')}.csv", render_csv(STATES[name]))


def test_every_figure_comes_back_exactly():
    for case, row in zip(H200.cases, rows(H200), strict=True):
        assert case.timing
        assert case.floor
        assert [int(sample) for sample in row["samples_ns"].split(" ")] == list(case.timing.samples_ns)
        assert (float(row["ci95_low_ns"]), float(row["ci95_high_ns"])) == case.timing.ci95_ns
        for name in ("median_ns", "mean_ns", "err_ns", "std_ns", "best_ns", "worst_ns", "runs"):
            assert float(row[name]) == getattr(case.timing, name)
        for name in ("roofline_ns", "measured_ns", "refusal_ns"):
            assert float(row[name]) == getattr(case.floor, name)
        assert {f"spec.{key}": str(value) for key, value in case.spec.items()}.items() <= row.items()


@pytest.mark.parametrize("result", [*STATES.values(), hostile()])
def test_a_line_per_case_and_a_cell_per_column(result):
    found = rows(result)
    assert len(found) == len(result.cases)
    assert all(None not in row and None not in row.values() for row in found)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1"])
def test_formulas_are_disarmed(text):
    result = STATES["every status"]
    changed = replace(result, cases=(replace(result.cases[0], backend=text),))
    assert rows(changed)[0]["backend"] == f"'{printable(text)}"


@settings(deadline=None)
@given(st.text())
def test_text_comes_back_whole(text):
    result = STATES["every status"]
    found = rows(replace(result, cases=(replace(result.cases[0], backend=text),)))
    assert len(found) == 1
    assert found[0]["backend"].removeprefix("'") == printable(text).removeprefix("'")
