"""Ctrl-C keeps what was measured, and leaves no process behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.result import State, Status, read_result

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "doubling"
MANY = 50  # cases: more than a slow test can overlook


def start(json: Path, *options: str) -> subprocess.Popen:
    command = [
        sys.executable,
        str(ROOT / "eval.py"),
        "--problem",
        str(FOLDER),
        "--device",
        "cpu",
        "--json",
        str(json),
        *options,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for(condition, timeout_s: float = 600.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ended(pid: int) -> bool:
    """Whether a process runs no more; a container's process 1 may never collect those that it has inherited."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def interrupted(json: Path, *options: str) -> tuple[int, str, list[int]]:
    """Interrupt a run once its first case has been recorded and the second one is under way."""
    process = start(json, *options)
    wait_for(lambda: json.is_file() and len(read_result(json).cases) >= 1)
    workers = children(process.pid)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=600)
    return process.returncode, output, workers


@pytest.fixture
def cases(tmp_path) -> Path:
    path = tmp_path / "cases.txt"
    path.write_text("".join(f"size: 8; seed: {seed}; act: honest\n" for seed in range(MANY)))
    return path


def test_while_sampling(tmp_path, cases):
    json = tmp_path / "result.json"
    code, output, workers = interrupted(json, "--mode", "benchmark", "--budget-s", "4", "--cases", str(cases))
    result = read_result(json)
    assert code == 130
    assert result.state is State.INTERRUPTED
    assert 1 <= len(result.cases) < MANY
    assert all(case.status is Status.PASS and case.timing for case in result.cases)
    assert "interrupted; " in output
    assert "Traceback" not in output
    wait_for(lambda: all(map(ended, workers)))


def test_while_the_submission_hangs(tmp_path, cases):
    cases.write_text("size: 8; seed: 1; act: honest\nsize: 8; seed: 2; act: hangs\n")
    json = tmp_path / "result.json"
    code, output, workers = interrupted(json, "--mode", "test", "--cases", str(cases))
    assert code == 130
    assert "Traceback" not in output
    assert [case.status for case in read_result(json).cases] == [Status.PASS]
    wait_for(lambda: all(map(ended, workers)))


def test_worker_dies_with_the_referee(tmp_path, cases):
    cases.write_text("size: 8; seed: 1; act: honest\nsize: 8; seed: 2; act: hangs\n")
    json = tmp_path / "result.json"
    process = start(json, "--mode", "test", "--cases", str(cases))
    wait_for(lambda: json.is_file() and len(read_result(json).cases) == 1)
    (worker,) = children(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=600)
    wait_for(lambda: ended(worker))
    assert read_result(json).state is State.RUNNING
