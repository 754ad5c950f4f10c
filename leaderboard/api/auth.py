"""Who a request comes from: a client id, a bearer token or the browser's cookie, whichever is there, in this order."""

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from leaderboard.accounts import LONGEST_TOKEN, SHORTEST_TOKEN, Identity, enrol, identify
from leaderboard.errors import Forbidden, NotLoggedIn
from leaderboard.store.database import Store

CLIENT_ID = "X-Popcorn-Cli-Id"
COOKIE = "kernelproof"
READING = ("GET", "HEAD")


def token_of(request: Request) -> str | None:
    """The token that a request carries in its headers."""
    if client_id := request.headers.get(CLIENT_ID):
        return client_id
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def holder_of(request: Request) -> Identity | None:
    """Who a request comes from, in whichever role; None for anybody. Found out once a request."""
    if not hasattr(request.state, "holder"):
        token = token_of(request) or request.cookies.get(COOKIE)
        request.state.holder = _identified(request, token) if token else None
    return request.state.holder


def viewer_of(request: Request) -> Identity | None:
    """Who looks at a page. A runner's token lends a GPU and shows nothing that anybody may not see."""
    holder = holder_of(request)
    return None if holder is None or holder.role == "runner" else holder


def _identified(request: Request, token: str) -> Identity | None:
    with _store(request).reading() as session:
        return identify(session, token)


def _caller_of(request: Request) -> Identity | None:
    """Who makes a call. Browsers send the cookie unasked, for pages of other programs on this machine too, so that what changes
    something by it needs a form of ours (leaderboard.web.csrf)."""
    return holder_of(request) if request.method in READING or token_of(request) else None


def user_of(request: Request) -> Identity:
    """Who submits, or asks for what is theirs. On an open server a client id never seen makes a new user.

    Raises NotLoggedIn, Forbidden.
    """
    if caller := _caller_of(request):
        if caller.role == "runner":
            raise Forbidden("a runner's token takes jobs and nothing else; submit with a token of the role user")
        return caller
    token, settings = request.headers.get(CLIENT_ID), request.app.state.settings
    if token and settings.open_registration:
        with _store(request).writing() as session:
            return enrol(session, token, settings.new_users_per_hour)
    raise NotLoggedIn(
        f"no valid client id; here any new one of {SHORTEST_TOKEN} to {LONGEST_TOKEN} characters (a UUID) makes a new user"
        if settings.open_registration
        else "no valid token; ask the server's administrator: `python -m leaderboard tokens create NAME` makes one, "
        "cli_id in ~/.popcorn.yaml takes it"
    )


def admin_of(request: Request) -> Identity:
    """An administrator. Raises NotLoggedIn, Forbidden."""
    return _in_role(request, "admin")


def runner_of(request: Request) -> Identity:
    """A runner, or an administrator. Raises NotLoggedIn, Forbidden."""
    return _in_role(request, "runner")


async def is_runner(request: Request) -> bool:
    """Whether a runner, or an administrator, makes this call; asked before its body is read."""
    holder = await run_in_threadpool(_caller_of, request)
    return holder is not None and (holder.is_admin or holder.role == "runner")


def _in_role(request: Request, role: str) -> Identity:
    caller = _caller_of(request)
    if caller is None:
        raise NotLoggedIn(f"no valid token; this call needs `Authorization: Bearer` with a token of the role {role}")
    if not caller.is_admin and caller.role != role:
        raise Forbidden(f"a token of the role {caller.role} may not do this; it needs the role {role}")
    return caller


def _store(request: Request) -> Store:
    return request.app.state.store
