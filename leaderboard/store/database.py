"""The store: one database by URL, SQLite in WAL mode or PostgreSQL, brought up to date by Alembic."""

import contextlib
import functools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, NoSuchModuleError
from sqlalchemy.orm import Session, sessionmaker

from harness.history import APPLICATION_ID, BUSY_TIMEOUT_S
from leaderboard.errors import BadRequest, StoreError

MIGRATIONS = Path(__file__).parent / "migrations"
POOL: dict[str, Any] = {"pool_size": 10, "max_overflow": 30}  # more than the threads that answer requests


class Store:
    """An open database. Raises StoreError if it cannot be reached, or is not a store of this project."""

    def __init__(self, url: str):
        self.url = _checked(url)
        self._engine = _engine(self.url)
        self._write = sessionmaker(self._engine, expire_on_commit=False)
        self._turn = threading.Lock() if self._engine.dialect.name == "sqlite" else contextlib.nullcontext()
        self._read = sessionmaker(self._engine.execution_options(read_only=True), autoflush=False)

    def migrate(self) -> None:
        """Make the tables, or bring them up to date. A file that `eval.py --record` has made keeps its runs."""
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        with self._errors(), self._engine.begin() as connection:
            if self._engine.dialect.name == "sqlite":
                _claim_file(connection, str(self.url.database))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    @contextlib.contextmanager
    def reading(self) -> Iterator[Session]:
        """A session that sees one state of the store and changes nothing."""
        with self._errors(), self._read() as session:
            yield session

    @contextlib.contextmanager
    def writing(self) -> Iterator[Session]:
        """A session whose changes are all kept, durably, or none is. Not within another one.

        SQLite has one writer, and who finds the file locked sleeps and tries again, up to 100 ms at a time; writers of this
        process wait for each other instead.
        """
        with self._errors(), self._turn, self._write.begin() as session:
            yield session

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (DataError, UnicodeEncodeError) as error:  # PostgreSQL: a text with NUL in it; SQLite: half a surrogate pair
            raise BadRequest("the store cannot keep this text or number; send printable text and numbers that fit") from error
        except DBAPIError as error:
            shown = self.url.render_as_string(hide_password=True)
            raise StoreError(f"{shown}: {str(error.orig).splitlines()[0]}; --database URL names another") from error


def _checked(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise StoreError(f"{url!r} is no database; use sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME") from None
    if parsed.drivername == "postgresql":  # the driver that the extra `postgres` installs
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise StoreError("a store in memory would end with the process; use sqlite:///FILE")
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    return parsed


def _engine(url: URL) -> Engine:
    try:
        if url.get_backend_name() != "sqlite":
            return create_engine(url, **POOL, pool_pre_ping=True)
        engine = create_engine(url, **POOL, connect_args={"timeout": BUSY_TIMEOUT_S, "isolation_level": None})
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        raise StoreError(f"{url.drivername}: no driver ({error}); use SQLite, or PostgreSQL with psycopg") from None
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    """WAL: readers never wait for the writer. FULL: what was committed survives a loss of power."""
    for setting in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {setting}")


def _begin_sqlite(connection: Connection) -> None:
    """A writer takes its lock at once: a transaction that read first could not get it later, if another wrote meanwhile."""
    reads = connection.get_execution_options().get("read_only")
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _claim_file(connection: Connection, path: str) -> None:
    """Mark an empty file as one of this project; refuse a database of somebody else."""
    scalar = functools.partial(_scalar, connection)
    if not scalar("SELECT count(*) FROM sqlite_master"):
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
    elif scalar("PRAGMA application_id") != APPLICATION_ID:
        raise StoreError(f"{path}: a database of somebody else; --database URL names another")


def _scalar(connection: Connection, query: str) -> Any:
    return connection.exec_driver_sql(query).scalar()
