"""`python -m leaderboard serve`: the server, and by default a runner beside it."""

import argparse
import logging
import shlex
import socket
import sys
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import uvicorn

from leaderboard import boards
from leaderboard.accounts import make_ticket
from leaderboard.api.app import create_app
from leaderboard.api.patience import impatient
from leaderboard.embedded import EmbeddedRunner
from leaderboard.errors import BadRequest
from leaderboard.options import ROOT
from leaderboard.settings import DEFAULT_LIMITS, Settings
from leaderboard.store.database import Store

LOOPBACK = ("127.0.0.1", "localhost", "::1")
LOCAL_ADMIN = "local-admin"
TICKET_LIFETIME = timedelta(minutes=30)
MAX_CONNECTIONS = 1000
KEEP_ALIVE_S = 30


def serve(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    for library in ("alembic", "httpx"):
        logging.getLogger(library).setLevel(logging.WARNING)
    settings, store = settings_of(options), Store(options.database)
    store.migrate()
    _make_boards(store, options.problems or _own_problems())
    with listen(options.host, options.port) as listener:
        url = f"http://{options.host}:{listener.getsockname()[1]}"
        runner = _runner(store, url, options, lambda gpu: print(submit_hint(url, settings, gpu), flush=True))
        server = uvicorn.Server(server_config(store, settings))
        _greet(store, url, options.host)
        if runner is None:
            print(submit_hint(url, settings), flush=True)
        try:
            if runner:
                runner.start()
            server.run(sockets=[listener])
        finally:
            if runner:
                runner.stop()
            store.close()
    return 0


def settings_of(options: argparse.Namespace) -> Settings:
    """The server's rules as the command line gives them. Raises BadRequest."""
    registration = options.registration or ("open" if options.host in LOOPBACK else "closed")
    return Settings(
        open_registration=registration == "open",
        limits_per_hour={**DEFAULT_LIMITS, **dict(map(_limit, options.limit))},
        max_unfinished=options.max_unfinished,
        new_users_per_hour=options.new_users_per_hour,
        policy=options.policy,
        budget_s=options.budget_s,
        lease_s=options.lease_s,
        problem_root=options.problem_root,
    )


def _limit(text: str) -> tuple[str, int]:
    mode, _, count = text.partition("=")
    if mode not in DEFAULT_LIMITS or not count.isdecimal():
        raise BadRequest(f"--limit {text}: not MODE=N; MODE is one of {', '.join(DEFAULT_LIMITS)}, N a number an hour")
    return mode, int(count)


def _own_problems() -> list[Path]:
    return [path.parent for path in (ROOT / "configs" / "task.yml", *sorted((ROOT / "problems").glob("*/task.yml")))]


def _make_boards(store: Store, paths: list[Path]) -> None:
    plans = [plan for path in paths for plan in boards.read_plans(path)]
    with store.writing() as session:
        for plan in plans:
            boards.put_board(session, plan, "serve")


def listen(host: str, port: int) -> socket.socket:
    """A listening socket: whoever connects from now on waits for the server rather than being refused. Raises BadRequest.

    Connections inherit TCP_NODELAY, which asyncio sets on none of a socket that it is given: head and body of an answer are two
    writes, and without it the second waits 40 ms for the first one's acknowledgement.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=128)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        raise BadRequest(f"--host {host} --port {port}: {error.strerror or error}; another --port may be free") from None


def _runner(store: Store, url: str, options: argparse.Namespace, tell: Callable[[str], None]) -> EmbeddedRunner | None:
    if options.runner == "none":
        return None
    named = ("--gpu", options.gpu) if options.gpu else ()
    return EmbeddedRunner(store, url, ("--executor", options.executor, "--slots", str(options.slots), *named), tell)


def server_config(store: Store, settings: Settings) -> uvicorn.Config:
    """How the application is served."""
    return uvicorn.Config(
        create_app(store, settings),
        http=impatient(settings.body_timeout_s),
        log_level="warning",
        access_log=False,  # addresses may hold a login ticket
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=5,
        server_header=False,
    )


def submit_hint(url: str, settings: Settings, gpu: str | None = None) -> str:
    """A command that submits as it stands, from this folder: the file may name a GPU that no runner has."""
    client_id = str(uuid.uuid4()) if settings.open_registration else "TOKEN"
    named = f" --gpu {shlex.quote(gpu)}" if gpu else ""
    command = f"{shlex.quote(sys.executable)} -m popcorn submit submission.py{named}"
    return f"  submit:  POPCORN_API_URL={url} POPCORN_CLI_ID={client_id} {command}"


def _greet(store: Store, url: str, host: str) -> None:
    """Where the server is; on this machine alone, a link that signs its owner in, once."""
    print(f"listening on {url}", flush=True)
    if host in LOOPBACK:
        with store.writing() as session:
            ticket = make_ticket(session, LOCAL_ADMIN, "admin", TICKET_LIFETIME)
        print(f"  sign in: {url}/login/{ticket}", flush=True)
