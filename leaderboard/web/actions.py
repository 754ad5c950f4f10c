"""What a form can do to a submission; who may is decided by leaderboard.submissions."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from fastapi import Request
from sqlalchemy.orm import Session

from leaderboard import submissions
from leaderboard.accounts import Identity
from leaderboard.errors import Forbidden, NotFound, NotLoggedIn
from leaderboard.store.database import Store
from leaderboard.web import links
from leaderboard.web.csrf import FIELD, NOT_OURS, is_ours

Act = Callable[[Session, int, Identity], None]
ACTIONS: Mapping[str, Act] = MappingProxyType({"cancel": submissions.cancel, "delete": submissions.delete})


def perform(
    store: Store, request: Request, viewer: Identity | None, fields: Mapping[str, str], number: int, action: str
) -> str:
    """Do it; the address to go to then. Raises NotFound, NotLoggedIn, Forbidden, Conflict."""
    act = ACTIONS.get(action)
    if act is None:
        raise NotFound(f"no action {action!r}")
    if viewer is None:
        raise NotLoggedIn("sign in first")
    if not is_ours(request, fields.get(FIELD, "")):
        raise Forbidden(NOT_OURS)
    with store.writing() as session:
        act(session, number, viewer)
    return links.user(viewer.name) if action == "delete" else links.submission(number)
