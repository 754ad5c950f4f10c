"""A runner against a server that is away, takes jobs back or is slow, and evaluations that die or take too long."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
from people import CODE, DOUBLING, job_of, person, submit, token_of

from leaderboard import queries, submissions
from leaderboard.errors import Conflict, LeaderboardError, ServerAway
from leaderboard.runner import loop
from leaderboard.runner.devices import gpu_name
from leaderboard.runner.executor import EvaluationDied, LocalExecutor
from leaderboard.runner.lock import exclusive
from leaderboard.runner.loop import Runner
from leaderboard.runner.server import Server
from scripts.stub_evaluation import DESCRIPTION

STUB = (sys.executable, "-m", "scripts.stub_evaluation")


class Unlocked(LocalExecutor):
    """The stub needs no device: tests run side by side."""

    def free(self):
        return nullcontext()


@dataclass
class Working:
    """A runner in a thread."""

    runner: Runner
    thread: threading.Thread = field(init=False)
    fault: list[Exception] = field(default_factory=list)

    def __enter__(self) -> "Working":
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        return self

    def _run(self) -> None:
        try:
            self.runner.run()
        except Exception as fault:
            self.fault.append(fault)

    def __exit__(self, *_: object) -> None:
        self.runner.stop()
        self.thread.join(600)
        assert not self.thread.is_alive()


@pytest.fixture(autouse=True)
def _hurry(monkeypatch):
    monkeypatch.setattr(loop, "IDLE_S", 0.05)
    monkeypatch.setattr(loop, "HEARTBEAT_S", 0.1)


def working(site, executor: Any = None) -> Working:
    server = Server(site.url, token_of(site.store, "lab", "runner"), sleep=lambda seconds: time.sleep(0.02))
    return Working(Runner(server, executor or Unlocked(STUB), "stub"))


def wait_until(condition, timeout_s: float = 600.0) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def ended(site, number: int, status: str = "") -> Any:
    wait_until(lambda: job_of(site.store, number).status not in ("pending", "running"))
    job = job_of(site.store, number)
    assert not status or job.status == status, job.error
    return job


@pytest.mark.parametrize(
    ("act", "status", "said"),
    [
        ("", "succeeded", ""),
        ("# stub: wrong", "failed", "❌ Testing failed\n"),
        ("# stub: wrong in secret", "failed", "❌ Testing failed in the secret run: other inputs of the same shapes\n"),
        ("# stub: die", "failed", "the evaluating process ended with exit code 1: the stub was told to die"),
        ("# stub: fault", "failed", "the stub has no device"),
    ],
)
def test_every_ending(site, act, status, said):
    number = submit(site.store, person(site.store, "ada"), code=f"{CODE}{act}\n")
    with working(site):
        assert said in ended(site, number, status).error


@dataclass
class Script:
    """An executor whose evaluations say what stands here, then die."""

    events: list[dict[str, Any]]
    last_words: str = "they had exit code 1"

    def describe(self) -> dict[str, Any]:
        return DESCRIPTION

    def free(self):
        return nullcontext()

    def start(self, request: Any) -> "Script":
        return Script(list(self.events), self.last_words)

    def next(self, timeout_s: float) -> dict[str, Any]:
        if not self.events:
            raise EvaluationDied(self.last_words)
        return self.events.pop(0)

    def close(self) -> None:
        pass


SECRET_STAGE = {"kind": "stage", "mode": "test", "secret": True, "limit_s": 60.0}


@pytest.mark.parametrize("events", [[], [{"kind": "failed", "error": "inputs 0.6281"}, {"kind": "done"}]])
def test_what_a_secret_run_dies_of_is_not_told(site, events):
    number = submit(site.store, person(site.store, "ada"))
    with working(site, Script([SECRET_STAGE, *events], "printed inputs 0.6281")):
        error = ended(site, number, "failed").error
    assert "broke off in the secret run" in error
    assert "0.6281" not in error


@pytest.mark.parametrize(
    "result", [{"not": "a result"}, {"text": "half a pair: \ud800"}, {"number": float("nan")}, {"huge": "x" * (33 << 20)}]
)
def test_a_report_that_the_server_refuses_ends_the_job_and_not_the_runner(site, result):
    ada, events = person(site.store, "ada"), [{"kind": "stage", "mode": "test", "secret": False, "limit_s": 60.0}]
    events.append({"kind": "result", "secret": False, "result": result})
    with working(site, Script(events)) as worker:
        for _ in range(2):
            assert "the server refused a report" in ended(site, submit(site.store, ada, mode="test"), "failed").error
    assert worker.fault == []


def test_last_words_that_no_database_takes(site):
    number = submit(site.store, person(site.store, "ada"), mode="test")
    with working(site, Script([], "\0 \ud800 \x1b[2J")) as worker:
        assert "\\x00 \\ud800 \\x1b[2J" in ended(site, number, "failed").error
    assert worker.fault == []


def test_a_stage_that_takes_too_long(site, monkeypatch):
    monkeypatch.setattr(loop, "GRACE_S", -59.9)  # the stub announces 60 s
    ada = person(site.store, "ada")
    number = submit(site.store, ada, mode="benchmark", code=f"{CODE}# stub: sleep 600\n")
    with working(site):
        assert "timeout: mode benchmark took more than the 60 s" in ended(site, number, "timed_out").error


def test_a_cancelled_evaluation_is_killed(site):
    ada = person(site.store, "ada")
    number = submit(site.store, ada, mode="test", code=f"{CODE}# stub: sleep 600\n")
    with working(site):
        wait_until(lambda: job_of(site.store, number).progress)
        with site.store.writing() as session:
            submissions.cancel(session, number, ada)
        other = submit(site.store, ada, mode="test")
        ended(site, other, "succeeded")
    assert job_of(site.store, number).error == "cancelled by ada"


def test_a_runner_that_stops_gives_its_job_back(site):
    number = submit(site.store, person(site.store, "ada"), mode="test", code=f"{CODE}# stub: sleep 600\n")
    with working(site):
        wait_until(lambda: job_of(site.store, number).progress)
    job = job_of(site.store, number)
    assert (job.status, job.losses) == ("pending", 0)


class Flaky(Server):
    """A server that is away every other time."""

    def __init__(self, url: str, token: str):
        super().__init__(url, token, sleep=lambda seconds: None)
        self.calls = 0

    def _call(self, method: str, path: str, body: Any) -> Any:
        self.calls += 1
        if self.calls % 2:
            raise ServerAway("away")
        answer = super()._call(method, path, body)
        if self.calls % 4 == 0 and not path.endswith("claim"):
            raise ServerAway("the answer was lost")
        return answer


def test_a_server_that_comes_and_goes(site):
    number = submit(site.store, person(site.store, "ada"))
    with Working(Runner(Flaky(site.url, token_of(site.store, "lab", "runner")), Unlocked(STUB), "stub")):
        ended(site, number, "succeeded")
    with site.store.reading() as session:
        found = queries.submission(session, number, None)
    assert found is not None
    assert len(found.runs) == 6


def test_who_may_not_run_is_told(site):
    with Working(Runner(Server(site.url, token_of(site.store, "ada")), Unlocked(STUB), "stub")) as runner:
        wait_until(lambda: runner.fault)
    assert isinstance(runner.fault[0], LeaderboardError)
    assert "it needs the role runner" in str(runner.fault[0])


def test_a_machine_without_a_usable_device():
    with pytest.raises(EvaluationDied, match="ended with exit code 1"):
        LocalExecutor(("false",)).describe()


def test_describe():
    assert Unlocked(STUB).describe() == {"kind": "device", **DESCRIPTION}


def test_one_runner_at_a_time_holds_a_device(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with exclusive("GPU-1"):
        with pytest.raises(Conflict, match="another runner on this machine"), exclusive("GPU-1"):
            pass
        with exclusive("GPU-2"):
            pass
    with exclusive("GPU-1"):
        pass


@contextmanager
def held_device() -> Iterator[None]:
    """The stub's device, as soon as the idle runner's question for work is over."""
    key = DESCRIPTION["key"]
    while True:
        try:
            with exclusive(key):
                yield
                return
        except Conflict:
            time.sleep(0.01)


def test_a_held_device_waits_without_taking_jobs(site, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    number = submit(site.store, person(site.store, "ada"), mode="test")
    with working(site, LocalExecutor(STUB)):
        ended(site, number, "succeeded")
        with held_device():
            other = submit(site.store, person(site.store, "ada"), mode="test")
            time.sleep(0.5)
            assert job_of(site.store, other).status == "pending"
        ended(site, other, "succeeded")


def test_a_held_device_is_told_when_that_changes(site, tmp_path, monkeypatch, caplog):
    """Not at every question for work, which is one a second."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    caplog.set_level("INFO", "leaderboard.runner")
    executor = LocalExecutor(STUB)
    executor.describe()
    runner = Runner(Server(site.url, token_of(site.store, "lab", "runner")), executor, "stub")
    runner._register({"name": "stub", **{key: DESCRIPTION[key] for key in ("gpu", "device", "system")}})
    for _ in range(2):
        with exclusive(DESCRIPTION["key"]):
            assert [runner._take_one() for _ in range(3)] == [False] * 3
        assert [runner._take_one() for _ in range(3)] == [False] * 3
    told = [record.getMessage() for record in caplog.records]
    assert [("another runner" in line, "free again" in line) for line in told] == [(True, False), (False, True)] * 2


@pytest.mark.parametrize(
    ("name", "kind", "short"),
    [
        ("NVIDIA H200", "cuda", "H200"), ("AMD Instinct MI355X", "hip", "MI355X"), ("Some CPU (8 cores)", "cpu", "CPU"),
        ("NVIDIA GeForce RTX 9990", "cuda", "RTX-9990"), ("NVIDIA", "cuda", "GPU"),
    ],
)  # fmt: skip
def test_short_names(name, kind, short):
    assert gpu_name(name, kind) == short


def test_the_evaluation_ends_with_its_runner():
    """A runner that is killed leaves no evaluation behind: its end of the pipe closes."""
    import subprocess

    from leaderboard.runner.executor import COMMAND, ROOT

    process = subprocess.Popen(COMMAND, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    process.stdin.write(request_line())
    process.stdin.flush()
    assert process.stdout is not None
    assert b'"stage"' in process.stdout.readline()
    process.stdin.close()
    assert process.wait(60) == 3
    process.stdout.close()


def request_line() -> bytes:
    import json

    from leaderboard.problems import pack_problem
    from leaderboard.runner.request import EvaluationRequest
    from leaderboard.stages import stages

    problem, _ = pack_problem(DOUBLING)
    slow = "import time\ntime.sleep(600)\n"
    return json.dumps(EvaluationRequest(problem, "submission.py", slow, stages("test")).to_json()).encode() + b"\n"
