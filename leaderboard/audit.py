"""The audit log: who did what to what. It is only ever added to, and what limits count."""

from sqlalchemy.orm import Session

from leaderboard.store.models import Audit

LONGEST_DETAIL = 2000


def record(session: Session, actor: str, action: str, target: str, detail: str = "") -> None:
    """One line of the log, kept if and only if the change that it tells of is."""
    session.add(Audit(actor=actor[:64], action=action, target=target[:255], detail=detail[:LONGEST_DETAIL]))
