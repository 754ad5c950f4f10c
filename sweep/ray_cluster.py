"""A Ray cluster as the executor: one actor for each GPU, each a Bench in a process of its own."""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from sweep.bench import Bench
from sweep.bench_config import BenchConfig
from sweep.errors import CaseRefused, DeviceLost, KernelsNotLoaded, UsageError
from sweep.variant import Ask, Outcome

MAX_ATTEMPTS = 3  # of one Ask, on whichever actor


class RayExecutor:
    """An Executor over a Ray cluster, `address` as ray.init takes it. `make` builds what measures; tests give their own.

    Raises UsageError where Ray is missing or its cluster does not answer, DeviceLost, KernelsNotLoaded.
    """

    def __init__(self, config: BenchConfig, address: str | None, make: Callable[[BenchConfig], Any] = Bench):
        self._ray = _ray(address)
        gpus = int(self._ray.cluster_resources().get("GPU", 0))
        # Ray gives each actor one GPU, which it then sees as its only one.
        self._config = replace(config, device="cuda:0" if gpus else "cpu")
        options = {"num_gpus": 1} if gpus else {"num_cpus": 1}
        self._start: Callable[[], Any] = lambda: self._ray.remote(make).options(**options).remote(self._config)
        self._actors: list[Any] = [self._start() for _ in range(max(gpus, 1))]
        self.machine = self._guarded(lambda: self._ray.get(self._actors[0].about.remote()))

    def run(self, asks: Sequence[Ask]) -> Iterator[tuple[int, list[Outcome]]]:
        """See Executor."""
        queue, attempts = deque(range(len(asks))), [0] * len(asks)
        idle, busy = deque(self._actors), {}
        while queue or busy:
            while queue and idle:
                index, actor = queue.popleft(), idle.popleft()
                attempts[index] += 1
                if self._config.compiled:  # an actor does one thing after the other
                    actor.prepare.remote([asks[index]])
                busy[actor.measure.remote(asks[index])] = index, actor
            (ready, *_), _ = self._ray.wait(list(busy))
            index, actor = busy.pop(ready)
            try:
                answer = self._guarded(lambda ready=ready: self._ray.get(ready))
            except DeviceLost as error:
                if attempts[index] >= MAX_ATTEMPTS:
                    raise DeviceLost(f"lost {attempts[index]} times in the same step: {error}") from None
                queue.append(index)
                actor = self._replaced(actor)
            else:
                yield index, answer
            idle.append(actor)

    def close(self) -> None:
        """End the actors; the cluster stays."""
        for actor in self._actors:
            self._ray.kill(actor)
        self._ray.shutdown()

    def _replaced(self, actor: Any) -> Any:
        self._ray.kill(actor)
        self._actors.remove(actor)
        self._actors.append(new := self._start())
        return new

    def _guarded(self, call: Callable[[], Any]) -> Any:
        """Ray's errors as this package's."""
        try:
            return call()
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, KernelsNotLoaded | CaseRefused):
                raise type(error.cause)(str(error.cause)) from None
            raise DeviceLost(f"a device of the cluster: {error.cause}") from None
        except self._ray.exceptions.RayError as error:
            raise DeviceLost(f"a device of the cluster: {str(error).strip().splitlines()[-1]}") from None


def _ray(address: str | None) -> Any:
    try:
        import ray  # pyright: ignore[reportMissingImports]  # an extra
    except ImportError:
        raise UsageError("--executor ray: Ray is not installed; run `.venv/bin/pip install -e '.[ray]'`") from None
    try:
        # The checkout lies at the same path on every node.
        environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}}
        options = {"ignore_reinit_error": True, "log_to_driver": False, "logging_level": logging.ERROR}
        ray.init(address=address, runtime_env=environment, **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UsageError(f"--executor ray: no cluster answers at {address or 'RAY_ADDRESS'}: {error}") from None
    return ray
