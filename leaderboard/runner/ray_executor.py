"""Evaluations on the machines of a Ray cluster: Ray finds a free GPU and keeps it for one evaluation at a time.

`RAY_ADDRESS` names the cluster; without it Ray starts one on this machine. Every node needs this project's environment: the
code itself is sent along.
"""

import contextlib
import importlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from leaderboard.errors import BadRequest
from leaderboard.runner.executor import COMMAND, EvaluationDied, LocalEvaluation
from leaderboard.runner.request import EvaluationRequest

ROOT = Path(__file__).parents[2]
LEFT_OUT = [".git", ".venv", "results", "tests", "docs"]  # of what is sent to the nodes
DESCRIBE_TIMEOUT_S = 600.0  # the cluster may have to start a node first

try:
    ray: Any = importlib.import_module("ray")
    faults: Any = importlib.import_module("ray.exceptions")
except ModuleNotFoundError:
    raise BadRequest("--executor ray needs Ray, which the extra `ray` installs: pip install ray") from None


class RayExecutor:
    """Evaluates wherever the cluster has a free GPU, or a free CPU."""

    def __init__(self, is_cpu: bool = False, command: tuple[str, ...] = COMMAND):
        self._command = command
        if not ray.is_initialized():
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
            package = {"working_dir": str(ROOT), "excludes": LEFT_OUT}
            ray.init(runtime_env=package, log_to_driver=False, logging_level=logging.WARNING)
        self._actor = ray.remote(num_cpus=1, num_gpus=0 if is_cpu else 1, max_restarts=0)(LocalEvaluation)

    def describe(self) -> dict[str, Any]:
        """The device of whichever node answers: a cluster of one kind of GPU is assumed, or named by --gpu."""
        evaluation = RayEvaluation(self._actor, self._command, {"describe": True})
        try:
            event = evaluation.next(DESCRIBE_TIMEOUT_S)
        finally:
            evaluation.close()
        if event is None or event["kind"] != "device":
            raise EvaluationDied(f"no device of the cluster can be used: {event['error'] if event else 'no answer'}")
        return event

    @contextlib.contextmanager
    def free(self) -> Iterator[None]:
        """Ray waits for a free device itself."""
        yield

    def start(self, request: EvaluationRequest) -> "RayEvaluation":
        """Begin on some node."""
        return RayEvaluation(self._actor, self._command, request.to_json())


class RayEvaluation:
    """An evaluation in an actor: the same child process, on the actor's node."""

    def __init__(self, actor: Any, command: tuple[str, ...], request: dict[str, Any]):
        self._actor = actor.remote(command, request)

    def next(self, timeout_s: float) -> dict[str, Any] | None:
        try:
            return ray.get(self._actor.next.remote(timeout_s))
        except faults.RayTaskError as error:  # what the actor raised
            raise EvaluationDied(str(error.cause)) from None
        except faults.RayError as error:
            raise EvaluationDied(f"the node of the evaluation is lost: {type(error).__name__}") from None

    def close(self) -> None:
        """End the process, then the actor, which gives the device back."""
        with contextlib.suppress(faults.RayError):
            ray.get(self._actor.close.remote())
        ray.kill(self._actor)
