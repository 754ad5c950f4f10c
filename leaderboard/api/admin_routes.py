"""The calls of administrators."""

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict
from sqlalchemy import func, select

from leaderboard import audit, boards, queries, submissions
from leaderboard.accounts import Identity
from leaderboard.api import wire
from leaderboard.api.auth import admin_of
from leaderboard.api.parameters import Limit, Number
from leaderboard.errors import BadRequest, NotFound
from leaderboard.queries.live import job_counts
from leaderboard.settings import Settings
from leaderboard.store.database import Store
from leaderboard.store.models import Audit, Setting, Submission, User
from popcorn.http_models import to_json

Admin = Annotated[Identity, Depends(admin_of)]


class Folder(BaseModel):
    """The folder of a new leaderboard."""

    model_config = ConfigDict(extra="ignore")
    directory: str


class Reason(BaseModel):
    """Why a submission is taken out."""

    model_config = ConfigDict(extra="forbid")
    reason: str


def router(store: Store, settings: Settings) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/admin")
    _server(routes, store)
    _submissions(routes, store)
    _leaderboards(routes, store, settings.problem_root.resolve())
    return routes


def _server(routes: APIRouter, store: Store) -> None:
    @routes.post("/start")
    def start(admin: Admin) -> dict[str, Any]:
        with store.writing() as session:
            if stopped := session.get(Setting, submissions.STOPPED):
                session.delete(stopped)
            audit.record(session, admin.name, "start", "server")
        return {"status": "ok", "accepting": True}

    @routes.post("/stop")
    def stop(admin: Admin) -> dict[str, Any]:
        with store.writing() as session:
            session.merge(Setting(key=submissions.STOPPED, value=admin.name))
            audit.record(session, admin.name, "stop", "server")
        return {"status": "ok", "accepting": False}

    @routes.get("/stats")
    def stats(admin: Admin) -> dict[str, Any]:
        with store.reading() as session:
            counts = {kind.__tablename__: session.scalar(select(func.count()).select_from(kind)) for kind in (User, Submission)}
            alive = [runner for runner in queries.runners(session) if runner.state != "lost"]
            accepting = session.get(Setting, submissions.STOPPED) is None
            return {**counts, "jobs": job_counts(session), "runners": [runner.name for runner in alive], "accepting": accepting}

    @routes.get("/audit")
    def log(admin: Admin, limit: Limit = 200) -> list[dict[str, Any]]:
        with store.reading() as session:
            rows = session.scalars(select(Audit).order_by(Audit.id.desc()).limit(limit))
            names = ("actor", "action", "target", "detail")
            return [{"at": row.at.isoformat(), **{name: getattr(row, name) for name in names}} for row in rows]


def _submissions(routes: APIRouter, store: Store) -> None:
    @routes.get("/submissions/{number}")
    def one(number: Number, admin: Admin) -> Any:
        with store.reading() as session:
            found = wire.detail(session, number, admin)
        if found is None:
            raise NotFound(f"no submission {number}")
        return to_json(found)

    @routes.delete("/submissions/{number}")
    def delete(number: Number, admin: Admin) -> dict[str, Any]:
        with store.writing() as session:
            submissions.delete(session, number, admin)
        return {"status": "ok", "submission_id": number}

    @routes.post("/submissions/{number}/hacked")
    def mark_hacked(number: Number, body: Reason, admin: Admin) -> dict[str, Any]:
        with store.writing() as session:
            submissions.mark_hacked(session, number, body.reason, admin)
        return {"status": "ok", "submission_id": number}


def _leaderboards(routes: APIRouter, store: Store, root: Path) -> None:
    @routes.post("/leaderboards")
    def create(body: Folder, admin: Admin) -> dict[str, Any]:
        plans = boards.read_plans(_below(root, body.directory))
        with store.writing() as session:
            names = [boards.put_board(session, plan, admin.name).name for plan in plans]
        return {"status": "ok", "leaderboard": names[0] if len(names) == 1 else names}

    @routes.delete("/leaderboards/{name}")
    def delete(name: str, admin: Admin, force: bool = False) -> dict[str, Any]:
        with store.writing() as session:
            boards.delete_board(session, name, admin.name, force)
        return {"status": "ok", "leaderboard": name}


def _below(root: Path, directory: str) -> Path:
    """The folder that a request names. Raises BadRequest if it lies outside the server's problem folder."""
    if "\0" in directory:
        raise BadRequest("a folder's name has no NUL in it")
    path = (root / directory).resolve()
    if not path.is_relative_to(root):
        raise BadRequest(f"{directory!r} is not below the server's problem folder; `serve --problem-root` names another")
    return path
