"""The queue. A runner takes a job by a lease and keeps it by reporting; a lease that runs out gives the job back.

The final status is decided here, from the Results that came in, and never by a runner's word. So a job ends truthfully
whatever dies: what a dead runner had not reported is run again, what it had reported stays.
"""

import contextlib
import json
import math
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, joinedload

from harness.result import Device as HarnessDevice
from harness.result import Result, result_from_json
from leaderboard.errors import BadRequest, Conflict, NotFound
from leaderboard.queries.live import order_of
from leaderboard.reports import headline, run_report, secret_report
from leaderboard.stages import Stage, passes, stages
from leaderboard.store.columns import utc_now
from leaderboard.store.evaluations import keep_result
from leaderboard.store.models import FINAL, Device, Job, Run, Runner, SubmissionRun

MAX_LOSSES = 3  # runners that may fall silent over one job before it is given up
LOOKED_AT = 8  # pending jobs: another runner may be taking the first ones in this moment
OUTCOMES = ("done", "failed", "timed_out")


@dataclass(frozen=True)
class Hold:
    """What a runner shows of a job that it reports on."""

    lease: str
    user_id: int  # whose runner it is


def register(session: Session, name: str, gpu: str, device: HarnessDevice, system: dict[str, Any], user_id: int) -> Runner:
    """A runner that has just started on a device (harness.result.Device)."""
    kept = Runner(name=name, gpu=gpu, device_id=device_id(session, device), user_id=user_id, system=system)
    session.add(kept)
    session.flush()
    return kept


def device_id(session: Session, device: HarnessDevice) -> int:
    """The number of a device, new if it has not been seen."""
    what = {"name": device.name, "arch": device.arch, "driver": device.driver or ""}
    query = select(Device.id).filter_by(**what)
    known = session.scalar(query)
    if known is None:
        with contextlib.suppress(IntegrityError), session.begin_nested():
            session.add(Device(**what, kind=device.kind, memory_bytes=device.memory_bytes))
        known = session.scalar(query)
    assert known is not None
    return known


def claim(session: Session, runner: Runner, lease_s: float) -> Job | None:
    """The next job for a runner, now running under a new lease; None if none waits."""
    reap(session)
    runner.last_seen_at = utc_now()
    order = order_of(runner.gpu)
    for number in session.scalars(select(order.c.id).order_by(order.c.position).limit(LOOKED_AT)).all():
        query = select(Job).where(Job.id == number, Job.status == "pending")
        if job := session.scalar(query.with_for_update(skip_locked=True)):
            _start(job, runner, lease_s)
            return job
    return None


def _start(job: Job, runner: Runner, lease_s: float) -> None:
    now = utc_now()
    job.status, job.runner_id, job.lease, job.progress = "running", runner.id, secrets.token_hex(16), None
    job.attempts += 1
    job.started_at = job.heartbeat_at = now
    job.lease_expires_at = now + timedelta(seconds=lease_s)


def heartbeat(session: Session, number: int, hold: Hold, lease_s: float, progress: dict[str, Any] | None) -> None:
    """Keep a job for another lease. Raises Conflict if the lease is lost: cancelled, deleted, given to another."""
    job = _held(session, number, hold)
    now = utc_now()
    job.heartbeat_at, job.lease_expires_at = now, now + timedelta(seconds=lease_s)
    job.progress = progress or job.progress
    if job.runner:
        job.runner.last_seen_at = now


def add_run(session: Session, number: int, hold: Hold, secret: bool, result: Result) -> int:
    """Keep what one stage found; its number. Sent twice it is kept once. Raises Conflict, BadRequest."""
    job = _held(session, number, hold)
    submission = job.submission
    if Stage(result.mode, secret) not in stages(submission.mode) or result.submission.sha256 != submission.code_sha256:
        raise BadRequest(f"job {number} asked for no such run: {result.mode} of {result.submission.sha256[:8]}")
    _check_score(number, result)
    _check_start(number, result)
    key = {"submission_id": submission.id, "attempt": job.attempts, "mode": result.mode, "secret": secret}
    if known := session.scalar(select(SubmissionRun.run_id).filter_by(**key)):
        return known
    run = keep_result(session, result)
    device = device_id(session, result.device)
    session.add(SubmissionRun(run_id=run.id, passed=passes(result), runner_id=job.runner_id, device_id=device, **key))
    session.flush()
    return run.id


def _check_score(number: int, result: Result) -> None:
    """Gaps are ratios to the best score: one of nothing would break everybody's page."""
    value_ns = result.score.value_ns if result.score else None
    if value_ns is not None and not 0 < value_ns < math.inf:
        raise BadRequest(f"job {number}: the score {value_ns} ns is no time; a score is positive and finite")


def _check_start(number: int, result: Result) -> None:
    """Every page and answer that shows the run reads it."""
    try:
        aware = datetime.fromisoformat(result.started_at).tzinfo is not None
    except ValueError:
        aware = False
    if not aware:
        raise BadRequest(f"job {number}: started_at is {result.started_at[:40]!r}, no ISO 8601 time with its offset from UTC")


def finish(session: Session, number: int, hold: Hold, outcome: str, error: str) -> str:
    """Give a job its final status: succeeded if every stage passed. Told twice it is done once. Raises Conflict."""
    if outcome not in OUTCOMES:
        raise BadRequest(f"outcome {outcome!r} is unknown; known are {', '.join(OUTCOMES)}")
    job = session.scalar(select(Job).where(Job.id == number).with_for_update())
    if job is not None and job.status in FINAL and _is_held(job, hold):
        return job.status
    job = _held(session, number, hold)
    job.error = _what_failed(session, job, outcome, error)
    job.status = "succeeded" if not job.error else "timed_out" if outcome == "timed_out" else "failed"
    job.progress, job.ended_at = None, utc_now()
    return job.status


def _what_failed(session: Session, job: Job, outcome: str, error: str) -> str:
    """Empty if everything passed; else a first line for everybody and what follows for the author."""
    failed, seen = _first_failure(session, job)
    report = f"\n{failed}" if failed else ""
    if outcome == "timed_out":
        return f"❌ {error}{report}"
    if failed:
        return failed
    missing = [stage for stage in stages(job.submission.mode) if stage not in seen]
    if outcome == "done" and not missing:
        return ""
    return f"❌ the evaluation did not end: {error or 'its runner gave no reason'}"


def _first_failure(session: Session, job: Job) -> tuple[str, set[Stage]]:
    """The report of the first run of this attempt that did not pass, and the stages that were run."""
    mine = (SubmissionRun.submission_id == job.submission_id, SubmissionRun.attempt == job.attempts)
    query = select(SubmissionRun, Run.result).join(SubmissionRun.run).where(*mine).order_by(SubmissionRun.run_id)
    report, seen = "", set()
    for link, text in session.execute(query):
        seen.add(Stage(link.mode, link.secret))
        if link.passed or report:
            continue
        result = result_from_json(json.loads(text))
        hidden = f"{headline(result, link.mode)} in the secret run: other inputs of the same shapes"
        report = f"{hidden}\n{secret_report(result, link.mode)}" if link.secret else run_report(result, link.mode)
    return report, seen


def release(session: Session, number: int, hold: Hold) -> None:
    """Give a job back at once: its runner is shutting down. Raises Conflict."""
    requeue(_held(session, number, hold))


def reap(session: Session) -> list[int]:
    """Give back the jobs whose leases have run out; one whose runners fell silent too often fails."""
    query = select(Job).where(Job.status == "running", Job.lease_expires_at < utc_now())
    jobs = session.scalars(query.options(joinedload(Job.runner)).with_for_update(skip_locked=True, of=Job)).all()
    for job in jobs:
        job.losses += 1
        if job.losses < MAX_LOSSES:
            requeue(job)
            continue
        name = job.runner.name if job.runner else "unknown"
        job.status, job.lease, job.progress, job.ended_at = "failed", None, None, utc_now()
        job.error = f"❌ given up after {job.losses} attempts: each time the runner fell silent, the last one was {name}"
    return [job.id for job in jobs]


def renew_leases(session: Session, lease_s: float) -> None:
    """After a pause of the server: its runners could not report, and get the time of a lease to do so."""
    for job in session.scalars(select(Job).where(Job.status == "running")):
        job.lease_expires_at = utc_now() + timedelta(seconds=lease_s)


def requeue(job: Job) -> None:
    """Give a running job back to the queue; who held it reports in vain."""
    job.status, job.lease, job.lease_expires_at, job.progress = "pending", None, None, None


def _held(session: Session, number: int, hold: Hold) -> Job:
    job = session.scalar(select(Job).where(Job.id == number).with_for_update())
    if job is None or job.status != "running" or not _is_held(job, hold):
        raise Conflict(f"job {number} is no longer yours: it was cancelled, deleted or given to another runner")
    return job


def _is_held(job: Job, hold: Hold) -> bool:
    """Both must fit: a lease that has become known is of no use to the runners of somebody else."""
    if job.lease is None or job.runner is None or job.runner.user_id != hold.user_id:
        return False
    return secrets.compare_digest(job.lease.encode(), hold.lease.encode())


def find_runner(session: Session, number: int, user_id: int) -> Runner:
    """A registered runner of this user. Raises NotFound."""
    runner = session.get(Runner, number)
    if runner is None or runner.user_id != user_id:
        raise NotFound(f"no runner {number} of yours; register again")
    return runner

