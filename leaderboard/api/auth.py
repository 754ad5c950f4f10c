"""Who a request comes from: a client id, a bearer token or the browser's cookie, whichever is there, in this order."""

from fastapi import Request

from leaderboard.accounts import Identity, enrol, identify
from leaderboard.errors import Forbidden, NotLoggedIn
from leaderboard.store.database import Store

CLIENT_ID = "X-Popcorn-Cli-Id"
COOKIE = "kernelproof"


def token_of(request: Request) -> str | None:
    """The token that a request carries."""
    if client_id := request.headers.get(CLIENT_ID):
        return client_id
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else request.cookies.get(COOKIE)


def viewer_of(request: Request) -> Identity | None:
    """Who is looking; None for anybody. For pages and calls that everybody may read."""
    token = token_of(request)
    if not token:
        return None
    with _store(request).reading() as session:
        return identify(session, token)


def user_of(request: Request) -> Identity:
    """Who submits, or asks for what is theirs. On an open server a client id never seen makes a new user.

    Raises NotLoggedIn.
    """
    if viewer := viewer_of(request):
        return viewer
    token = request.headers.get(CLIENT_ID)
    if token and request.app.state.settings.open_registration:
        with _store(request).writing() as session:
            return enrol(session, token)
    raise NotLoggedIn(
        "no valid client id; run `popcorn register`, or ask the server's administrator for a token"
        if request.app.state.settings.open_registration
        else "no valid token; ask the server's administrator: `python -m leaderboard tokens create NAME` makes one, "
        "cli_id in ~/.popcorn.yaml takes it"
    )


def admin_of(request: Request) -> Identity:
    """An administrator. Raises NotLoggedIn, Forbidden."""
    return _in_role(request, "admin")


def runner_of(request: Request) -> Identity:
    """A runner, or an administrator. Raises NotLoggedIn, Forbidden."""
    return _in_role(request, "runner")


def _in_role(request: Request, role: str) -> Identity:
    viewer = viewer_of(request)
    if viewer is None:
        raise NotLoggedIn(f"no valid token; this call needs `Authorization: Bearer` with a token of the role {role}")
    if not viewer.is_admin and viewer.role != role:
        raise Forbidden(f"a token of the role {viewer.role} may not do this; it needs the role {role}")
    return viewer


def _store(request: Request) -> Store:
    return request.app.state.store
