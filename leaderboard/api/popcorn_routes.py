"""The calls that popcorn clients make."""

import uuid
from typing import Annotated, Any

from fastapi import APIRouter, Depends, UploadFile
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, StreamingResponse
from sqlalchemy import text

from leaderboard import queries, submissions
from leaderboard.accounts import Identity
from leaderboard.api import events, wire
from leaderboard.api.auth import user_of
from leaderboard.api.parameters import Limit, Number
from leaderboard.boards import find_board
from leaderboard.errors import BadRequest, Forbidden, NotFound
from leaderboard.queries.boards import gpus_of
from leaderboard.settings import Settings
from leaderboard.store.database import Store
from leaderboard.store.models import Leaderboard
from popcorn.http_models import Accepted, JobIds, to_json

PROVIDERS = ("discord", "github")
User = Annotated[Identity, Depends(user_of)]


def router(store: Store, settings: Settings) -> APIRouter:
    """The routes. The one with three free parts comes last: put this router behind every other."""
    routes = APIRouter()
    _public(routes, store, settings)
    _own(routes, store)
    _waiting(routes, store, events.Waiters(settings.max_waiting_clients), settings)
    return routes


def _public(routes: APIRouter, store: Store, settings: Settings) -> None:
    @routes.get("/leaderboards")
    def leaderboards() -> list[dict[str, Any]]:
        with store.reading() as session:
            return [wire.leaderboard_json(board) for board in queries.leaderboards(session)]

    @routes.get("/gpus/{name}")
    def gpus(name: str) -> list[str]:
        with store.reading() as session:
            return list(gpus_of(session, _board(find_board(session, name), name)))

    @routes.get("/auth/init")
    def init(provider: str = PROVIDERS[0]) -> dict[str, str]:
        if provider not in PROVIDERS:
            raise BadRequest(f"provider {provider!r} is unknown; known are {', '.join(PROVIDERS)}")
        if not settings.open_registration:
            raise Forbidden("this server's administrator makes the tokens; put yours into ~/.popcorn.yaml as cli_id")
        return {"state": str(uuid.uuid4())}  # the client's from now on; its first call makes the user

    @routes.get("/health")
    def health() -> dict[str, str]:
        with store.reading() as session:
            session.execute(text("SELECT 1"))
        return {"status": "ok"}


def _own(routes: APIRouter, store: Store) -> None:
    @routes.get("/user/whoami")
    def whoami(user: User) -> dict[str, str]:
        return {"name": user.name, "role": user.role}

    @routes.get("/user/submissions")
    def mine(user: User, leaderboard: str | None = None, limit: Limit = 50) -> Any:
        with store.reading() as session:
            board = _board(find_board(session, leaderboard), leaderboard).name if leaderboard else None
            rows = queries.submissions(session, leaderboard=board, user=user.name, limit=limit)
            return [to_json(wire.summary(row)) for row in rows]

    @routes.get("/user/submissions/{number}")
    def one(number: Number, user: User) -> Any:
        with store.reading() as session:
            return to_json(_found(wire.detail(session, number, user), number))

    @routes.delete("/user/submissions/{number}")
    def delete(number: Number, user: User) -> dict[str, Any]:
        with store.writing() as session:
            submissions.delete(session, number, user)
        return {"status": "ok", "submission_id": number}

    @routes.post("/user/submissions/{number}/cancel")
    def cancel(number: Number, user: User) -> dict[str, Any]:
        with store.writing() as session:
            submissions.cancel(session, number, user)
        return {"status": "ok", "submission_id": number}


def _waiting(routes: APIRouter, store: Store, waiters: events.Waiters, settings: Settings) -> None:
    def accept(user: Identity, board: str, gpu: str, mode: str, name: str | None, content: bytes) -> Accepted:
        offer = submissions.Offer(gpu, mode, name or "", content)
        with store.writing() as session:
            kept = submissions.accept(session, user, _board(find_board(session, board), board), offer, settings)
            ids = JobIds(kept.id, kept.job.id)
            return Accepted(ids, wire.queue_of(session, kept.id))

    @routes.post("/submission/{board}/{gpu}/{mode}", status_code=202)
    async def submit(board: str, gpu: str, mode: str, file: UploadFile, user: User) -> JSONResponse:
        accepted = await run_in_threadpool(accept, user, board, gpu, mode, file.filename, await file.read())
        return JSONResponse(to_json(accepted), status_code=202)

    @routes.get("/user/submissions/{number}/events")
    async def follow(number: Number, user: User) -> StreamingResponse:
        with waiters.seat(user) as seat:
            await run_in_threadpool(_must_be_theirs, store, number, user)
            return events.EventAnswer(events.frames_of(store, number), seat)

    @routes.post("/{board}/{gpu}/{mode}")
    async def submit_and_follow(board: str, gpu: str, mode: str, file: UploadFile, user: User) -> StreamingResponse:
        with waiters.seat(user) as seat:
            accepted = await run_in_threadpool(accept, user, board, gpu, mode, file.filename, await file.read())
            return events.EventAnswer(events.frames_of(store, accepted.details.id), seat)


def _board(found: Leaderboard | None, name: str | None) -> Leaderboard:
    if found is None:
        raise NotFound(f"no leaderboard {name!r}; GET /leaderboards lists them")
    return found


def _found(detail: Any, number: int) -> Any:
    if detail is None:
        raise NotFound(f"no submission {number} of yours")
    return detail


def _must_be_theirs(store: Store, number: int, user: Identity) -> None:
    with store.reading() as session:
        if not queries.may_see_code(session, number, user):
            raise NotFound(f"no submission {number} of yours")
