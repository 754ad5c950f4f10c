"""The pages' addresses: what each reads from the store, and who may see it. Rendering is elsewhere."""

from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, StreamingResponse
from sqlalchemy.orm import Session

from leaderboard import queries
from leaderboard.accounts import Identity
from leaderboard.api.auth import viewer_of
from leaderboard.errors import Forbidden, NotFound
from leaderboard.queries.views import Board, RunView, SubmissionDetail
from leaderboard.store.database import Store
from leaderboard.web import links
from leaderboard.web.actions import perform
from leaderboard.web.assets import asset
from leaderboard.web.board import BoardView, board_page
from leaderboard.web.compare import compare_page
from leaderboard.web.csrf import form_fields
from leaderboard.web.filters import filters_of
from leaderboard.web.gfx950_page import gfx950_page
from leaderboard.web.live import Live
from leaderboard.web.login import login_page, safe_goal
from leaderboard.web.overview import overview_page
from leaderboard.web.queue import queue_page
from leaderboard.web.recorded import recorded_page, recorded_run_page
from leaderboard.web.submission import SubmissionView, runs_of_last_attempt, submission_page
from leaderboard.web.user import Place, user_page
from leaderboard.web.visit import visit_of

LARGEST_ID = 2**63 - 1  # that the store's columns hold
OTHERS = 50  # submissions offered for comparison

Found = TypeVar("Found")
Fields = Annotated[dict[str, str], Depends(form_fields)]
Viewer = Annotated[Identity | None, Depends(viewer_of)]


def router(store: Store) -> APIRouter:
    """Every page, read from `store`. LeaderboardErrors go to whoever includes the router (leaderboard.web.errors)."""
    live = Live(store)
    pages = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
    _add_places(pages, store)
    _add_submissions(pages, store)
    _add_recorded(pages, store)

    @pages.get("/assets/{name}")
    def assets(name: str) -> Response:
        return _found(asset(name), f"asset {name!r}")

    @pages.get("/live")
    async def listen() -> Response:
        if live.full:
            return PlainTextResponse("too many pages listen", 503)
        return StreamingResponse(live.frames(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    @pages.get("/login")
    def login(request: Request, failed: str = "", next: str = "/") -> str:
        return login_page(visit_of(request), bool(failed), safe_goal(next))

    return pages


def _add_places(pages: APIRouter, store: Store) -> None:
    @pages.get("/")
    def overview(request: Request) -> str:
        with store.reading() as session:
            return overview_page(visit_of(request), queries.leaderboards(session), queries.queue(session))

    @pages.get("/board/{name}")
    @pages.get("/board/{name}/{gpu}")
    def board(request: Request, name: str, gpu: str | None = None) -> str:
        with store.reading() as session:
            view = _board_view(session, request, name, gpu)
        return board_page(visit_of(request), view, str(request.base_url).rstrip("/"))

    @pages.get("/queue")
    def queue(request: Request) -> str:
        with store.reading() as session:
            return queue_page(visit_of(request), queries.queue(session), queries.runners(session))

    @pages.get("/users/{name}")
    def user(request: Request, name: str) -> str:
        filters = filters_of(request)
        with store.reading() as session:
            rows = queries.submissions(session, **{**filters.query(), "user": name})
            places = _places(session, name)
        visit = visit_of(request)
        if not rows and not places and not filters.any and visit.name != name:
            raise NotFound(f"no user {name!r} who has submitted anything")
        return user_page(visit, name, places, rows, filters)


def _add_submissions(pages: APIRouter, store: Store) -> None:
    @pages.get("/submission/{number}")
    def submission(request: Request, viewer: Viewer, number: str, run: str = "") -> str:
        with store.reading() as session:
            view = _submission_view(session, viewer, number, run)
        return submission_page(visit_of(request), view)

    @pages.get("/submission/{number}/code")
    def code(viewer: Viewer, number: str) -> Response:
        with store.reading() as session:
            found = _with_code(session, viewer, number)
        headers = {
            "Content-Disposition": f'attachment; filename="submission-{found.row.id}.py"',
            "X-Content-Type-Options": "nosniff",
        }
        return PlainTextResponse(found.code, headers=headers)

    @pages.get("/submission/{number}/gfx950")
    def gfx950(request: Request, viewer: Viewer, number: str) -> str:
        with store.reading() as session:
            found = _with_code(session, viewer, number)
        return gfx950_page(visit_of(request), found)

    @pages.get("/submission/{number}/diff")
    def choose_diff(request: Request, number: str) -> Response:
        old = _number(request.query_params.get("from", ""))
        return RedirectResponse(links.diff(old, _number(number)), 303)

    @pages.get("/diff/{old}/{new}")
    def diff(request: Request, viewer: Viewer, old: str, new: str) -> str:
        with store.reading() as session:
            before, after = (_with_code(session, viewer, number) for number in (old, new))
        return compare_page(visit_of(request), before, after)

    @pages.post("/submission/{number}/{action}")
    def act(request: Request, viewer: Viewer, fields: Fields, number: str, action: str) -> Response:
        return RedirectResponse(perform(store, request, viewer, fields, _number(number), action), 303)


def _add_recorded(pages: APIRouter, store: Store) -> None:
    @pages.get("/history")
    def history(request: Request, viewer: Viewer, problem: str = "", device: str = "") -> str:
        _check_admin(viewer)
        problem, device = problem.strip(), device.strip()
        with store.reading() as session:
            rows = queries.recorded(session, problem or None, device or None)
        return recorded_page(visit_of(request), rows, problem, device)

    @pages.get("/history/{number}")
    def run(request: Request, viewer: Viewer, number: str) -> str:
        _check_admin(viewer)
        with store.reading() as session:
            result = _found(queries.recorded_result(session, _number(number)), f"recorded run {number}")
        return recorded_run_page(visit_of(request), _number(number), result)


def _check_admin(viewer: Identity | None) -> None:
    """Recorded runs say what their author's files printed and where they lie."""
    if viewer is None or not viewer.is_admin:
        raise Forbidden("recorded runs are for this server's administrators; the link that the server prints signs one in")


def _board_view(session: Session, request: Request, name: str, gpu: str | None) -> BoardView:
    board = _found(queries.board(session, name), f"leaderboard {name!r}")
    if gpu is not None and gpu not in board.gpus:
        raise NotFound(f"{board.name} has no device {gpu!r}; it has {', '.join(board.gpus) or 'none'}")
    gpu = gpu or _first_gpu(board)
    filters = filters_of(request)
    ranked = (session, board.name, gpu or "")
    rows = queries.submissions(session, leaderboard=board.name, gpu=gpu, **filters.query())
    return BoardView(board, gpu, queries.ranking(*ranked), queries.excluded(*ranked), queries.history(*ranked), rows, filters)


def _first_gpu(board: Board) -> str | None:
    """The device whose ranking is shown unasked: the first that has one."""
    return next((gpu for gpu in board.gpus if gpu in board.leaders), board.gpus[0] if board.gpus else None)


def _places(session: Session, name: str) -> list[Place]:
    found = []
    for board in queries.leaderboards(session):
        for gpu in board.leaders:
            found += [(board.name, gpu, rank) for rank in queries.ranking(session, board.name, gpu) if rank.user == name]
    return found


def _submission_view(session: Session, viewer: Identity | None, number: str, run: str) -> SubmissionView:
    detail = _detail(session, viewer, number)
    row = detail.row
    ranks = queries.ranking(session, row.leaderboard, row.gpu)
    place = next((rank for rank in ranks if rank.submission_id == row.id), None)
    own = queries.submissions(session, leaderboard=row.leaderboard, user=row.user, limit=OTHERS + 1) if detail.code else []
    return SubmissionView(detail, _shown_run(detail, run), place, [other for other in own if other.id != row.id])


def _shown_run(detail: SubmissionDetail, asked: str) -> RunView | None:
    """The run that is asked for, else the one that says most."""
    runs = runs_of_last_attempt(detail)
    return next((run for run in runs if str(run.run_id) == asked), runs[0] if runs else None)


def _detail(session: Session, viewer: Identity | None, number: str) -> SubmissionDetail:
    return _found(queries.submission(session, _number(number), viewer), f"submission {number}")


def _with_code(session: Session, viewer: Identity | None, number: str) -> SubmissionDetail:
    """A submission whose code the viewer may see. Raises NotFound, also where there is none: the two are not told apart."""
    detail = queries.submission(session, _number(number), viewer, with_runs=False)
    return _found(detail if detail and detail.code is not None else None, f"submission {number} of yours")


def _found(value: Found | None, what: str) -> Found:
    if value is None:
        raise NotFound(f"no {what}")
    return value


def _number(text: str) -> int:
    """A number in an address. Raises NotFound for anything else."""
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= LARGEST_ID):
        raise NotFound(f"no number {text!r}")
    return int(text)
