"""The browser's side of a token: a cookie that scripts cannot read and forms of other sites do not send."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse

from leaderboard.accounts import exchange, identify
from leaderboard.api.auth import COOKIE
from leaderboard.errors import Forbidden
from leaderboard.store.database import Store
from leaderboard.web.csrf import FIELD, NOT_OURS, is_ours
from leaderboard.web.login import safe_goal

LIFETIME = timedelta(days=30)
FAILED = "/login?failed=1"


def router(store: Store) -> APIRouter:
    """POST /login and /logout; GET /login/TICKET, the link that `serve` prints."""
    routes = APIRouter(include_in_schema=False)

    @routes.post("/login")
    def login(
        request: Request, token: Annotated[str, Form()], goal: Annotated[str, Form(alias="next")] = "/"
    ) -> RedirectResponse:
        with store.reading() as session:
            known = identify(session, token.strip())
        if known is None or known.role == "runner":
            return RedirectResponse(FAILED, status_code=303)
        return _logged_in(request, token.strip(), safe_goal(goal))

    @routes.get("/login/{ticket}")
    def login_by_link(request: Request, ticket: str) -> RedirectResponse:
        with store.writing() as session:
            token = exchange(session, ticket, LIFETIME)
        return _logged_in(request, token, "/") if token else RedirectResponse(FAILED, status_code=303)

    @routes.post("/logout")
    def logout(request: Request, proof: Annotated[str, Form(alias=FIELD)] = "") -> RedirectResponse:
        if not is_ours(request, proof):
            raise Forbidden(NOT_OURS)
        answer = RedirectResponse("/", status_code=303)
        answer.delete_cookie(COOKIE)
        return answer

    return routes


def _logged_in(request: Request, token: str, goal: str) -> RedirectResponse:
    answer = RedirectResponse(goal, status_code=303)
    secure, seconds = request.url.scheme == "https", int(LIFETIME.total_seconds())
    answer.set_cookie(COOKIE, token, max_age=seconds, httponly=True, samesite="lax", secure=secure)
    return answer
