"""The leaderboards themselves."""

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from leaderboard.queries.ranking import ranking
from leaderboard.queries.views import Board
from leaderboard.store.columns import utc_now
from leaderboard.store.models import Leaderboard, Runner, Submission


def leaderboards(session: Session) -> list[Board]:
    """Every leaderboard, the open ones first, then by name."""
    boards = [_board(session, row) for row in session.scalars(select(Leaderboard).order_by(Leaderboard.name))]
    return sorted(boards, key=lambda board: not board.is_open)


def board(session: Session, name: str) -> Board | None:
    """The leaderboard called `name`, in any case."""
    row = session.scalar(select(Leaderboard).where(func.lower(Leaderboard.name) == name.lower()))
    return _board(session, row) if row else None


def gpus_of(session: Session, row: Leaderboard) -> tuple[str, ...]:
    """The GPUs that submissions may name: those of task.yml, then what runners have offered."""
    offered = session.scalars(select(Runner.gpu).distinct().order_by(Runner.gpu))
    return tuple(dict.fromkeys([*row.task["gpus"], *offered]))


def is_open(row: Leaderboard) -> bool:
    """Whether the deadline is still to come."""
    return row.deadline is None or utc_now() < row.deadline


def _board(session: Session, row: Leaderboard) -> Board:
    counts = select(func.count(), func.count(Submission.user_id.distinct())).where(Submission.leaderboard_id == row.id)
    submissions, users = session.execute(counts).one()
    gpus = gpus_of(session, row)
    first = {gpu: ranked[0] for gpu in gpus if (ranked := ranking(session, row.name, gpu))}
    cases = {kind: row.task[kind] for kind in ("test", "benchmark")}
    return Board(
        row.name, row.description, row.deadline, is_open(row), gpus, row.task["ranking_by"], cases, submissions, users, first
    )
