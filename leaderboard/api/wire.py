"""What the store knows as the objects of the popcorn wire. Scores become seconds here and nowhere else."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from harness.result import Result, State
from leaderboard.accounts import Identity
from leaderboard.queries import submission
from leaderboard.queries.live import job_counts, job_view, runners_alive
from leaderboard.queries.views import Board, JobView, RunView, SubmissionDetail, SubmissionRow
from leaderboard.reports import full_result, pipe_lines
from leaderboard.store.evaluations import read_result
from leaderboard.store.models import Job, Run, Submission, SubmissionRun
from popcorn import http_models as wire

NANOSECONDS = 1e9


def leaderboard_json(board: Board) -> dict[str, Any]:
    """A leaderboard as clients list it."""
    return {
        "name": board.name,
        "description": board.description,
        "deadline": iso(board.deadline),
        "gpu_types": list(board.gpus),
        "task": {
            "description": board.description,
            "lang": "py",
            "ranking_by": board.ranking_by,
            "gpus": list(board.gpus),
            "tests": board.cases["test"],
            "benchmarks": board.cases["benchmark"],
        },
    }


def summary(row: SubmissionRow) -> wire.SubmissionSummary:
    """A submission as its author's list shows it: with its status and both scores."""
    scored = ((False, row.score_ns, row.passed), (True, row.secret_score_ns, row.secret_passed))
    runs = tuple(
        wire.RunSummary(row.gpu, seconds(score_ns), row.mode, secret, passed)
        for secret, score_ns, passed in scored
        if passed is not None
    )
    return wire.SubmissionSummary(
        row.id, row.leaderboard, row.file_name, row.submitted_at.isoformat(), row.done, runs, row.status, row.error or None
    )


def detail(session: Session, number: int, viewer: Identity) -> wire.SubmissionDetail | None:
    """A submission as its author, or an administrator, polls it."""
    found = submission(session, number, viewer)
    if found is None or found.code is None:
        return None
    row, job = found.row, found.job
    return wire.SubmissionDetail(
        id=row.id,
        leaderboard_id=found.leaderboard_id,
        leaderboard_name=row.leaderboard,
        file_name=row.file_name,
        user_id=str(found.user_id),  # clients read a string
        submission_time=row.submitted_at.isoformat(),
        done=row.done,
        code=found.code,
        runs=tuple(_run(run, row) for run in _last_attempt(found)),
        job=wire.JobState(job.status, job.error or None, iso(job.heartbeat_at)),
        runner_queue=None if row.done else runner_queue(session, row.gpu, job),
    )


def _last_attempt(found: SubmissionDetail) -> list[RunView]:
    return [run for run in found.runs if run.attempt == found.job.attempts]


def _run(run: RunView, row: SubmissionRow) -> wire.RunDetail:
    """A run; a score only where it is the submission's, for clients print every one that they find."""
    lines = pipe_lines(run.result) if run.result and not run.secret else None
    return wire.RunDetail(
        start_time=run.started_at.isoformat(),
        end_time=run.ended_at.isoformat(),
        mode=run.mode,
        secret=run.secret,
        runner=row.gpu,
        score=seconds(run.score_ns) if run.mode == row.mode else None,
        passed=run.passed,
        result=lines,
        report=run.report,
    )


def runner_queue(session: Session, gpu: str, job: JobView) -> wire.RunnerQueue:
    """What a submission waits for, in numbers and in a sentence."""
    counts = job_counts(session, gpu)
    queued, alive = counts.get("pending", 0), runners_alive(session, gpu)
    return wire.RunnerQueue(
        runner=job.runner,
        gpu=gpu,
        queued_jobs=queued,
        running_jobs=counts.get("running", 0),
        available_runners=alive,
        status=_waiting_for(job, gpu, queued, alive),
        error=None if alive or job.status != "pending" else f"no runner for {gpu} is connected",
        position=job.position,
    )


def _waiting_for(job: JobView, gpu: str, queued: int, alive: int) -> str:
    if job.status != "pending":
        return f"running: {_progress(job.progress)}" if job.progress else job.status
    again = f" again, attempt {job.attempts + 1}" if job.attempts else ""
    if not alive:
        return f"queued{again}, number {job.position} of {queued}; no runner for {gpu} is connected, it starts when one is"
    return f"queued{again}, number {job.position} of {queued} for {gpu}"


def _progress(progress: dict[str, Any]) -> str:
    secret = " (secret run)" if progress.get("secret") else ""
    return f"{progress.get('mode')}{secret}, case {progress.get('case')} of {progress.get('cases')}, {progress.get('phase')}"


def queue_of(session: Session, number: int) -> wire.RunnerQueue:
    """What a submission waits for, by its number."""
    job = session.scalars(select(Job).where(Job.submission_id == number)).one()
    return runner_queue(session, job.gpu, job_view(session, job))


def status_event(session: Session, number: int) -> wire.StatusEvent:
    """Where a submission is, in a line."""
    return wire.StatusEvent(f"submission {number}: {queue_of(session, number).status}")


def final_event(session: Session, number: int) -> tuple[str, dict[str, Any]]:
    """How a submission ended: `result` if it was evaluated, whatever the verdict, else `error`. For its author."""
    kept = session.get_one(Submission, number)
    runs = _results(session, kept)
    if not _is_verdict(kept.job.status, runs):
        event = wire.ErrorEvent("error", kept.job.error)
        return "error", {key: value for key, value in wire.to_json(event).items() if value is not None}
    found = submission(session, number, Identity(kept.user_id, kept.user.name, "user"))
    assert found is not None
    groups = [_full_result(runs, secret) for secret in (False, True) if any(link.secret is secret for link, _ in runs)]
    reports = tuple(run.report for run in _last_attempt(found))
    return "result", wire.to_json(wire.ResultEvent("success", tuple(groups), reports))


def _is_verdict(status: str, runs: Sequence[tuple[SubmissionRun, Result]]) -> bool:
    """Whether a job ended because its evaluation did: passed, or with a run that did not. Else it was cancelled, timed out, or
    broke off, and the runs that passed until then are no result."""
    if any(result.state is State.INTERRUPTED for _, result in runs):
        return False
    return status == "succeeded" or (status == "failed" and any(not link.passed for link, _ in runs))


def _results(session: Session, kept: Submission) -> list[tuple[SubmissionRun, Result]]:
    mine = (SubmissionRun.submission_id == kept.id, SubmissionRun.attempt == kept.job.attempts)
    query = select(SubmissionRun, Run.result).join(SubmissionRun.run).where(*mine).order_by(SubmissionRun.run_id)
    return [(link, read_result(text)) for link, text in session.execute(query)]


def _full_result(runs: Sequence[tuple[SubmissionRun, Result]], secret: bool) -> wire.FullResult:
    chosen = [(link, result) for link, result in runs if link.secret is secret]
    system = chosen[0][0].runner.system if chosen[0][0].runner else {}
    return full_result([(result, link.ended_at.isoformat()) for link, result in chosen], secret, system)


def seconds(score_ns: float | None) -> float | None:
    """A score on the wire: at full precision, so that ties are ties."""
    return None if score_ns is None else score_ns / NANOSECONDS


def iso(moment: datetime | None) -> str | None:
    """A time on the wire."""
    return moment.isoformat() if moment else None
