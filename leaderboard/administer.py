"""The commands that change the store by hand. Whoever can open the database is an administrator."""

import argparse
import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload

from harness.errors import RecordError
from harness.result import Result, read_result
from leaderboard import audit, boards, queries, submissions
from leaderboard.accounts import Identity, make_token, make_user, revoke
from leaderboard.errors import BadRequest
from leaderboard.store.database import Store
from leaderboard.store.evaluations import keep_result
from leaderboard.store.models import Token


def create_token(options: argparse.Namespace) -> int:
    """`tokens create`: the token on stdout, alone, so that scripts can take it."""
    lifetime = timedelta(days=options.days) if options.days else None
    with _writing(options) as session:
        token = make_token(session, options.name, options.role, lifetime)
        audit.record(session, _actor(), "create token", options.name, options.role)
    print(token)
    return 0


def list_tokens(options: argparse.Namespace) -> int:
    """`tokens list`."""
    with _writing(options) as session:
        for token in session.scalars(select(Token).options(joinedload(Token.user)).order_by(Token.id)):
            ends = f"expires {token.expires_at:%Y-%m-%d}" if token.expires_at else "does not expire"
            state = f"revoked {token.revoked_at:%Y-%m-%d}" if token.revoked_at else ends
            print(f"{token.user.name:24} {token.role:8} made {token.created_at:%Y-%m-%d}  {state}")
    return 0


def revoke_tokens(options: argparse.Namespace) -> int:
    """`tokens revoke`."""
    with _writing(options) as session:
        count = revoke(session, options.name)
        audit.record(session, _actor(), "revoke tokens", options.name, str(count))
    print(f"{count} tokens of {options.name} revoked")
    return 0


def create_boards(options: argparse.Namespace) -> int:
    """`boards create`."""
    plans = [plan for path in options.paths for plan in boards.read_plans(path)]
    with _writing(options) as session:
        for plan in plans:
            print(boards.put_board(session, plan, _actor()).name)
    return 0


def list_boards(options: argparse.Namespace) -> int:
    """`boards list`."""
    with _writing(options) as session:
        for board in queries.leaderboards(session):
            until = f"until {board.deadline:%Y-%m-%d %H:%M} UTC" if board.deadline else "no deadline"
            print(f"{board.name:32} {', '.join(board.gpus):24} {board.submissions} submissions, {until}")
    return 0


def delete_board(options: argparse.Namespace) -> int:
    """`boards delete`."""
    with _writing(options) as session:
        boards.delete_board(session, options.name, _actor(), options.force)
    return 0


def mark_hacked(options: argparse.Namespace) -> int:
    """`hacked`."""
    with _writing(options) as session:
        admin = Identity(make_user(session, _actor()).id, _actor(), "admin")
        submissions.mark_hacked(session, options.submission, options.reason, admin)
    return 0


def record_results(options: argparse.Namespace) -> int:
    """`record`."""
    results = [_read(path) for path in options.results]
    with _writing(options) as session:
        for result in results:
            keep_result(session, result)
    return 0


def _read(path: Path) -> Result:
    try:
        return read_result(path)
    except RecordError as error:
        raise BadRequest(str(error)) from None


@contextmanager
def _writing(options: argparse.Namespace) -> Iterator[Session]:
    store = Store(options.database)
    try:
        store.migrate()
        with store.writing() as session:
            yield session
    finally:
        store.close()


def _actor() -> str:
    """Who calls, for the audit log."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "operator"
