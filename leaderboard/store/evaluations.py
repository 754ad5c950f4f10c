"""An evaluation in the store: harness.history's rows, made of a Result."""

import functools
import json

from sqlalchemy.orm import Session

from harness.history import case_columns, run_columns
from harness.result import Result, result_from_json
from leaderboard.store.models import Case, Run


def keep_result(session: Session, result: Result) -> Run:
    """The row of an evaluation, its cases beside it."""
    run = Run(**run_columns(result))
    session.add(run)
    session.flush()
    session.add_all(Case(run_id=run.id, position=position, **case_columns(case)) for position, case in enumerate(result.cases))
    return run


@functools.lru_cache(maxsize=128)  # clients poll: reading a Result takes more time than all else that an answer needs
def read_result(text: str) -> Result:
    """The Result that a row holds as JSON."""
    return result_from_json(json.loads(text))
