"""Runs that `eval.py --record` has kept in the same store: those that belong to no submission."""

import json

from sqlalchemy import exists, func, select
from sqlalchemy.orm import Session

from harness.result import Result, result_from_json
from leaderboard.queries.views import Recorded
from leaderboard.store.models import Run, SubmissionRun

NOBODYS = ~exists().where(SubmissionRun.run_id == Run.id)


def recorded(session: Session, problem: str | None = None, device: str | None = None, limit: int = 200) -> list[Recorded]:
    """The latest runs, oldest first; `device` is a part of the device's name, in any case."""
    query = select(Run).where(NOBODYS)
    if problem is not None:
        query = query.where(Run.problem == problem)
    if device is not None:
        query = query.where(func.lower(Run.device).contains(device.lower(), autoescape=True))
    rows = session.scalars(query.order_by(Run.started_at.desc(), Run.id.desc()).limit(limit)).all()
    return [
        Recorded(
            row.id, row.started_at, row.problem, row.mode, row.policy, row.cases_from, row.device, row.submission, row.sha256,
            row.state, row.passed, row.cases_total, row.score_ns,
        )
        for row in reversed(rows)
    ]  # fmt: skip


def recorded_result(session: Session, run_id: int) -> Result | None:
    """The Result of such a run."""
    text = session.scalar(select(Run.result).where(Run.id == run_id, NOBODYS))
    return result_from_json(json.loads(text)) if text else None
