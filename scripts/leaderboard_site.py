"""A leaderboard of one problem in processes of its own, with runners whose evaluations are stubs: for measuring and killing."""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from leaderboard import queries
from leaderboard.accounts import make_token
from leaderboard.runner.executor import LocalExecutor
from leaderboard.runner.loop import Runner
from leaderboard.runner.server import Server
from leaderboard.store.database import Store

ROOT = Path(__file__).resolve().parents[1]
STUB = (sys.executable, "-m", "scripts.stub_evaluation")
BOARD, GPU = "doubling", "CPU"


class Unlocked(LocalExecutor):
    """Stubs need no device of their own, so that several runners work on one machine."""

    def free(self) -> "contextlib.AbstractContextManager[None]":
        return contextlib.nullcontext()


class Site:
    """A server and its runners; every process can be killed and started again."""

    def __init__(self, folder: Path, options: tuple[str, ...] = ()):
        self.database = f"sqlite:///{folder / 'site.sqlite'}"
        self.log = (folder / "site.log").open("ab")
        self._options, self._port = options, 0
        self.store = Store(self.database)
        self.store.migrate()
        self.server = self.start_server()
        with self.store.writing() as session:
            self._runner_token = make_token(session, "lab", "runner")

    @property
    def url(self) -> str:
        """Where the server is."""
        return f"http://127.0.0.1:{self._port}"

    def start_server(self) -> "subprocess.Popen[str]":
        """Start it, at its old port if it had one, and wait until it listens."""
        problem = str(ROOT / "tests" / "harness" / BOARD)
        command = [sys.executable, "-m", "leaderboard", "serve", "--port", str(self._port), "--database", self.database]
        command += ["--problems", problem, "--max-unfinished", "100000", "--limit", "leaderboard=100000", *self._options]
        self.server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=self.log, text=True)
        assert self.server.stdout is not None
        said = self.server.stdout.readline()
        found = re.search(r"listening on http://.*:(\d+)", said)
        if found is None:
            raise RuntimeError(f"the server did not start: {said!r}; its log is {self.log.name}")
        self._port = int(found[1])
        return self.server

    def start_runner(self) -> "subprocess.Popen[bytes]":
        """A runner that evaluates stubs."""
        command = [sys.executable, "-m", "scripts.leaderboard_site", self.url, self._runner_token]
        return subprocess.Popen(command, cwd=ROOT, stdout=self.log, stderr=self.log)

    def client(self, name: str) -> httpx.Client:
        """Somebody's client."""
        with self.store.writing() as session:
            token = make_token(session, name)
        return httpx.Client(base_url=self.url, headers={"X-Popcorn-Cli-Id": token}, timeout=60)


def wait_for_runners(site: Site, count: int) -> None:
    """Until so many have registered."""
    while True:
        with site.store.reading() as session:
            if len(queries.runners(session)) >= count:
                return
        time.sleep(0.1)


def end(process: "subprocess.Popen") -> None:
    """Kill a process as a power cut would."""
    process.kill()
    process.wait()
    if process.stdout:
        process.stdout.close()


@contextlib.contextmanager
def running(folder: Path, runners: int, options: tuple[str, ...] = ()) -> Iterator[tuple[Site, list]]:
    """A site with so many stub runners, all of which end with the block."""
    site = Site(folder, options)
    processes = [site.start_runner() for _ in range(runners)]
    try:
        yield site, processes
    finally:
        for process in [*processes, site.server]:
            end(process)
        site.store.close()
        site.log.close()


if __name__ == "__main__":
    Runner(Server(sys.argv[1], sys.argv[2]), Unlocked(STUB), f"stub-{os.getpid()}").run()
