"""A worker as the operating system sees it: its files, environment, limits, output, and its end."""

import contextlib
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from harness.protocol import Channel

HERE = Path(__file__).parent
# All of the harness that a worker gets to see.
RUNTIME_FILES = ("__init__.py", "worker.py", "protocol.py", "codec.py", "timing.py", "memory.py", "errors.py")
# A worker's environment has no variable whose name contains one of these.
SECRET_WORDS = ("POPCORN_", "TOKEN", "SECRET", "PASSWORD", "API_KEY", "CREDENTIAL")
KEPT_OUTPUT_BYTES = 16 << 10  # as much as official runners keep of each


@dataclass(frozen=True)
class Limits:
    """What a worker may use. `timeout_s` bounds the time that the import, and then each case, may keep it busy."""

    timeout_s: float = 300.0
    data_bytes: int | None = None  # RLIMIT_DATA; None on a GPU, whose driver reserves more than exists


class WorkerProcess:
    """A running worker, leader of a process group of its own, in `folder`, and the channel to it."""

    def __init__(self, folder: Path, backend: str, limits: Limits):
        self._runtime = folder.with_name(folder.name + ".runtime")
        _stage_runtime(self._runtime)
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "harness.worker", str(theirs.fileno())],
                cwd=folder,
                env=worker_environment(os.environ, self._runtime, backend),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self._output = _OutputTail(self._process.stdout)
        self._pidfd = os.pidfd_open(self._process.pid)
        self.channel = Channel(ours, self._pidfd)
        self._limit(limits)

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def take_printed(self) -> str:
        """What the submission has written to stdout and stderr since the last time: at most the last 16 KiB."""
        return self._output.take()

    def obituary(self) -> str:
        """How the process ended, in words: call after its channel has closed."""
        try:
            code = self._process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            return "closed its connection to the harness"
        if code >= 0:
            return f"ended the process with exit status {code}"
        name = signal.Signals(-code).name
        return f"was killed by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"

    def kill(self) -> None:
        """End the whole process group now."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Hang up, let the worker end by itself (it gives lent device memory back), end what is left."""
        self.channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2.0)
        self.kill()
        os.close(self._pidfd)
        shutil.rmtree(self._runtime, ignore_errors=True)

    def _limit(self, limits: Limits) -> None:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(self._process.pid, resource.RLIMIT_CORE, (0, 0))
            if limits.data_bytes is not None:
                resource.prlimit(self._process.pid, resource.RLIMIT_DATA, (limits.data_bytes, limits.data_bytes))


def worker_environment(environ: os._Environ[str] | dict[str, str], runtime: Path, backend: str) -> dict[str, str]:
    """The environment of a worker: the user's without secrets; `import harness` finds the staged runtime alone."""
    kept = {name: value for name, value in environ.items() if not any(word in name.upper() for word in SECRET_WORDS)}
    kept |= {"PYTHONPATH": str(runtime), "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
    return kept | {"KERNELPROOF_BACKEND": backend}


def _stage_runtime(folder: Path) -> None:
    package = folder / "harness"
    package.mkdir(parents=True)
    for name in RUNTIME_FILES:
        shutil.copyfile(HERE / name, package / name)


class _OutputTail:
    """Drains a pipe in a thread and keeps its last bytes, however much is written."""

    def __init__(self, pipe: IO[bytes]):
        self._pipe, self._kept, self._lock = pipe, b"", threading.Lock()
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        with self._pipe:
            while select.select([self._pipe], [], []) and self._read():
                pass

    def _read(self) -> bool:
        with self._lock:
            part = os.read(self._pipe.fileno(), 1 << 16)
            self._kept = (self._kept + part)[-KEPT_OUTPUT_BYTES:]
        return bool(part)

    def take(self) -> str:
        with contextlib.suppress(ValueError):  # the thread has closed the pipe: nothing is left in it
            while self._thread.is_alive() and select.select([self._pipe], [], [], 0)[0]:
                self._thread.join(timeout=0.001)  # what was written before the call is still in the pipe
        with self._lock:
            kept, self._kept = self._kept, b""
        return kept.decode(errors="replace")
