"""A runner: claims a job, evaluates it, reports what it sees, and does that again."""

import logging
import threading
import time
from dataclasses import dataclass, replace
from typing import Any

from harness.result import Result, State, result_from_json, result_to_json
from leaderboard.errors import BadRequest, Conflict, LeaderboardError, NotFound, ServerAway
from leaderboard.problems import PackedProblem
from leaderboard.runner.executor import Evaluation, EvaluationDied, Executor
from leaderboard.runner.lock import DeviceHeld
from leaderboard.runner.request import EvaluationRequest
from leaderboard.runner.server import Server
from leaderboard.stages import Stage
from popcorn.text import printable

log = logging.getLogger("leaderboard.runner")
HEARTBEAT_S = 5.0  # at most; several fit into a lease
HEARTBEATS_A_LEASE = 4
IDLE_S = 1.0  # between two questions for work
PATIENCE_S = 3600.0  # for a server that is away while it is owed a result
GRACE_S = 30.0  # beyond a stage's limit: start-up of the worker, the referee's own work


@dataclass
class Watch:
    """What is known of the stage under way."""

    stage: Stage | None = None
    until: float = float("inf")
    limit_s: float = 0.0
    partial: Result | None = None
    progress: dict[str, Any] | None = None


class Runner:
    """One device's worth of evaluation. `gpu` overrides the name under which the device is offered."""

    def __init__(self, server: Server, executor: Executor, name: str, gpu: str | None = None):
        self._server, self._executor, self._name, self._gpu = server, executor, name, gpu
        self._id = 0
        self._held = ""  # by whom the device is held, as last told
        self._problems: dict[str, PackedProblem] = {}
        self._stopping = threading.Event()

    def stop(self) -> None:
        """End soon: the job under way is given back."""
        self._stopping.set()

    def run(self) -> None:
        """Take jobs until `stop`. Raises LeaderboardError if the server refuses this runner."""
        offer = self._executor.describe()
        offer = {"name": self._name, "gpu": self._gpu or offer["gpu"], "device": offer["device"], "system": offer["system"]}
        log.info("offering %s (%s)", offer["gpu"], offer["device"]["name"])
        self._register(offer)
        while not self._stopping.is_set():
            try:
                busy = self._take_one()
            except ServerAway as error:
                log.warning("%s", error)
                busy = False
            except NotFound:  # a new database behind the same address
                self._register(offer)
                continue
            if not busy:
                self._stopping.wait(IDLE_S)

    def _register(self, offer: dict[str, Any]) -> None:
        self._id = self._server.call("POST", "/runner/register", offer, PATIENCE_S)["runner_id"]

    def _take_one(self) -> bool:
        """Whether there was a job."""
        try:
            with self._executor.free():
                self._tell_held("")
                job = self._server.call("POST", "/runner/claim", {"runner_id": self._id})
                if job is not None:
                    self._run_job(job)
                return job is not None
        except DeviceHeld as held:
            self._tell_held(str(held))
        except Conflict as error:
            log.info("%s", error)
        return False

    def _tell_held(self, held: str) -> None:
        """Told when it changes, not at every question for work."""
        if held != self._held:
            log.info("%s", held or "the device is free again")
        self._held = held

    def _run_job(self, job: dict[str, Any]) -> None:
        log.info("job %d: %s, attempt %d", job["job_id"], job["file_name"], job["attempt"])
        steps = tuple(Stage(**stage) for stage in job["stages"])
        request = EvaluationRequest(
            self._problem(job["problem_sha256"]), job["file_name"], job["code"], steps, job["policy"], job["budget_s"]
        )
        evaluation = self._executor.start(request)
        try:
            outcome, error = JobWatch(self._server, job, self._stopping).follow(evaluation)
        finally:
            evaluation.close()
        if outcome == "released":
            self._report(job, "release")
            return
        status = self._report(job, "finish", outcome=outcome, error=printable(error))["status"]
        log.info("job %d: %s", job["job_id"], status)

    def _report(self, job: dict[str, Any], what: str, **fields: Any) -> Any:
        path = f"/runner/jobs/{job['job_id']}/{what}"
        return self._server.call("POST", path, {"lease": job["lease"], **fields}, PATIENCE_S)

    def _problem(self, digest: str) -> PackedProblem:
        if digest not in self._problems:
            problem = PackedProblem(**self._server.call("GET", f"/runner/problems/{digest}", patience_s=PATIENCE_S))
            if problem.sha256 != digest:
                raise LeaderboardError(f"the problem {digest[:8]} came with other content")
            self._problems = {digest: problem}
        return self._problems[digest]


class JobWatch:
    """Follows one evaluation and tells the server."""

    def __init__(self, server: Server, job: dict[str, Any], stopping: threading.Event):
        self._server, self._job, self._stopping = server, job, stopping
        self._watch = Watch()
        self._interval_s = min(HEARTBEAT_S, job["lease_s"] / HEARTBEATS_A_LEASE)
        self._told_at = time.monotonic()

    def follow(self, evaluation: Evaluation) -> tuple[str, str]:
        """How it ended: (done, failed, timed_out or released, why). Raises Conflict if the job is no longer ours."""
        try:
            return self._follow(evaluation)
        except BadRequest as refusal:  # sending it again would not help
            return "failed", f"the server refused a report: {refusal}"

    def _follow(self, evaluation: Evaluation) -> tuple[str, str]:
        error = ""
        while not self._stopping.is_set():
            try:
                event = evaluation.next(timeout_s=IDLE_S)
            except EvaluationDied as death:
                self._keep_partial()
                return "failed", self._tellable(str(death))
            if event and event["kind"] == "done":
                return ("failed", error) if error else ("done", "")
            if event and event["kind"] == "failed":
                error = self._tellable(event["error"])
            elif event:
                self._take(event)
            if time.monotonic() > self._watch.until:
                return self._timed_out()
            self._heartbeat_if_due()
        return "released", ""

    def _take(self, event: dict[str, Any]) -> None:
        watch = self._watch
        if event["kind"] == "stage":
            stage, limit_s = Stage(event["mode"], event["secret"]), event["limit_s"]
            self._watch = Watch(stage, time.monotonic() + limit_s + GRACE_S, limit_s)
        elif event["kind"] == "progress":
            watch.progress = {key: value for key, value in event.items() if key != "kind"}
        elif event["kind"] == "partial":
            watch.partial = result_from_json(event["result"])
        elif event["kind"] == "result":
            watch.partial = None
            self._send(event["result"], event["secret"])

    def _tellable(self, error: str) -> str:
        """What the author may learn of a fault: words of a secret run may quote its inputs."""
        if self._watch.stage is None or not self._watch.stage.secret:
            return error
        log.warning("job %d, secret run: %s", self._job["job_id"], error)
        return "the evaluation broke off in the secret run; the runner's log says why"

    def _heartbeat_if_due(self) -> None:
        if time.monotonic() - self._told_at < self._interval_s:
            return
        self._told_at = time.monotonic()
        try:
            self._post("heartbeat", progress=self._watch.progress)
        except ServerAway as error:  # the next one may be heard
            log.warning("%s", error)

    def _timed_out(self) -> tuple[str, str]:
        watch = self._watch
        assert watch.stage is not None
        done = len(watch.partial.cases) if watch.partial else 0
        self._keep_partial()
        secret = " (secret run)" if watch.stage.secret else ""
        said = f"timeout: mode {watch.stage.mode}{secret} took more than the {watch.limit_s:g} s that task.yml grants"
        return "timed_out", f"{said}; {done} cases were done, their results are kept"

    def _keep_partial(self) -> None:
        """What was measured before the end stays."""
        watch = self._watch
        if watch.partial and watch.stage:
            self._send(result_to_json(replace(watch.partial, state=State.INTERRUPTED)), watch.stage.secret)

    def _send(self, result: dict[str, Any], secret: bool) -> None:
        self._post("runs", PATIENCE_S, secret=secret, result=result)

    def _post(self, what: str, patience_s: float = 0.0, **fields: Any) -> Any:
        path = f"/runner/jobs/{self._job['job_id']}/{what}"
        return self._server.call("POST", path, {"lease": self._job["lease"], **fields}, patience_s)
