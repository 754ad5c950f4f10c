"""Where an evaluation runs. `Executor` is the interface; here it is a process on this machine."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Any, Protocol

from leaderboard.errors import LeaderboardError
from leaderboard.runner.lock import exclusive
from leaderboard.runner.request import EvaluationRequest

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "leaderboard.runner.evaluate")
DESCRIBE_TIMEOUT_S = 180.0  # torch is imported, on a cold disk perhaps
KEPT_LOG_BYTES = 16 << 10
END_TIMEOUT_S = 10.0


class EvaluationDied(LeaderboardError):
    """The evaluating process ended without saying `done`."""


class Evaluation(Protocol):
    """A running evaluation."""

    def next(self, timeout_s: float) -> dict[str, Any] | None:
        """The next event; None if none comes in time. Raises EvaluationDied once the process has gone."""
        ...

    def close(self) -> None:
        """End it, whatever it does; afterwards the device is free."""
        ...


class Executor(Protocol):
    """What starts evaluations."""

    def describe(self) -> dict[str, Any]:
        """The device that evaluations will get (leaderboard.runner.devices.describe)."""
        ...

    def free(self) -> "contextlib.AbstractContextManager[None]":
        """Hold the device. Raises DeviceHeld while somebody else does."""
        ...

    def start(self, request: EvaluationRequest) -> Evaluation:
        """Begin an evaluation."""
        ...


class LocalExecutor:
    """Evaluates in child processes, on the first device of this machine; one runner at a time may hold it."""

    def __init__(self, command: tuple[str, ...] = COMMAND):
        self._command = command
        self._key = ""

    def describe(self) -> dict[str, Any]:
        evaluation = LocalEvaluation(self._command, {"describe": True})
        try:
            event = evaluation.next(DESCRIBE_TIMEOUT_S)
        finally:
            evaluation.close()
        if event is None or event["kind"] != "device":
            raise EvaluationDied(f"no device can be used: {event['error'] if event else 'no answer'}")
        self._key = event["key"]
        return event

    def free(self) -> "contextlib.AbstractContextManager[None]":
        return exclusive(self._key)

    def start(self, request: EvaluationRequest) -> "LocalEvaluation":
        return LocalEvaluation(self._command, request.to_json())


class LocalEvaluation:
    """One child process; what it writes on stderr is kept for the case that it dies."""

    def __init__(self, command: tuple[str, ...], request: dict[str, Any]):
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 -- closed in `close`
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, start_new_session=True
        )
        self._send(request)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def next(self, timeout_s: float) -> dict[str, Any] | None:
        try:
            event = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if event is None:
            self._events.put(None)  # for whoever asks again
            raise EvaluationDied(f"the evaluating process ended with exit code {self._process.wait()}: {self._last_words()}")
        return event

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(END_TIMEOUT_S)
        self._process.stdout.close()
        self._log.close()

    def _send(self, request: dict[str, Any]) -> None:
        """The request; stdin stays open, its end is what tells the child that this process has gone."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once; `next` says so
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):  # closed
            for line in self._process.stdout:
                self._events.put(json.loads(line))
        self._events.put(None)

    def _last_words(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - KEPT_LOG_BYTES))
        return self._log.read().decode(errors="replace").strip() or "it said nothing"
