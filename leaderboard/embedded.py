"""The runner that `serve` starts beside itself: the same command that joins from elsewhere, over the loopback."""

import contextlib
import logging
import platform
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from sqlalchemy import func, select

from leaderboard import jobs
from leaderboard.accounts import make_token, make_user, revoke
from leaderboard.store.database import Store
from leaderboard.store.models import Job, Runner, User

log = logging.getLogger("leaderboard")
LONGEST_HOST = 40  # characters of its name
ROOT = Path(__file__).parents[1]
RESTART_S = 2.0
REGISTRATION_POLL_S = 0.5
END_TIMEOUT_S = 10.0


class EmbeddedRunner:
    """A child process that is started again if it dies, and that ends with this one.

    `tell` is called once, with the name under which its device is offered, from a thread.
    """

    def __init__(self, store: Store, url: str, options: tuple[str, ...] = (), tell: Callable[[str], None] = lambda gpu: None):
        self._store, self._options, self._user = store, options, _user_of(url)
        self._command = (sys.executable, "-m", "leaderboard", "runner", "--server", url, "--token", "-", *options)
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._tell = tell
        self._teller = threading.Thread(target=self._tell_gpu, args=(self._newest(),), daemon=True)

    def start(self) -> None:
        """Begin; jobs that an earlier one held when it was killed go back to the queue."""
        self._give_back_jobs()
        self._keeper.start()
        self._teller.start()

    def stop(self) -> None:
        """End, and give back the job under way."""
        self._stopping.set()
        if self._process:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        self._keeper.join(END_TIMEOUT_S)
        self._teller.join(END_TIMEOUT_S)
        self._give_back_jobs()

    def _keep(self) -> None:
        while not self._stopping.is_set():
            self._process = self._spawn()
            code = self._process.wait()
            if not self._stopping.is_set():
                log.warning("the embedded runner ended with exit code %d; starting another", code)
                self._give_back_jobs()
                self._stopping.wait(RESTART_S)

    def _newest(self) -> int:
        with self._store.reading() as session:
            return session.scalar(select(func.max(Runner.id))) or 0

    def _tell_gpu(self, before: int) -> None:
        """Only the runner finds out what device it has: this process needs no torch."""
        later = select(Runner.gpu).join(User, User.id == Runner.user_id).where(User.name == self._user, Runner.id > before)
        while not self._stopping.wait(REGISTRATION_POLL_S):
            with self._store.reading() as session:
                gpu = session.scalar(later)
            if gpu is not None:
                self._tell(gpu)
                return

    def _spawn(self) -> "subprocess.Popen[bytes]":
        """The token goes through a pipe that stays open: its end is what tells the runner that the server has gone."""
        with self._store.writing() as session:
            make_user(session, self._user)
            revoke(session, self._user)
            token = make_token(session, self._user, "runner")
        process = subprocess.Popen(self._command, cwd=ROOT, stdin=subprocess.PIPE)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(token.encode() + b"\n")
            process.stdin.flush()
        return process

    def _give_back_jobs(self) -> None:
        with self._store.writing() as session:
            mine = select(Runner.id).join(User, User.id == Runner.user_id).where(User.name == self._user)
            for job in session.scalars(select(Job).where(Job.status == "running", Job.runner_id.in_(mine))):
                jobs.requeue(job)


def _user_of(url: str) -> str:
    """Whose runner it is: that of the server at this address of this machine. Several servers may share a database, and each
    takes back its own jobs and no others."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", platform.node())[:LONGEST_HOST]
    return f"runner of {host} {urlsplit(url).port}"
