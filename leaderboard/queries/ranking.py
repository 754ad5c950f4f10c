"""Scores: who ranks where on which GPU, who was taken out, how the record fell.

A score ranks if the submission's secret-seed run passed too: its job ended as `succeeded`, in mode `leaderboard`. It is the
public run's, at full precision; one a user, the best; a submission marked as hacked is listed apart with the reason.
"""

import functools
from typing import Any

from sqlalchemy import Row, Select, and_, func, select
from sqlalchemy.orm import Session, aliased

from leaderboard.queries.views import Excluded, Rank, ScorePoint
from leaderboard.store.models import Device, Job, Leaderboard, Run, Submission, SubmissionRun, User

PublicLink, SecretLink = aliased(SubmissionRun), aliased(SubmissionRun)
PublicRun, SecretRun = aliased(Run), aliased(Run)


def ranking(session: Session, name: str, gpu: str) -> list[Rank]:
    """The best score of every user on a GPU, fastest first."""
    order = (PublicRun.score_ns, Submission.submitted_at, Submission.id)
    place = func.row_number().over(partition_by=Submission.user_id, order_by=order).label("place")
    of_user = _ranked(name, gpu).add_columns(place).subquery()
    ordered = (of_user.c.score_ns, of_user.c.submitted_at, of_user.c.id)
    rows = session.execute(select(of_user).where(of_user.c.place == 1).order_by(*ordered)).all()
    rank_of = {row.score_ns: index for index, row in reversed(list(enumerate(rows, start=1)))}
    return [_rank(row, rank_of[row.score_ns], rows[0].score_ns) for row in rows]


def _rank(row: Row[Any], rank: int, best_ns: float) -> Rank:
    return Rank(
        rank=rank,
        user=row.user,
        submission_id=row.id,
        score_ns=row.score_ns,
        secret_score_ns=row.secret_score_ns,
        gap=row.score_ns / best_ns - 1,
        submitted_at=row.submitted_at,
        device=row.device,
        file_name=row.file_name,
        sha256=row.code_sha256,
    )


def excluded(session: Session, name: str, gpu: str) -> list[Excluded]:
    """The submissions on a GPU that were marked as hacked, the latest first."""
    query = (
        select(User.name.label("user"), Submission.id, Submission.submitted_at, Submission.hacked_reason, PublicRun.score_ns)
        .join(Submission.user)
        .join(Submission.leaderboard)
        .join(Submission.job)
        .outerjoin(PublicLink, _links(PublicLink, secret=False))
        .outerjoin(PublicRun, PublicRun.id == PublicLink.run_id)
        .where(Leaderboard.name == name, Submission.gpu == gpu, Submission.hacked_reason.is_not(None))
        .order_by(Submission.id.desc())
    )
    return [Excluded(row.user, row.id, row.score_ns, row.submitted_at, row.hacked_reason) for row in session.execute(query)]


def history(session: Session, name: str, gpu: str, user: str | None = None) -> list[ScorePoint]:
    """Every score that ranks or was beaten by its own author, in order of time."""
    query = _ranked(name, gpu).order_by(Submission.submitted_at, Submission.id)
    if user is not None:
        query = query.where(User.name == user)
    points, record_ns = [], float("inf")
    for row in session.execute(query):
        points.append(ScorePoint(row.id, row.user, row.submitted_at, row.score_ns, row.score_ns < record_ns))
        record_ns = min(record_ns, row.score_ns)
    return points


@functools.lru_cache(maxsize=64)  # putting the statement together costs more than the database takes to answer it
def _ranked(name: str, gpu: str) -> Select:
    return (
        select(
            Submission.id, Submission.user_id, Submission.submitted_at, Submission.file_name, Submission.code_sha256,
            User.name.label("user"), Device.name.label("device"),
            PublicRun.score_ns.label("score_ns"), SecretRun.score_ns.label("secret_score_ns"),
        )
        .join(Submission.user)
        .join(Submission.leaderboard)
        .join(Submission.job)
        .join(PublicLink, _links(PublicLink, secret=False))
        .join(PublicRun, PublicRun.id == PublicLink.run_id)
        .join(Device, Device.id == PublicLink.device_id)
        .join(SecretLink, _links(SecretLink, secret=True))
        .join(SecretRun, SecretRun.id == SecretLink.run_id)
        .where(Leaderboard.name == name, Submission.gpu == gpu, Submission.mode == "leaderboard")
        .where(Job.status == "succeeded", Submission.hacked_reason.is_(None))
        .where(PublicLink.passed, SecretLink.passed, PublicRun.score_ns.is_not(None))
    )  # fmt: skip


def _links(link: Any, secret: bool) -> Any:
    """The scored run of a submission's last attempt."""
    return and_(
        link.submission_id == Submission.id, link.attempt == Job.attempts, link.mode == "leaderboard", link.secret.is_(secret)
    )
