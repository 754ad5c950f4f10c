"""What the plain renderer writes, line by line."""

import io
from dataclasses import replace

import pytest

from harness.figures import percent, rate, us
from harness.observer import Progress
from harness.render_plain import PlainRenderer, case_row
from harness.result import CaseResult, Device, Floor, Official, Result, Score, State, Status, Strict, Submission, Timing
from popcorn.cases import parse_case

TIMING = Timing(2000.0, (1900.0, 2100.0), 2010.0, 5.0, 15.8, 1800.0, 2500.0, 2, (1800, 2500))
GOOD = CaseResult(
    {"size": 4, "seed": 1}, Status.PASS, official=Official(True), strict=Strict(True, format="fp8", rel_l2_worst=0.0021),
    timing=TIMING, min_bytes=8_000_000, floor=Floor(1000.0, 1500.0, 500.0), backend="triton",
)  # fmt: skip
BAD = CaseResult(
    {"size": 8}, Status.CRASHED, "the submission was killed by SIGSEGV", "  kernels/a.py:3, in f", printed="hello\n"
)
RESULT = Result(
    1, "toy", "benchmark", "robust", "official", (), "2026-01-01T00:00:00+00:00", "0.1.0", ("process",),
    Submission("s.py", "0", 1), Device("NVIDIA H200", "cuda", "sm_90", "580.1", "2.11"), State.COMPLETE, cases_total=2,
    warnings=("careful",),
)  # fmt: skip


def rendered(result: Result, out: io.StringIO) -> str:
    renderer = PlainRenderer(out)
    renderer.started(replace(result, cases=()))
    for index in range(len(result.cases)):
        renderer.progress(Progress(index, 2, parse_case("size: 4", "test"), "sampling", (1, 2), 3.0))
        renderer.case_done(replace(result, cases=result.cases[: index + 1]))
    renderer.finished(result)
    return out.getvalue()


def test_a_row():
    assert case_row(GOOD) == (
        "size 4", "pass", "pass", "fp8", "2.000 [1.900, 2.100]", "2.010 ± 0.005", "4000", "50%", "75%", "2.1e-03", "triton",
    )  # fmt: skip


def test_a_row_without_time():
    assert case_row(BAD) == ("size 8", "crashed", "crashed", *["-"] * 8)


def test_without_a_terminal():
    said = rendered(replace(RESULT, cases=(GOOD, BAD), score=Score("geom", "median")), io.StringIO())
    assert "\x1b" not in said
    assert "\r" not in said
    lines = said.splitlines()
    assert lines[0] == "toy  benchmark, policy robust, cases: official"
    assert lines[1] == "NVIDIA H200  sm_90, driver 580.1, torch 2.11"
    assert lines[2] == "note: careful"
    assert lines[-5:] == [
        "    crashed: the submission was killed by SIGSEGV",
        "      kernels/a.py:3, in f",
        "    printed: hello",
        "1 of 2 cases pass",
        "no score: it needs a time for every case, which needs the official verdict to pass",
    ]


@pytest.mark.parametrize("state", [State.INTERRUPTED, State.FAILED])
def test_score_of_a_run_that_ended_early(state):
    result = replace(RESULT, cases=(GOOD,), state=state, score=Score("geom", "mean", 12_345.0))
    said = rendered(result, io.StringIO()).splitlines()
    assert said[-2:] == [f"{state.value}; 1 of 2 cases pass, 1 were run", "score: 12.35 us (geom of the cases' means)"]


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0.0, "0.000"), (1234.5, "1.234"), (12345.0, "12.35"), (123456.0, "123.5"), (1234567.0, "1235"), (9999.9, "10.00"),
        (9500.0, "9.500"), (99_995.0, "100.0"),
    ],
)
def test_microseconds_with_four_digits(ns, text):
    assert us(ns) == text


@pytest.mark.parametrize(("nbytes", "text"), [(None, "-"), (25, "0.025"), (4_321, "4.3"), (10_000, "10"), (4_123_456, "4123")])
def test_rate(nbytes, text):
    assert rate(nbytes, 1000.0) == text


def test_percent():
    assert (percent(None, 5.0), percent(1.0, 4.0)) == ("-", "25%")
