"""eval.py with --baseline, --record and on a real terminal, end to end with a stand-in problem."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.cli import main
from harness.history import History
from harness.policies import AfterCalls
from harness.result import read_result
from harness.session import Session

ROOT = Path(__file__).parents[2]
DOUBLING = ROOT / "tests" / "harness" / "doubling"
FAST = "def custom_kernel(data):\n    return data[0] * 2\n"
SLOW = "import time\ndef custom_kernel(data):\n    time.sleep(0.05)\n    return data[0] * 2\n"
WRONG = "def custom_kernel(data):\n    return data[0] * 3\n"
UNSTEADY = "import random, time\ndef custom_kernel(data):\n    time.sleep(random.uniform(0.01, 0.2))\n    return data[0] * 2\n"
CRASHING = "import os\ndef custom_kernel(data):\n    os._exit(3)\n"
RAISING = "def custom_kernel(data):\n    raise ValueError('boom')\n"


def evaluate(tmp_path: Path, submission: str, baseline: str, *options: str) -> int:
    for name, code in (("new.py", submission), ("old.py", baseline)):
        (tmp_path / name).write_text(code)
    sides = ["--submission", str(tmp_path / "new.py"), "--baseline", str(tmp_path / "old.py")]
    common = ["--device", "cpu", "--problem", str(DOUBLING), "--budget-s", "1", "--json", str(tmp_path / "r.json")]
    return main([*sides, *common, "--cases", "size: 8; seed: 1", *options])


@pytest.mark.parametrize(
    ("submission", "baseline", "change", "code"),
    [(SLOW, FAST, "slower", 4), (FAST, SLOW, "faster", 0)],
    ids=["slower", "faster"],
)
def test_verdict_and_exit_code(tmp_path, capsys, monkeypatch, submission, baseline, change, code):
    monkeypatch.setattr("harness.policies.IntervalNarrow", lambda budget_ns: AfterCalls(15, 10**15))  # on any machine
    assert evaluate(tmp_path, submission, baseline, "--fail-on-regression") == code
    result = read_result(tmp_path / "r.json")
    (case,) = result.cases
    assert case.comparison is not None
    assert case.comparison.baseline is not None
    assert case.timing is not None
    assert case.comparison.interleaved
    assert case.comparison.change.value == change
    assert case.timing.runs == case.comparison.baseline.runs
    assert result.baseline is not None
    assert (result.baseline.name, result.baseline.load_ns is not None) == ("old.py", True)
    assert result.comparison is not None
    assert result.comparison.ratio == pytest.approx(case.comparison.ratio)
    assert f"compared: {change} than old.py" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("baseline", "why"),
    [
        (WRONG, "no comparison: the baseline fails the official check: values differ"),
        (CRASHING, "no comparison: the baseline fails: the submission ended the process with exit status 3"),
        (RAISING, "no comparison: the baseline fails: ValueError: boom"),
    ],
    ids=["wrong", "crashing", "raising"],
)
def test_a_baseline_that_fails_costs_the_comparison_only(tmp_path, baseline, why):
    assert evaluate(tmp_path, FAST, baseline, "--fail-on-regression") == 0
    (case,) = read_result(tmp_path / "r.json").cases
    assert case.comparison is None
    assert case.timing is not None
    assert why in case.warnings


def test_a_submission_that_is_wrong_ends_as_without_a_baseline(tmp_path):
    assert evaluate(tmp_path, WRONG, FAST, "--fail-on-regression") == 112


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--baseline", "none.py"], 3, "--baseline none.py: no such file"),
        (["--fail-on-regression"], 2, "--fail-on-regression needs --baseline FILE to compare with"),
        (["--baseline", __file__, "--mode", "test"], 2, "--baseline compares times; mode test takes none"),
    ],
)
def test_mistakes(options, code, message, capsys):
    assert main(["--device", "cpu", "--problem", str(DOUBLING), *options]) == code
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said


def test_a_baseline_that_cannot_be_imported(tmp_path, capsys):
    assert evaluate(tmp_path, FAST, "import no_such_module\n") == 3
    assert "error: --baseline old.py: ModuleNotFoundError" in capsys.readouterr().err


@pytest.fixture
def steps(monkeypatch) -> list[str]:
    """Whose worker started, with its clock, and whose submission was loaded, in this order."""
    taken: list[str] = []

    def noted(name: str):
        step = getattr(Session, name)

        def take(self, *arguments):
            taken.append(f"{name} {self._shown_name.removeprefix('--baseline ')}")
            return step(self, *arguments)

        return take

    for name in ("start", "load"):
        monkeypatch.setattr(Session, name, noted(name))
    return taken


BOTH = ["start new.py", "start old.py", "load new.py", "load old.py"]


def test_no_clock_is_built_while_a_submission_is_loaded(tmp_path, steps):
    """It could keep the device busy while the other side's clock is calibrated."""
    assert evaluate(tmp_path, FAST, FAST) == 0
    assert steps == BOTH


@pytest.mark.parametrize(
    ("submission", "baseline", "code"), [(FAST, CRASHING, 0), (CRASHING, FAST, 112)], ids=["baseline", "submission"]
)
def test_where_one_needs_a_new_worker_both_get_one(tmp_path, steps, submission, baseline, code):
    """Nor by waiting for the other side to fall."""
    (tmp_path / "cases.txt").write_text("size: 8; seed: 1\nsize: 8; seed: 2\n")
    assert evaluate(tmp_path, submission, baseline, "--cases", str(tmp_path / "cases.txt")) == code
    assert steps == BOTH + BOTH


def test_record(tmp_path, capsys):
    assert evaluate(tmp_path, FAST, FAST, "--record", str(tmp_path / "h.sqlite")) == 0
    (run,) = History(tmp_path / "h.sqlite").runs()
    assert History(tmp_path / "h.sqlite").result(run.id) == read_result(tmp_path / "r.json")


class OnATerminal:
    """eval.py in a pseudo-terminal of 100 columns."""

    def __init__(self, *options: str):
        command = [sys.executable, str(ROOT / "eval.py"), "--device", "cpu", "--problem", str(DOUBLING), *options]
        self._terminal, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        )
        os.close(theirs)
        self.said = ""

    def read_until(self, text: str | None, limit_s: float = 600.0) -> None:
        """Collect output until `text` appears, or until the end."""
        end_s = time.monotonic() + limit_s
        while time.monotonic() < end_s and (text is None or text not in self.said):
            if not select.select([self._terminal], [], [], 0.2)[0]:
                continue
            try:
                part = os.read(self._terminal, 1 << 16)
            except OSError:  # the other end is closed
                return
            self.said += part.decode(errors="replace")

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._terminal)


@pytest.fixture
def terminal():
    made: list[OnATerminal] = []

    def start(*options: str) -> OnATerminal:
        made.append(OnATerminal(*options))
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_the_finished_table_stays_on_a_terminal(terminal):
    run = terminal("--cases", "size: 8; seed: 1", "--budget-s", "0.5")
    run.read_until(None)
    assert run.process.wait(timeout=600) == 0
    final = run.said[run.said.rindex("\x1b[?25h") :]
    plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", final)
    assert re.search(r"size 8 +pass +pass +fp32", plain)
    assert "score " in plain
    assert run.said.count("\x1b[?25l") == run.said.count("\x1b[?25h")


def test_ctrl_c_leaves_a_clean_terminal_and_what_was_measured(terminal, tmp_path):
    (tmp_path / "s.py").write_text(UNSTEADY)
    run = terminal(
        "--submission", str(tmp_path / "s.py"), "--cases", "official", "--budget-s", "120", "--json", str(tmp_path / "r.json")
    )
    run.read_until("n=")
    os.kill(run.process.pid, signal.SIGINT)
    run.read_until(None)
    assert run.process.wait(timeout=600) == 130
    assert run.said.rindex("\x1b[?25h") > run.said.rindex("\x1b[?25l")
    assert "interrupted; " in run.said
    assert "Traceback" not in run.said
    assert json.loads((tmp_path / "r.json").read_text())["state"] == "interrupted"
