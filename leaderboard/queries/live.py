"""What happens now: the queue in the order in which it will be run, and the runners."""

import functools
from datetime import timedelta

from sqlalchemy import Subquery, func, select
from sqlalchemy.orm import Session, joinedload

from leaderboard.queries.views import JobView, QueueRow, RunnerView
from leaderboard.store.columns import utc_now
from leaderboard.store.models import Job, Runner, Submission

LOST_AFTER = timedelta(seconds=60)  # a runner reports every few seconds, busy or idle


@functools.lru_cache(maxsize=64)  # putting the statement together costs more than the database takes to answer it
def order_of(gpu: str | None = None) -> Subquery:
    """The pending jobs as (id, gpu, position from 1): users take turns, and a user's own jobs run in order of submission.

    First the first job of every user, then every second one; among users whoever was served longest ago.
    """
    turn = func.row_number().over(partition_by=(Job.gpu, Job.user_id), order_by=Job.id)
    served = (
        select(Job.user_id, Job.gpu, func.max(Job.started_at).label("at"))
        .where(Job.started_at.is_not(None))
        .group_by(Job.user_id, Job.gpu)
        .subquery()
    )
    waiting = (
        select(Job.id, Job.gpu, turn.label("turn"), served.c.at)
        .outerjoin(served, (served.c.user_id == Job.user_id) & (served.c.gpu == Job.gpu))
        .where(Job.status == "pending", *([Job.gpu == gpu] if gpu else []))
        .subquery()
    )
    order = (waiting.c.turn, waiting.c.at.asc().nulls_first(), waiting.c.id)
    position = func.row_number().over(partition_by=waiting.c.gpu, order_by=order)
    return select(waiting.c.id, waiting.c.gpu, position.label("position")).subquery()


def queue(session: Session) -> list[QueueRow]:
    """The running jobs, then the pending ones in the order in which they will be run."""
    order = order_of()
    everything = (
        joinedload(Job.runner),
        joinedload(Job.submission).options(joinedload(Submission.user), joinedload(Submission.leaderboard)),
    )
    running = session.scalars(select(Job).where(Job.status == "running").options(*everything).order_by(Job.started_at))
    rows = [_queue_row(job, None) for job in running]
    pending = select(Job, order.c.position).join(order, order.c.id == Job.id).options(*everything)
    found = session.execute(pending.order_by(order.c.position, Job.gpu))
    return [*rows, *(_queue_row(job, position) for job, position in found)]


def position_of(session: Session, job: Job) -> int | None:
    """A pending job's place in the queue of its GPU, from 1."""
    if job.status != "pending":
        return None
    order = order_of(job.gpu)
    return session.scalar(select(order.c.position).where(order.c.id == job.id))


def job_view(session: Session, job: Job) -> JobView:
    """A job with its place in the queue."""
    return _job_view(job, position_of(session, job))


def job_counts(session: Session, gpu: str | None = None) -> dict[str, int]:
    """How many jobs have each status, on one GPU or in all."""
    query = select(Job.status, func.count()).where(*([Job.gpu == gpu] if gpu else [])).group_by(Job.status)
    return {row[0]: row[1] for row in session.execute(query)}


def runners(session: Session) -> list[RunnerView]:
    """Every runner that was seen within a day, or is needed: the lost ones last."""
    since = utc_now() - timedelta(days=1)
    busy = {job.runner_id: job.submission_id for job in session.scalars(select(Job).where(Job.status == "running"))}
    query = select(Runner).where(Runner.last_seen_at > since).options(joinedload(Runner.device))
    found = session.scalars(query.order_by(Runner.name, Runner.id))
    views = [_runner_view(runner, busy.get(runner.id)) for runner in found]
    return sorted(views, key=lambda view: view.state == "lost")


def runners_alive(session: Session, gpu: str) -> int:
    """How many runners of a GPU have been heard of lately."""
    since = utc_now() - LOST_AFTER
    return session.scalar(select(func.count()).where(Runner.gpu == gpu, Runner.last_seen_at > since)) or 0


def _queue_row(job: Job, position: int | None) -> QueueRow:
    kept = job.submission
    return QueueRow(_job_view(job, position), kept.id, kept.leaderboard.name, kept.gpu, kept.mode, kept.user.name)


def _job_view(job: Job, position: int | None) -> JobView:
    return JobView(
        id=job.id,
        status=job.status,
        error=job.error,
        attempts=job.attempts,
        position=position,
        runner=job.runner.name if job.runner else None,
        heartbeat_at=job.heartbeat_at,
        created_at=job.created_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        progress=job.progress,
    )


def _runner_view(runner: Runner, submission_id: int | None) -> RunnerView:
    lost = utc_now() - runner.last_seen_at > LOST_AFTER
    state = "lost" if lost else "busy" if submission_id else "idle"
    return RunnerView(runner.name, runner.gpu, runner.device.name, runner.last_seen_at, state, submission_id)
