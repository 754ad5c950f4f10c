"""How much one user may ask for. The audit log is counted, so that deleting a submission does not win back its place."""

import math
from datetime import timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from leaderboard.accounts import Identity
from leaderboard.errors import LimitReached
from leaderboard.settings import Settings
from leaderboard.store.columns import utc_now
from leaderboard.store.models import Audit, Job

WINDOW = timedelta(hours=1)
RETRY_WAITING_S = 30  # jobs end when they end


def check_limits(session: Session, user: Identity, board: str, mode: str, settings: Settings) -> None:
    """Raise LimitReached if the user may not submit to this leaderboard in this mode now."""
    _check_rate(session, user, board, mode, settings.limits_per_hour[mode])
    _check_unfinished(session, user, settings.max_unfinished)


def submit_target(board: str, mode: str) -> str:
    """What the audit log calls a submission to a leaderboard in a mode."""
    return f"{board}/{mode}"


def _check_rate(session: Session, user: Identity, board: str, mode: str, limit: int) -> None:
    now = utc_now()
    made = (Audit.actor == user.name, Audit.action == "submit", Audit.target == submit_target(board, mode))
    query = select(Audit.at).where(*made, Audit.at > now - WINDOW).order_by(Audit.at.desc()).limit(limit)
    recent = session.scalars(query).all()
    if len(recent) < limit:
        return
    first = recent[-1] if recent else now
    wait_s = max(1, math.ceil((first + WINDOW - now).total_seconds()))
    count = f"{len(recent)} {mode} submissions to {board} in the last hour"
    raise LimitReached(f"{count}, and {limit} are allowed; the next one in {wait_s} s", wait_s)


def _check_unfinished(session: Session, user: Identity, limit: int) -> None:
    waiting = (Job.user_id == user.user_id, Job.status.in_(("pending", "running")))
    count = session.scalar(select(func.count()).where(*waiting)) or 0
    if count >= limit:
        raise LimitReached(
            f"{count} of your submissions wait or run, and {limit} may; cancel some, or try again when some have ended",
            RETRY_WAITING_S,
        )
