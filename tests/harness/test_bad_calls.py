"""What a submission can do wrong when it is called: each a status with one clear line, and the run goes on."""

from pathlib import Path

import pytest

from harness.cli import main
from harness.result import CaseResult, Status, read_result

FOLDER = Path(__file__).parent / "doubling"
HANGING = ("hangs", "hangs_in_child")
HANG_S = 9

# act -> status, a part of what is said
EXPECTED = {
    "raises": (Status.ERROR, "RuntimeError: kernel exploded"),
    "exits": (Status.ERROR, "called sys.exit(0)"),
    "hard_exit": (Status.CRASHED, "ended the process with exit status 0"),
    "segfault": (Status.CRASHED, "SIGSEGV"),
    "killed": (Status.CRASHED, "SIGKILL"),
    "hangs": (Status.TIMEOUT, f"no answer within {HANG_S} s; --timeout-s"),
    "hangs_in_child": (Status.TIMEOUT, f"no answer within {HANG_S} s"),
    "nan": (Status.WRONG, "values differ"),
    "rough": (Status.WRONG, "relative L2"),
    "wrong": (Status.WRONG, "values differ"),
    "shape": (Status.WRONG, "[7]"),
    "dtype": (Status.WRONG, "torch.float64"),
    "none": (Status.WRONG, "output is a NoneType"),
    "numpy": (Status.WRONG, "numpy.ndarray"),
    "cycle": (Status.WRONG, "contains itself"),
    "lazy": (Status.WRONG, "Lazy"),
    "oom": (Status.OOM, "memory"),
    "memory_error": (Status.OOM, "MemoryError"),
    "device_fault": (Status.DEVICE_ERROR, "illegal memory access"),
    "chatters": (Status.PASS, ""),
    "view": (Status.PASS, ""),
    "forges_verdict": (Status.CRASHED, "an output that is not described"),
    "forges_bytes": (Status.CRASHED, "sent a frame of"),
    "truncates": (Status.CRASHED, "exit status 0"),
    "oversizes": (Status.CRASHED, "4294967295 bytes"),
    "nests": (Status.CRASHED, "not JSON"),
    "honest": (Status.PASS, ""),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, CaseResult]:
    """One run over every act, so that each also shows that the run survives the ones before it; another with those that
    hang and little time, which only they shall need.
    """
    folder = tmp_path_factory.mktemp("acts")
    code, cases = run_acts(folder, [act for act in EXPECTED if act not in HANGING], 300)
    assert code == 110  # a device error comes before everything else
    code, more = run_acts(folder, [*HANGING, "honest"], HANG_S)
    assert (code, more.pop("honest").status) == (114, Status.PASS)
    return cases | more


def run_acts(folder: Path, acts: list[str], timeout_s: int) -> tuple[int, dict[str, CaseResult]]:
    cases, json = folder / "cases.txt", folder / f"{timeout_s}.json"
    cases.write_text("\n".join(f"size: 8; seed: {seed}; act: {act}" for seed, act in enumerate(acts)))
    options = ["--mode", "test", "--problem", str(FOLDER), "--device", "cpu", "--timeout-s", str(timeout_s)]
    code = main([*options, "--cases", str(cases), "--json", str(json)])
    return code, {str(case.spec["act"]): case for case in read_result(json).cases}


@pytest.mark.parametrize("act", EXPECTED)
def test_status_and_message(found, act):
    status, text = EXPECTED[act]
    case = found[act]
    said = [case.message, *(verdict.message for verdict in (case.official, case.strict) if verdict)]
    assert case.status is status
    assert any(text in message for message in said), said
    assert all("\n" not in message for message in said)


def test_traceback_holds_the_authors_lines_only(found):
    assert "submission.py:17, in deep" in found["raises"].detail
    assert "harness" not in found["raises"].detail


def test_what_was_printed_is_kept_up_to_a_limit(found):
    assert found["chatters"].printed == ("x" * 10_000 + "\n" + "x" * 10_000 + "\n")[-(16 << 10) :]
    assert found["honest"].printed == ""


def test_official_and_strict_disagree(found):
    case = found["rough"]
    assert (case.official.ok, case.strict.ok) == (True, False)
    assert any("the official check accepts this output, the strict one does not" in warning for warning in case.warnings)


def test_strict_details_are_kept(found):
    assert found["honest"].strict.details == {"first_bad": [0]}
    assert (found["honest"].backend, found["honest"].params) == ("torch", {"act": "honest"})


def run(*options: str) -> int:
    return main(["--problem", str(FOLDER), "--device", "cpu", "--timeout-s", "300", *options])


@pytest.mark.parametrize(("act", "code"), [("honest", 0), ("wrong", 112), ("raises", 112)])
def test_exit_code_of_one_status(act, code):
    assert run("--mode", "test", "--cases", f"size: 8; seed: 1; act: {act}") == code


def test_timeout_has_its_own_exit_code():
    assert run("--mode", "test", "--timeout-s", str(HANG_S), "--cases", "size: 8; seed: 1; act: hangs") == 114


def test_inputs_are_the_referees_own(tmp_path):
    """A kernel that writes into its inputs is judged on what it was given, and given new contents for every call."""
    json = tmp_path / "result.json"
    run("--mode", "benchmark", "--budget-s", "0.2", "--cases", "size: 8; seed: 1; act: scribbles", "--json", str(json))
    (case,) = read_result(json).cases
    assert case.status is Status.PASS  # on the same contents later outputs would be 4x, 8x, ... of what the referee holds


def test_time_below_the_floor_is_refused(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("harness.floors.roofline_ns", lambda nbytes, device: 1e15)
    json = tmp_path / "result.json"
    assert run("--mode", "benchmark", "--budget-s", "0.2", "--cases", "size: 8; seed: 1; act: honest", "--json", str(json)) == 5
    result = read_result(json)
    assert result.cases[0].status is Status.REFUSED
    assert result.score.value_ns is None
    assert "refused: " in capsys.readouterr().out


def test_leaderboard_mode_renews_contents(tmp_path):
    json = tmp_path / "result.json"
    assert (
        run("--mode", "leaderboard", "--budget-s", "0.3", "--cases", "size: 8; seed: 1; act: honest", "--json", str(json)) == 0
    )
    assert read_result(json).cases[0].timing.runs >= 2
