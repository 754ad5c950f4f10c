"""The application: routes, errors, and the one task that runs beside requests."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from fastapi import Depends, FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from leaderboard import jobs
from leaderboard.api import admin_routes, login, popcorn_routes, runner_routes
from leaderboard.api.auth import is_runner
from leaderboard.api.guard import Guard
from leaderboard.api.parameters import check_address
from leaderboard.errors import LeaderboardError, LimitReached, StoreError
from leaderboard.settings import Settings
from leaderboard.store.database import Store
from leaderboard.web import pages
from leaderboard.web.errors import error_page, wants_html

log = logging.getLogger("leaderboard")
REAP_S = 5.0


def create_app(store: Store, settings: Settings) -> FastAPI:
    """The server's application over a migrated store."""

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await run_in_threadpool(_renew, store, settings)
        reaper = asyncio.create_task(_reap(store))
        yield
        reaper.cancel()

    app = FastAPI(
        title="Kernelproof leaderboard", lifespan=lifespan, dependencies=[Depends(check_address)],
        docs_url=None, redoc_url=None, openapi_url=None,
    )  # fmt: skip
    app.state.store, app.state.settings = store, settings
    app.include_router(runner_routes.router(store, settings))
    app.include_router(admin_routes.router(store, settings))
    app.include_router(login.router(store))
    app.include_router(pages.router(store))
    app.include_router(popcorn_routes.router(store, settings))
    app.add_exception_handler(LeaderboardError, _known)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(Exception, _unknown)
    app.add_middleware(Guard, body_timeout_s=settings.body_timeout_s, is_runner=is_runner)
    return app


def _renew(store: Store, settings: Settings) -> None:
    with store.writing() as session:
        jobs.renew_leases(session, settings.lease_s)


async def _reap(store: Store) -> None:
    """Give back the jobs of dead runners even where no other runner asks for work."""
    while True:
        await asyncio.sleep(REAP_S)
        try:
            await run_in_threadpool(_reap_once, store)
        except LeaderboardError as error:
            log.warning("%s", error)


def _reap_once(store: Store) -> None:
    with store.writing() as session:
        for number in jobs.reap(session):
            log.warning("job %d: its runner fell silent", number)


def _answer(request: Request, status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    if wants_html(request):
        page = error_page(request, status, detail)
        page.headers.update(headers or {})
        return page
    return JSONResponse({"detail": detail}, status_code=status, headers=headers)


def _known(request: Request, error: Exception) -> Response:
    assert isinstance(error, LeaderboardError)
    if isinstance(error, StoreError):
        log.error("%s", error)
    headers = {"Retry-After": str(error.retry_after_s)} if isinstance(error, LimitReached) else None
    return _answer(request, error.status_code, error.told, headers)


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = f"{error.detail}: {request.method} {request.url.path}"
    return _answer(request, error.status_code, detail, dict(error.headers or {}))


def _malformed(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = [f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in error.errors()]
    return _answer(request, 422, "; ".join(faults))


def _unknown(request: Request, error: Exception) -> Response:
    log.error("%s %s", request.method, request.url.path, exc_info=error)
    return JSONResponse({"detail": "the server has made a mistake; its log says which"}, status_code=500)
