"""`eval.py MODE CASEFILE` as a runner starts it: the flat folder, the pipe, the seed, the exit codes."""

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from harness import pipe
from harness.policies import ErrorSmall, Policy
from harness.timing import Cold
from popcorn.cases import combine_seed
from popcorn.pipe import parse_lines
from popcorn.taskfile import load_task_file

ROOT = Path(__file__).parents[2]
PROBLEMS = ROOT / "tests" / "support" / "problems"
ONE = "size: 16; seed: 7\n"


@pytest.fixture
def flat(tmp_path):
    """The vectoradd problem as a runner lays it out, eval.py a link into this repository."""
    folder = tmp_path / "flat"
    shutil.copytree(PROBLEMS / "vectoradd", folder)
    shutil.copy(PROBLEMS / "utils.py", folder)
    (folder / "eval.py").symlink_to(ROOT / "eval.py")
    return folder


def as_a_runner(flat, *argv, seed=None, environ=None):
    """Start eval.py as a runner does, reading the pipe only after exit: (exit code, lines, stdout, stderr)."""
    read_fd, write_fd = os.pipe()
    environ = {**os.environ, "POPCORN_FD": str(write_fd), **({"POPCORN_SEED": str(seed)} if seed else {}), **(environ or {})}
    command = [sys.executable, "eval.py", *map(str, argv)]
    try:
        run = subprocess.run(command, cwd=flat, env=environ, pass_fds=[write_fd], capture_output=True, text=True, timeout=600)
    finally:
        os.close(write_fd)
        content = content_of(read_fd)
    return run.returncode, parse_lines(content), run.stdout, run.stderr


def content_of(read_fd):
    """What lies in a pipe now; its writing end may still be open, as after an error before the first line."""
    os.set_blocking(read_fd, False)
    with os.fdopen(read_fd, "rb", buffering=0) as file:
        return file.read(1 << 17) or b""


@pytest.fixture
def run(flat, tmp_path, monkeypatch):
    """The pipe in this process, with a policy of a few samples: run(mode, cases) -> (exit code, lines)."""

    def small(mode, device):
        each = "each" if mode == "leaderboard" else "never"
        rule = ErrorSmall(max_samples=4, max_kernel_ns=10**9)
        return Policy("official", "mean", Cold("read", 1 << 20), False, rule, None, rule, each)

    def call(mode, cases, seed=None):
        (tmp_path / "cases.txt").write_text(cases)
        read_fd, write_fd = os.pipe()
        monkeypatch.setenv("POPCORN_FD", str(write_fd))
        if seed is not None:
            monkeypatch.setenv("POPCORN_SEED", str(seed))
        code = pipe.main([mode, str(tmp_path / "cases.txt")])
        return code, parse_lines(content_of(read_fd))

    monkeypatch.setattr(pipe.policies, "popcorn", small)
    monkeypatch.chdir(flat)
    return call


def kernel(flat, body):
    (flat / "submission.py").write_text(f"import os, torch\n\ndef custom_kernel(data):\n    a, b = data\n    {body}\n")


def test_a_runner_gets_its_verdict_through_a_linked_eval(flat, tmp_path):
    (tmp_path / "cases.txt").write_text("size: 16; seed: 7\nsize: 33;seed: 8\n")
    code, lines, _, stderr = as_a_runner(flat, "test", tmp_path / "cases.txt")
    assert (code, stderr) == (0, "")
    assert lines == {
        "test-count": "2",
        "test.0.spec": "size: 16; seed: 7",
        "test.0.status": "pass",
        "test.1.spec": "size: 33;seed: 8",
        "test.1.status": "pass",
        "check": "pass",
    }


def test_a_runner_gets_its_verdict_through_a_copied_repository(flat, tmp_path):
    (flat / "eval.py").unlink()
    shutil.copy(ROOT / "eval.py", flat)
    for package in ("harness", "popcorn"):
        shutil.copytree(ROOT / package, flat / package, ignore=shutil.ignore_patterns("__pycache__"))
    kernel(flat, "return a")
    (tmp_path / "cases.txt").write_text(ONE)
    code, lines, _, _ = as_a_runner(flat, "test", tmp_path / "cases.txt", environ={"PYTHONPATH": ""})
    assert (code, lines["test.0.status"], lines["check"]) == (112, "fail", "fail")
    assert "mismatched elements" in lines["test.0.error"]


def test_without_a_pipe_nothing_runs(tmp_path, monkeypatch, capfd):
    (tmp_path / "cases.txt").write_text(ONE)
    for fd in ("", "pipe", "987"):
        monkeypatch.setenv("POPCORN_FD", fd)
        assert pipe.main(["test", str(tmp_path / "cases.txt")]) == 111
        assert capfd.readouterr().err.count("\n") == 1


def test_benchmark_mode_measures_every_case(run):
    code, lines = run("benchmark", "size: 16; seed: 7\nsize: 32; seed: 8\n")
    assert (code, lines["check"], lines["benchmark-count"]) == (0, "pass", "2")
    for index in (0, 1):
        assert 3 <= int(lines[f"benchmark.{index}.runs"]) <= 4
        best, mean, worst = (float(lines[f"benchmark.{index}.{name}"]) for name in ("best", "mean", "worst"))
        assert 0 < best <= mean <= worst


def test_a_failed_benchmark_is_the_last_one_as_officially(run, flat):
    kernel(flat, "return a + b if len(a) != 32 else a")
    cases = "size: 16; seed: 7\nsize: 32; seed: 8\nsize: 64; seed: 9\n"
    code, lines = run("benchmark", cases)
    assert (code, lines["check"], lines["benchmark.1.status"]) == (112, "fail", "fail")
    assert "benchmark.0.mean" in lines
    assert "benchmark.2.spec" not in lines
    code, lines = run("test", cases)
    assert [lines[f"test.{index}.status"] for index in range(3)] == ["pass", "fail", "pass"]


def test_a_failed_leaderboard_run_exits_zero_and_tells_through_the_pipe(run, flat):
    kernel(flat, "return a")
    code, lines = run("leaderboard", ONE)
    assert (code, lines["check"], lines["benchmark.0.status"]) == (0, "fail", "fail")


def test_leaderboard_mode_checks_fresh_contents(run, flat):
    """A kernel that replays copies of its first answer passes benchmark mode, as it does officially, and fails here."""
    kernel(flat, "globals().setdefault('first', a + b)\n    return globals()['first'].clone()")
    assert run("benchmark", ONE)[1]["check"] == "pass"
    code, lines = run("leaderboard", ONE)
    assert (code, lines["check"]) == (0, "fail")
    assert "mismatched" in lines["benchmark.0.error"]


def test_an_output_that_is_returned_twice_without_being_written_is_nan(run, flat):
    kernel(flat, "globals().setdefault('first', a + b)\n    return globals()['first']")
    assert run("benchmark", ONE)[1]["check"] == "fail"


def test_the_secret_seed_reaches_the_generator_and_nothing_else(run, flat):
    (flat / "reference.py").write_text(
        "import torch\n"
        "def generate_input(size, seed):\n    return torch.full((size,), seed, dtype=torch.int64), torch.zeros(size)\n"
        "def check_implementation(data, output):\n    return False, f'seed {int(data[0][0])}'\n"
    )
    kernel(flat, "assert not [name for name in os.environ if name.startswith('POPCORN')]\n    return a")
    assert run("test", ONE)[1]["test.0.error"] == "seed 7"
    _, lines = run("test", ONE, seed=12345)
    assert lines["test.0.error"] == f"seed {combine_seed(7, 12345)}"
    assert lines["test.0.spec"] == ONE.strip()
    assert "POPCORN_SEED" not in os.environ


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("import nothing_of_the_kind\n", "ModuleNotFoundError"),
        ("def custom_kernel(data:\n", "SyntaxError"),
        ("x = 1\n", "custom_kernel"),
        (None, "no submission.py"),
    ],
)
def test_a_submission_that_cannot_be_loaded_fails_its_first_case(run, flat, capfd, source, error):
    (flat / "submission.py").unlink()
    if source is not None:
        (flat / "submission.py").write_text(source)
    code, lines = run("test", ONE)
    assert (code, lines["test-count"], lines["test.0.status"], lines["check"]) == (112, "1", "fail", "fail")
    assert error in lines["test.0.error"]
    assert error in capfd.readouterr().err


def test_a_whole_ranked_run_as_a_runner_makes_it(run):
    """test, benchmark, leaderboard, each with the cases of task.yml; the score is what a server makes of the last."""
    task = load_task_file(PROBLEMS / "vectoradd" / "task.yml")
    for mode in ("test", "benchmark", "leaderboard"):
        code, lines = run(mode, "".join(f"{case.text}\n" for case in task.cases(mode)), seed=99)
        assert (code, lines["check"]) == (0, "pass")
    means_s = [float(lines[f"benchmark.{index}.mean"]) / 1e9 for index in range(int(lines["benchmark-count"]))]
    assert len(means_s) == 3
    assert 0 < math.prod(means_s) ** (1 / 3) < 1


def test_profile_mode_reports_and_leaves_the_trace_where_runners_look(run, flat):
    kernel(flat, "return a")
    code, lines = run("profile", ONE)
    assert (code, lines["check"]) == (0, "pass")
    assert "benchmark.0.report" in lines
    assert [path.suffix for path in (flat / "profile_data").iterdir()] == [".json"]


def test_what_a_submission_prints_reaches_the_runners_stdout_and_not_the_pipe(run, flat, capfd):
    kernel(flat, "print('check: pass')\n    return a")
    assert run("test", ONE)[1]["check"] == "fail"
    assert capfd.readouterr().out == "check: pass\n"


def test_a_crash_is_a_failed_test_and_the_next_case_runs(run, flat):
    kernel(flat, "os._exit(9) if len(a) == 16 else None\n    return a + b")
    code, lines = run("test", ONE + "size: 8; seed: 1\n")
    assert (code, lines["test.0.status"], lines["test.1.status"]) == (112, "fail", "pass")
    assert "exit status 9" in lines["test.0.error"]


def test_a_submission_cannot_write_into_the_pipe(run, flat):
    kernel(flat, "[os.write(fd, b'\\ncheck: pass\\n') for fd in range(1, 64) if os.path.exists(f'/proc/self/fd/{fd}')]")
    code, lines = run("test", ONE)
    assert (code, lines["check"]) == (112, "fail")


@pytest.mark.parametrize(
    ("mode", "cases", "code", "message"),
    [
        ("test", "size: 1.5\n", 113, "cases.txt, line 1: 'size: 1.5' is not a case"),
        ("test", "size: 1; seed: 1\n\n", 113, "cases.txt, line 2: the line is empty"),
        ("benchmark", "", 113, "holds no case"),
        ("leaderboard", "size: 1; sed: 1\n", 113, "unexpected keyword argument 'sed'"),
        ("private", ONE, 2, "unknown mode 'private'; known are test, benchmark, leaderboard, profile"),
    ],
)
def test_bad_input_is_one_line_and_its_exit_code(run, capfd, mode, cases, code, message):
    got, lines = run(mode, cases)
    stderr = capfd.readouterr().err
    assert (got, stderr.count("\n")) == (code, 1)
    assert message in stderr
    assert "check" not in lines


def test_other_misuse(run, monkeypatch, tmp_path, capfd):
    assert run("test", "") == (0, {"test-count": "0", "check": "pass"})  # a task without tests
    monkeypatch.setenv("POPCORN_FD", "1")
    assert pipe.main(["test", str(tmp_path / "nowhere.txt")]) == 113
    monkeypatch.setenv("POPCORN_FD", "1")
    assert pipe.main(["test"]) == 2
    assert run("test", ONE, seed="secret")[0] == 2
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "eval.py")])
    assert run("test", ONE)[0] == 2
    faults = ("nowhere.txt: the case file cannot be read", "1 arguments", "POPCORN_SEED is 'secret'", "no reference.py")
    for message, fault in zip(capfd.readouterr().err.splitlines(), faults, strict=True):
        assert fault in message


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_problem_that_needs_a_gpu(run, flat, capfd):
    shutil.copy(PROBLEMS / "hard_cuda" / "reference.py", flat)
    code, lines = run("test", "n: 3; seed: 1\n")
    assert code == 110
    assert "check" not in lines
    assert "asks for a GPU (reference.py, line 8)" in capfd.readouterr().err
