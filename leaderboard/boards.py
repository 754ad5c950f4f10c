"""Leaderboards: made of problem folders or of a competition's YAML, changed when these change, deleted."""

import re
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from leaderboard import audit
from leaderboard.errors import BadRequest, Conflict, NotFound
from leaderboard.problems import PackedProblem, pack_problem, problem_name
from leaderboard.store.models import Leaderboard, Problem, Submission
from leaderboard.submissions import remove
from popcorn.competition import load_competition
from popcorn.errors import PopcornError
from popcorn.taskfile import TaskFile

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # it stands in addresses
# First parts of addresses that mean something else.
RESERVED = frozenset(("admin", "auth", "gpus", "health", "leaderboards", "login", "logout", "runner", "submission", "user"))


@dataclass(frozen=True)
class BoardPlan:
    """What a leaderboard is to be made of."""

    name: str
    problem: PackedProblem
    task: TaskFile
    deadline: datetime | None = None


def read_plans(path: Path) -> list[BoardPlan]:
    """The leaderboards that a problem folder or a competition's YAML describes. Raises BadRequest."""
    if path.is_dir() or path.name == "task.yml":
        directory = path if path.is_dir() else path.parent
        problem, task = pack_problem(directory)
        return [BoardPlan(problem_name(directory, task), problem, task)]
    try:
        competition = load_competition(path)
    except PopcornError as error:
        raise BadRequest(str(error)) from None
    plans = []
    for entry in competition.problems:
        problem, task = pack_problem(path.parent / entry.directory)
        plans.append(BoardPlan(entry.name, problem, replace(task, gpus=entry.gpus or task.gpus), entry.deadline))
    return plans


def put_board(session: Session, plan: BoardPlan, actor: str) -> Leaderboard:
    """Make the leaderboard, or bring it up to date; its submissions stay. Raises BadRequest for a name that cannot be used."""
    if NAME.fullmatch(plan.name) is None or plan.name.lower() in RESERVED:
        raise BadRequest(f"{plan.name!r} cannot be a leaderboard's name: 1 to 64 letters, digits, dots, dashes; not reserved")
    board = find_board(session, plan.name)
    digest = plan.problem.sha256
    if session.get(Problem, digest) is None:
        session.add(Problem(sha256=digest, root=plan.problem.root, files=plan.problem.files))
        session.flush()
    values = {"description": plan.task.description, "problem_sha256": digest, "task": _task(plan.task)}
    if board is None:
        board = Leaderboard(name=plan.name, deadline=plan.deadline, **values)
        session.add(board)
        audit.record(session, actor, "create leaderboard", plan.name, digest)
    elif (board.problem_sha256, board.task, board.deadline) != (digest, values["task"], plan.deadline or board.deadline):
        board.description, board.problem_sha256, board.task = values["description"], digest, values["task"]
        board.deadline = plan.deadline or board.deadline
        audit.record(session, actor, "change leaderboard", board.name, digest)
    session.flush()
    return board


def find_board(session: Session, name: str) -> Leaderboard | None:
    """The leaderboard called `name` in any case: clients send names lower-cased."""
    return session.scalar(select(Leaderboard).where(func.lower(Leaderboard.name) == name.lower()))


def delete_board(session: Session, name: str, actor: str, force: bool) -> None:
    """Delete a leaderboard; one that has submissions only by force, and they go with it. Raises NotFound, Conflict."""
    board = find_board(session, name)
    if board is None:
        raise NotFound(f"no leaderboard {name!r}")
    held = session.scalars(select(Submission).where(Submission.leaderboard_id == board.id)).all()
    if held and not force:
        raise Conflict(f"{board.name} has {len(held)} submissions; `?force=true` (--force) deletes them too")
    for submission in held:
        remove(session, submission)
    session.delete(board)
    audit.record(session, actor, "delete leaderboard", board.name, f"{len(held)} submissions")


def _task(task: TaskFile) -> dict[str, object]:
    """What is shown of a task. No seed but the cases' own, which are public."""
    return {
        "lang": task.lang,
        "ranking_by": task.ranking_by,
        "gpus": list(task.gpus),
        "files": list(task.files),
        "test": [case.text for case in task.tests],
        "benchmark": [case.text for case in task.benchmarks],
        "timeouts_s": {mode: task.timeout_s(mode) for mode in ("test", "benchmark", "leaderboard")},
    }
