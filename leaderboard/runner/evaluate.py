"""The process that evaluates one job: a request on stdin, events as JSON lines on stdout, nothing on disk that stays.

    {"kind": "device", ...}                            for `{"describe": true}`: what this machine offers
    {"kind": "stage", "mode", "secret", "limit_s"}     an evaluation begins; it should end within limit_s
    {"kind": "progress", ...}                          where it is, at most once a second
    {"kind": "partial" or "result", "secret", "result"}  the Result after a case, and the final one
    {"kind": "failed", "error"}                        it cannot be evaluated, for no fault of the submission
    {"kind": "done"}

A process of its own, because a faulty device or a problem's code may take it down, and because it can be killed. It ends
itself when stdin closes, which is what happens when its runner dies. The secret seed is drawn here and never leaves.
"""

import json
import os
import secrets
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import torch

from harness import policies
from harness.cli import choose_cases
from harness.devices import describe_device, select_device
from harness.errors import HarnessError, SubmissionNotLoaded
from harness.observer import Progress
from harness.problem import Problem, load_problem
from harness.referee import Request, evaluate
from harness.result import Device, Result, result_to_json
from leaderboard.errors import LeaderboardError
from leaderboard.problems import unpack_problem
from leaderboard.runner.devices import describe
from leaderboard.runner.request import EvaluationRequest
from leaderboard.stages import Stage, passes
from popcorn.errors import PopcornError

SEED_BITS = 31
PROGRESS_INTERVAL_S = 1.0
ORPHANED = 3


class Events:
    """Where the events go; an Observer of one stage."""

    def __init__(self, out: TextIO):
        self._out = out
        self._stage = Stage("test")
        self._passed = 0
        self._told_at = 0.0
        self.last: Result | None = None

    def send(self, kind: str, **fields: Any) -> None:
        """Write one event."""
        self._out.write(json.dumps({"kind": kind, **fields}, ensure_ascii=True) + "\n")
        self._out.flush()

    def begin(self, stage: Stage, limit_s: float) -> None:
        """A stage begins."""
        self._stage, self._passed, self._told_at, self.last = stage, 0, 0.0, None
        self.send("stage", mode=stage.mode, secret=stage.secret, limit_s=limit_s)

    def result(self, result: Result) -> None:
        """A stage has ended."""
        self.send("result", secret=self._stage.secret, result=result_to_json(result))

    def started(self, result: Result) -> None:
        self.last = result

    def progress(self, progress: Progress) -> None:
        if time.monotonic() - self._told_at < PROGRESS_INTERVAL_S:
            return
        self._told_at = time.monotonic()
        where = {"case": progress.index + 1, "cases": progress.total, "phase": progress.phase, "passed": self._passed}
        self.send("progress", mode=self._stage.mode, secret=self._stage.secret, **where)

    def case_done(self, result: Result) -> None:
        self.last, self._passed = result, sum(case.official_ok for case in result.cases)
        self.send("partial", secret=self._stage.secret, result=result_to_json(result))

    def finished(self, result: Result) -> None:
        self.last = result


def main() -> int:
    """Answer the request on stdin."""
    events = Events(_own_stdout())
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        if request.get("describe"):
            events.send("device", **describe(select_device(None)))
        else:
            _evaluate(EvaluationRequest.from_json(request), events)
    except (HarnessError, PopcornError, LeaderboardError) as error:
        events.send("failed", error=str(error))
    events.send("done")
    return 0


def _own_stdout() -> TextIO:
    """Stdout for the events alone: what a problem's code prints goes to stderr."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return out


def _end_with_parent() -> None:
    """An evaluation that nobody waits for holds the device in vain. Not by `sys.stdin`: it is locked while it is read."""
    while os.read(0, 1 << 10):
        pass
    os._exit(ORPHANED)


def _evaluate(request: EvaluationRequest, events: Events) -> None:
    device = select_device(None)
    about = describe_device(device)
    seed = secrets.randbits(SEED_BITS)
    with tempfile.TemporaryDirectory(prefix="kernelproof-job-") as scratch:
        problem = load_problem(unpack_problem(request.problem, Path(scratch, "problem")))
        submission = Path(scratch, request.file_name)
        submission.write_bytes(request.code.encode())
        for stage in request.stages:
            result = _run_stage(request, problem, stage, device, about, seed, submission, events)
            events.result(result)
            if not passes(result):
                return


def _run_stage(
    request: EvaluationRequest, problem: Problem, stage: Stage, device: torch.device, about: Device, seed: int,
    submission: Path, events: Events,
) -> Result:  # fmt: skip
    limit_s = float(problem.task.timeout_s(stage.mode))
    cases_from, cases = choose_cases(None, problem, stage.mode, about)
    events.begin(stage, limit_s)
    asked = Request(
        problem=problem,
        submission=submission,
        mode=stage.mode,
        cases=cases,
        cases_from=f"{cases_from}, secret seed" if stage.secret else cases_from,
        policy=_policy(request, stage.mode, about),
        device=device,
        timeout_s=limit_s,
        seed=seed if stage.secret else None,
        trace_folder=submission.parent / "profile",
    )
    try:
        return evaluate(asked, events)
    except SubmissionNotLoaded as error:
        if events.last is None:
            raise
        return replace(events.last, error=f"{error}\n{error.detail}".strip())


def _policy(request: EvaluationRequest, mode: str, about: Device) -> policies.Policy:
    if request.policy == "official":
        return policies.official(mode, about)
    return policies.robust(mode, about, request.budget_s)


if __name__ == "__main__":
    sys.exit(main())
