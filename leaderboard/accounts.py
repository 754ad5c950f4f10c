"""Users and their tokens. A token is shown once, when it is made; the store keeps its SHA-256."""

import hashlib
import math
import re
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, joinedload

from leaderboard.errors import BadRequest, LimitReached, NotFound
from leaderboard.store.columns import utc_now
from leaderboard.store.models import ROLES, Token, User

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}")
SHORTEST_TOKEN = 16  # characters; what clients make up themselves is a UUID
LONGEST_TOKEN = 256
NAME_DIGITS = 12  # of a token's digest in the name of its user
RETRY_S = 3600
PREFIX = "kp_"  # so that secret scanners, and people, know a token when they see one
TICKET_PREFIX = "kpt_"  # of a link that signs in once; nothing else is taken for one
NEW_USERS_WINDOW = timedelta(hours=1)


@dataclass(frozen=True)
class Identity:
    """Who a request comes from."""

    user_id: int
    name: str
    role: str  # user, runner, admin

    @property
    def is_admin(self) -> bool:
        """Whether everything is allowed."""
        return self.role == "admin"


def token_digest(token: str) -> str:
    """What the store knows of a token. Tokens are random, so that a plain hash cannot be guessed back."""
    return hashlib.sha256(token.encode()).hexdigest()


def identify(session: Session, token: str) -> Identity | None:
    """Whose token this is; None if it is unknown, revoked or expired."""
    found = session.scalar(select(Token).where(Token.sha256 == token_digest(token)).options(joinedload(Token.user)))
    if found is None or found.revoked_at or (found.expires_at and found.expires_at <= utc_now()):
        return None
    return Identity(found.user_id, found.user.name, found.role)


def make_user(session: Session, name: str) -> User:
    """The user called `name`, new if there is none. Raises BadRequest for a name that cannot be shown safely."""
    if NAME.fullmatch(name) is None:
        raise BadRequest(f"the name {name!r} is not 1 to 63 letters, digits, blanks, dots and dashes, a letter or digit first")
    user = session.scalar(select(User).where(User.name == name))
    if user is None:
        user = User(name=name)
        session.add(user)
        session.flush()
    return user


def make_token(session: Session, name: str, role: str = "user", lifetime: timedelta | None = None, token: str = "") -> str:
    """A token of `name` in a role; `token` is one that the client has made up."""
    if role not in ROLES:
        raise BadRequest(f"the role {role!r} is unknown; known are {', '.join(ROLES)}")
    token = token or PREFIX + secrets.token_urlsafe(32)
    expires_at: datetime | None = utc_now() + lifetime if lifetime else None
    session.add(Token(user_id=make_user(session, name).id, role=role, sha256=token_digest(token), expires_at=expires_at))
    session.flush()
    return token


def enrol(session: Session, token: str, new_users_per_hour: int) -> Identity:
    """Whose token this is; one never seen makes a new user. For servers where anybody who can connect may submit.

    Raises BadRequest for a token short enough to be guessed, NotFound for one that was revoked or has expired, LimitReached
    when too many have come: who may be a new user at every call has no limits.
    """
    if known := identify(session, token):
        return known
    if not SHORTEST_TOKEN <= len(token) <= LONGEST_TOKEN:
        said = f"a client id has {SHORTEST_TOKEN} to {LONGEST_TOKEN} characters, not {len(token)}"
        raise BadRequest(f"{said}; put another, such as a UUID, into POPCORN_CLI_ID or as cli_id into ~/.popcorn.yaml")
    _check_new_users(session, new_users_per_hour)
    try:
        with session.begin_nested():
            user = User(name=f"user-{token_digest(token)[:NAME_DIGITS]}")  # a new one: a name is no proof of whose it is
            session.add_all((user, Token(user=user, role="user", sha256=token_digest(token))))
    except IntegrityError:  # enrolled by another request in this moment, or revoked
        pass
    if known := identify(session, token):
        return known
    raise NotFound("this client id is no longer valid; a new one, such as a UUID, makes a new user")


def _check_new_users(session: Session, limit: int) -> None:
    since = utc_now() - NEW_USERS_WINDOW
    times = session.scalars(select(User.created_at).where(User.created_at > since).order_by(User.created_at)).all()
    if len(times) >= limit:
        wait_s = max(1, math.ceil((times[len(times) - limit] - since).total_seconds())) if limit else RETRY_S
        said = f"{len(times)} new users in the last hour, and {limit} are taken"
        raise LimitReached(f"{said}; come back in {wait_s} s, or ask the server's administrator for a token", wait_s)


def make_ticket(session: Session, name: str, role: str, lifetime: timedelta) -> str:
    """What `exchange` takes, once."""
    return make_token(session, name, role, lifetime, TICKET_PREFIX + secrets.token_urlsafe(32))


def exchange(session: Session, ticket: str, lifetime: timedelta) -> str | None:
    """A token for a ticket; None if it was used, has expired or is none: no token is turned into one that lasts longer."""
    if not ticket.startswith(TICKET_PREFIX):
        return None
    used = session.scalar(select(Token).where(Token.sha256 == token_digest(ticket)).with_for_update())
    holder = identify(session, ticket)
    if used is None or holder is None:
        return None
    used.revoked_at = utc_now()
    return make_token(session, holder.name, holder.role, lifetime)


def revoke(session: Session, name: str) -> int:
    """End every token of `name`; how many. Raises NotFound."""
    user = session.scalar(select(User).where(User.name == name))
    if user is None:
        raise NotFound(f"no user {name!r}; `python -m leaderboard tokens list` shows them")
    tokens = session.scalars(select(Token).where(Token.user_id == user.id, Token.revoked_at.is_(None))).all()
    for token in tokens:
        token.revoked_at = utc_now()
    return len(tokens)
