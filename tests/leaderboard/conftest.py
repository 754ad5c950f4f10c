"""Stores and servers for the leaderboard's tests."""

import contextlib
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="the extra `serve` is not installed")

import uvicorn
from people import DOUBLING, LiveSite
from postgres_server import NoPostgres, PostgresServer, running_postgres
from sqlalchemy import text

from leaderboard import boards
from leaderboard.serve import listen, server_config
from leaderboard.settings import Settings
from leaderboard.store.database import Store
from leaderboard.store.models import Base


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(running_postgres())
        except NoPostgres as reason:
            pytest.skip(str(reason))
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def any_url(request, tmp_path) -> str:
    """An empty database of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.sqlite'}"
    return request.getfixturevalue("postgres").new_database()


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "store.sqlite"
    made = Store(f"sqlite:///{path}")
    made.migrate()
    made.close()
    return path


@pytest.fixture(scope="session")
def migrated_database(postgres) -> Iterator[Store]:
    made = Store(postgres.new_database())
    made.migrate()
    yield made
    made.close()


@pytest.fixture
def store(migrated_file, tmp_path) -> Iterator[Store]:
    """A store on SQLite with the leaderboard `doubling`."""
    shutil.copy(migrated_file, tmp_path / "store.sqlite")
    made = Store(f"sqlite:///{tmp_path / 'store.sqlite'}")
    _add_board(made)
    yield made
    made.close()


@pytest.fixture(params=["sqlite", "postgres"])
def any_store(request) -> Iterator[Store]:
    """The same on SQLite, and on PostgreSQL."""
    if request.param == "sqlite":
        yield request.getfixturevalue("store")
        return
    made = request.getfixturevalue("migrated_database")
    _add_board(made)
    yield made
    with made.writing() as session:
        session.execute(text(f"TRUNCATE {', '.join(Base.metadata.tables)} RESTART IDENTITY CASCADE"))


def _add_board(made: Store) -> None:
    with made.writing() as session:
        (plan,) = boards.read_plans(DOUBLING)
        boards.put_board(session, replace(plan, task=replace(plan.task, gpus=("CPU", "H200"))), "tests")


@pytest.fixture
def settings() -> Settings:
    return Settings(problem_root=DOUBLING.parents[1])


@pytest.fixture
def site(store, settings) -> Iterator[LiveSite]:
    """A server on a socket, over `store` and under `settings`."""
    with listen("127.0.0.1", 0) as listener:
        server = uvicorn.Server(server_config(store, settings))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        made = LiveSite(store, f"http://127.0.0.1:{listener.getsockname()[1]}", settings)
        yield made
        for client in made.clients:
            client.close()
        server.should_exit = True
        thread.join(30)
