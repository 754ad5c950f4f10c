"""A worker as the operating system sees it: its files, environment, limits, output, and its end."""

import contextlib
import functools
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from harness.containment import Containment, choose
from harness.defences import Defences
from harness.jail import KILLED, Plan
from harness.protocol import Channel

HERE = Path(__file__).parent
# All of the harness that a worker gets to see.
RUNTIME_FILES = (
    "__init__.py", "worker.py", "protocol.py", "codec.py", "timing.py", "memory.py", "blocker.py", "cuda_vmm.py", "errors.py",
    "family.py", "jail.py", "landlock.py", "libc.py", "namespaces.py", "seal.py", "seccomp.py",
)  # fmt: skip
# A worker's environment has no variable whose name contains one of these.
SECRET_WORDS = ("POPCORN_", "TOKEN", "SECRET", "PASSWORD", "API_KEY", "CREDENTIAL")
# Where tools look for caches instead of in HOME, which is a scratch folder for a worker.
CACHE_VARIABLES = (
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "TRITON_HOME", "TRITON_CACHE_DIR", "TORCH_HOME",
    "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH", "NUMBA_CACHE_DIR", "MPLCONFIGDIR", "HF_HOME",
    "PYTHONPYCACHEPREFIX",
)  # fmt: skip
# Else OpenMP's threads spin for some 7 ms after every parallel region: processor time that no call accounts for.
THREADS_REST = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}
INFO_TIMEOUT_S = 300.0  # a busy machine takes long to start a process
END_TIMEOUT_S = 5.0
KEPT_OUTPUT_BYTES = 16 << 10  # as much as official runners keep of each


@dataclass(frozen=True)
class Limits:
    """What a worker may use. `timeout_s` bounds the time that the import, and then each case, may keep it busy."""

    timeout_s: float = 300.0
    data_bytes: int | None = None  # RLIMIT_DATA; None on a GPU, whose driver reserves more than exists
    cpu_s: int | None = None  # RLIMIT_CPU: processor time of one process, all its threads together

    def by_name(self) -> dict[str, int]:
        """The limits that are set, by the names of Python's resource module."""
        named = {"RLIMIT_DATA": self.data_bytes, "RLIMIT_CPU": self.cpu_s}
        return {name: value for name, value in named.items() if value is not None}


class WorkerProcess:
    """A running worker in `folder` behind the layers of `containment`, and the channel to it.

    `hidden` are folders that it must not see, whatever else is visible.
    """

    def __init__(
        self, folder: Path, backend: str, limits: Limits, containment: Containment | None = None, hidden: Sequence[Path] = ()
    ):
        self._containment = containment or choose()
        self._runtime, self._home, self._root = (folder.with_name(folder.name + end) for end in (".runtime", ".home", ".root"))
        _stage_runtime(self._runtime)
        (self._home / "tmp").mkdir(parents=True)
        self._root.mkdir()
        plan = self._containment.plan((folder, self._home), self._runtime, self._root, hidden, limits.by_name())
        ours, theirs = socket.socketpair()
        with theirs:
            self._process, supervisor = self._start(plan, folder, backend, theirs)
        assert self._process.stdout is not None
        self._output = _OutputTail(self._process.stdout)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._supervisor = _pidfd(supervisor)
        self._supervisor_pid = supervisor if plan.supervised else 0
        self.channel = Channel(ours, self._pidfd)

    def _start(self, plan: Plan, folder: Path, backend: str, theirs: socket.socket) -> tuple[subprocess.Popen[bytes], int]:
        """The process that was started, and the id of the one that supervises the worker."""
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as info, os.fdopen(writing, "wb") as told:
            asked = self._containment.wall == "bubblewrap" or plan.processes
            plan = replace(plan, info_fd=told.fileno() if asked else 0)
            for fd in (theirs.fileno(), told.fileno()):
                os.set_inheritable(fd, True)
            process = subprocess.Popen(
                [*self._containment.command(plan, folder), str(theirs.fileno())],
                cwd=folder,
                env=worker_environment(os.environ, self._runtime, backend, self._home, self._containment.defences),
                close_fds=plan.closed,
                pass_fds=(theirs.fileno(), told.fileno()) if plan.closed else (),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            told.close()
            return process, _child_pid(info) if asked else process.pid

    @functools.cached_property
    def pid(self) -> int:
        """The worker's own process id; ask after it has said `ready`."""
        if not self._supervisor_pid:
            return self._process.pid
        children = Path(f"/proc/{self._supervisor_pid}/task/{self._supervisor_pid}/children").read_text().split()
        return int(children[0]) if children else self._process.pid

    @property
    def root_pid(self) -> int:
        """The process above the worker and everything that it starts: its supervisor, or itself."""
        return self._supervisor_pid or self._process.pid

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
        signals = {number.value for number in signal.Signals}
        if code >= 0 and code - KILLED not in signals:
            return f"ended the process with exit status {code}"
        name = signal.Signals(-code if code < 0 else code - KILLED).name
        return f"was killed by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"

    def kill(self) -> None:
        """End the worker and everything that it started, now."""
        if self._supervisor is not None:
            with contextlib.suppress(ProcessLookupError):
                # With process 1 its whole namespace ends; elsewhere the supervisor looks for what the worker started.
                signal.pidfd_send_signal(self._supervisor, signal.SIGKILL if self._containment.processes else signal.SIGTERM)
            select.select([self._supervisor], [], [], END_TIMEOUT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Hang up, let the worker end by itself (it gives lent device memory back), end what is left."""
        self.channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2.0)
        self.kill()
        for fd in (self._pidfd, self._supervisor):
            if fd is not None:
                os.close(fd)
        for folder in (self._runtime, self._home, self._root):
            shutil.rmtree(folder, ignore_errors=True)


def _child_pid(info: IO[bytes]) -> int:
    """The process id that bubblewrap or the jail writes once its namespaces stand; 0 if it ended before."""
    said = b""
    while b"}" not in said and select.select([info], [], [], INFO_TIMEOUT_S)[0]:  # bubblewrap writes in several parts
        if not (part := os.read(info.fileno(), 4096)):
            break
        said += part
    found = re.search(rb'"child-pid": (\d+)', said)
    return int(found[1]) if found else 0


def _pidfd(pid: int) -> int | None:
    with contextlib.suppress(ProcessLookupError):
        return os.pidfd_open(pid) if pid else None
    return None


def worker_environment(
    environ: os._Environ[str] | dict[str, str], runtime: Path, backend: str, home: Path, defences: Defences
) -> dict[str, str]:
    """The environment of a worker: the user's without secrets; `import harness` finds the staged runtime alone.

    Home, temporary files and caches lie in the scratch folder `home`: nothing is left for a later run to find.
    """
    kept = dict(environ)
    if defences.clean_environment:
        kept = {name: value for name, value in kept.items() if not any(word in name.upper() for word in SECRET_WORDS)}
    if defences.read_only_files:
        kept = {name: value for name, value in kept.items() if name not in CACHE_VARIABLES}
        kept |= {"HOME": str(home), "TMPDIR": str(home / "tmp")}
    kept |= THREADS_REST | {"PYTHONPATH": str(runtime), "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
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
        with contextlib.suppress(ValueError, OSError):  # the thread has closed the pipe, even just now: nothing is left in it
            while self._thread.is_alive() and select.select([self._pipe], [], [], 0)[0]:
                self._thread.join(timeout=0.001)  # what was written before the call is still in the pipe
        with self._lock:
            kept, self._kept = self._kept, b""
        return kept.decode(errors="replace")
