"""The pipe as a view of a Result: the official lines, byte for byte, and the official verdict alone."""

import base64
import os

import pytest

from harness import pipe
from harness.errors import Exit
from harness.pipe import PipeView, error_text, officially_passed, verdict_of
from harness.result import CaseResult, Device, Floor, Official, Profile, ProfileRow, Result, State, Status, Strict, Submission
from harness.stats import summarize
from popcorn.cases import CaseError, parse_cases
from popcorn.pipe import CAPACITY_BYTES, PipeWriter, parse_lines

CASES = tuple(parse_cases("n: 1; seed: 2\nn:  3;seed: 4\n", "cases.txt"))
PASS = CaseResult({}, Status.PASS, official=Official(True))
TIMED = CaseResult({}, Status.PASS, official=Official(True, "fine"), timing=summarize([100, 110, 120]))
WRONG = CaseResult({}, Status.WRONG, official=Official(False, "mismatch: 3\nelements"))
RAISED = CaseResult({}, Status.ERROR, message="RuntimeError: boom", detail="  submission.py:3, in custom_kernel")
HUNG = CaseResult({}, Status.TIMEOUT, message="no answer within 300 s")
FAULTED = CaseResult({}, Status.DEVICE_ERROR, message="CUDA error: an illegal memory access")
PROFILE = Profile(3, "profile_data/p-case1.json", (ProfileRow("aten::add", 3, 0, 1500),))
PROFILED = CaseResult({}, Status.WRONG, official=Official(False, "mismatch"), profile=PROFILE)
STRICTLY_WRONG = CaseResult({}, Status.WRONG, official=Official(True), strict=Strict(False, "all zeros"))
REFUSED = CaseResult(
    {}, Status.REFUSED, message="too fast", official=Official(True), timing=summarize([1, 1]), floor=Floor(refusal_ns=9.0)
)


def result(*cases, mode="benchmark", state=State.COMPLETE):
    return Result(
        schema_version=1,
        problem="p",
        mode=mode,
        policy="official",
        cases_from="case file",
        command=(),
        started_at="",
        harness_version="",
        containment=(),
        submission=Submission("submission.py", "0", 0),
        device=Device("cpu", "cpu", "x86_64"),
        state=state,
        cases_total=len(CASES),
        cases=cases,
    )


def lines(mode, *cases):
    """What the pipe holds after these cases, without the last line, which main writes."""
    read_fd, write_fd = os.pipe()
    writer = PipeWriter(write_fd, pipe._reserve(mode, CASES), texts=len(CASES))
    view = PipeView(writer, mode, CASES)
    view.started(result(mode=mode))
    for count in range(1, len(cases) + 1):
        view.case_done(result(*cases[:count], mode=mode))
    writer.close()
    with os.fdopen(read_fd, "rb") as file:
        return file.read().decode()


def test_test_mode():
    assert lines("test", PASS, WRONG) == (
        "test-count: 2\n"
        "test.0.spec: n: 1; seed: 2\n"
        "test.0.status: pass\n"
        "test.1.spec: n:  3;seed: 4\n"
        "test.1.status: fail\n"
        "test.1.error: mismatch: 3\\nelements\n"
    )


def test_a_message_of_a_passed_test_is_passed_on():
    case = CaseResult({}, Status.PASS, official=Official(True, "Maximum error: 0.1"))
    assert "test.0.status: pass\ntest.0.message: Maximum error: 0.1\n" in lines("test", case)


@pytest.mark.parametrize("mode", ["benchmark", "leaderboard"])
def test_benchmarks_have_the_official_figures_in_nanoseconds(mode):
    assert lines(mode, TIMED, RAISED) == (
        "benchmark-count: 2\n"
        "benchmark.0.spec: n: 1; seed: 2\n"
        "benchmark.0.runs: 3\n"
        "benchmark.0.mean: 110.0\n"
        "benchmark.0.std: 10.0\n"
        "benchmark.0.err: 5.773502691896258\n"
        "benchmark.0.best: 100.0\n"
        "benchmark.0.worst: 120.0\n"
        "benchmark.1.spec: n:  3;seed: 4\n"
        "benchmark.1.status: fail\n"
        "benchmark.1.error: RuntimeError: boom\\n  submission.py:3, in custom_kernel\n"
    )


def test_the_strict_verdict_and_the_floors_do_not_count():
    assert "test.0.status: pass\n" in lines("test", STRICTLY_WRONG)
    assert "benchmark.0.mean: 1.0\n" in lines("benchmark", REFUSED)
    assert verdict_of("test", result(STRICTLY_WRONG, REFUSED)) == (True, Exit.OK)


@pytest.mark.parametrize(
    ("cases", "passed", "code", "leaderboard_code"),
    [
        ((TIMED, TIMED), True, Exit.OK, Exit.OK),
        ((TIMED, WRONG), False, Exit.VERDICT_FAILED, Exit.OK),
        ((RAISED,), False, Exit.VERDICT_FAILED, Exit.OK),
        ((TIMED,), False, Exit.VERDICT_FAILED, Exit.OK),
        ((TIMED, HUNG), False, Exit.TIMEOUT, Exit.TIMEOUT),
        ((TIMED, FAULTED), False, Exit.DEVICE_ERROR, Exit.DEVICE_ERROR),
        ((HUNG, FAULTED), False, Exit.DEVICE_ERROR, Exit.DEVICE_ERROR),
    ],
)
def test_verdicts_and_exit_codes(cases, passed, code, leaderboard_code):
    for mode in ("test", "benchmark"):
        assert verdict_of(mode, result(*cases, mode=mode)) == (passed, code)
    assert verdict_of("leaderboard", result(*cases, mode="leaderboard")) == (passed, leaderboard_code)


def test_a_profile_is_reported_whatever_the_output_was_worth():
    key, report = lines("profile", PROFILED, RAISED).splitlines()[2].split(": ")
    assert key == "benchmark.0.report"
    assert "aten::add" in base64.b64decode(report, b"+*").decode()
    assert verdict_of("profile", result(PROFILED, PROFILED, mode="profile")) == (True, Exit.OK)
    assert verdict_of("profile", result(PROFILED, RAISED, mode="profile")) == (False, Exit.VERDICT_FAILED)


def test_an_interrupted_run_never_passes():
    assert verdict_of("test", result(PASS, PASS, state=State.INTERRUPTED)) == (False, Exit.INTERRUPTED)


@pytest.mark.parametrize("case", [WRONG, RAISED, HUNG, FAULTED])
def test_every_failure_has_a_text(case):
    assert not officially_passed(case)
    assert error_text(case)


def test_a_case_list_that_an_unread_pipe_cannot_hold_is_refused_beforehand():
    many = parse_cases("n: 1; seed: 2\n" * 2000, "cases.txt")
    for mode in ("test", "benchmark"):
        with pytest.raises(CaseError, match=f"2000 cases need .* holds {CAPACITY_BYTES}; split"):
            pipe._reserve(mode, many)


def test_errors_of_any_length_leave_room_for_the_verdict():
    loud = CaseResult({}, Status.ERROR, message="x" * 10**6, detail="y\n" * 10**6)
    parsed = parse_lines(lines("test", loud, loud).encode())
    assert parsed["test.1.status"] == "fail"
    assert sum(len(key) + len(value) + 3 for key, value in parsed.items()) + len("check: fail\n") <= CAPACITY_BYTES
