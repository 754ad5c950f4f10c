"""A PostgreSQL server for the length of a test session, on a socket in a folder of its own; a database for each test."""

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

START_TIMEOUT_S = 300.0


class NoPostgres(Exception):
    """Why there is none; the tests that need it are skipped with this reason."""


def find_binaries() -> Path:
    """The folder of initdb and postgres. Raises NoPostgres."""
    if found := shutil.which("initdb"):
        return Path(found).parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not versions:
        raise NoPostgres("no PostgreSQL server binaries on this machine")
    return versions[-1].parent


def _user() -> str | None:
    """Whom to run it as: PostgreSQL refuses root."""
    if os.geteuid():
        return None
    with contextlib.suppress(KeyError):
        import pwd

        return pwd.getpwnam("postgres").pw_name
    raise NoPostgres("PostgreSQL refuses to run as root, and there is no user postgres")


class PostgresServer:
    """A running server."""

    def __init__(self, folder: Path, binaries: Path, user: str | None):
        self._folder, self._numbers = folder, itertools.count(1)
        run = {"user": user, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
        data = folder / "data"
        try:
            subprocess.run([binaries / "initdb", "-D", data, "-U", "tester", "-A", "trust", "-N"], check=True, **run)
        except (OSError, subprocess.SubprocessError) as error:
            raise NoPostgres(f"PostgreSQL makes no cluster here: {error}") from None
        options = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=120"]
        self._process = subprocess.Popen([binaries / "postgres", "-D", data, "-k", folder, *options], **run)

    def wait(self) -> None:
        """Until it answers. Raises NoPostgres."""
        until = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < until and self._process.poll() is None:
            with contextlib.suppress(Exception):
                self._execute("SELECT 1")
                return
            time.sleep(0.1)
        raise NoPostgres("the PostgreSQL server does not start here")

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"test_{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name}")
        return f"postgresql+psycopg://tester@/{name}?host={self._folder}"

    def stop(self) -> None:
        """End it; open connections are cut."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _execute(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(f"host={self._folder} user=tester dbname=postgres", autocommit=True) as connection:
            connection.execute(statement.encode())


@contextlib.contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """A server. Raises NoPostgres."""
    try:
        import psycopg  # noqa: F401 -- the driver is an extra of its own
    except ImportError:
        raise NoPostgres("psycopg is not installed (the extra `postgres`)") from None
    binaries, user = find_binaries(), _user()
    folder = Path(tempfile.mkdtemp(prefix="kernelproof-pg-", dir="/tmp"))  # a socket's path must be short
    try:
        if user:
            shutil.chown(folder, user)
        server = PostgresServer(folder, binaries, user)
        try:
            server.wait()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
