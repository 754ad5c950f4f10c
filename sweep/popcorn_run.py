"""One benchmark run on a popcorn server: a file sent, per-case figures read from the stream of events."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from popcorn.cases import CaseError, CaseValue, parse_case
from popcorn.client import Client
from popcorn.client_errors import BrokenOff, ClientError, RateLimited, ServerFault, ServerUnreachable
from popcorn.http_models import ErrorEvent, EvalResult, ResultEvent, WireError, read
from sweep.errors import ServerFailed

MODE, FILE_NAME = "benchmark", "submission.py"
MAX_TRIES = 6
FIRST_WAIT_S, MAX_WAIT_S = 2.0, 3600.0
SECONDS = re.compile(r"(\d+(?:\.\d+)?)\s*s(?:ec|econds?)?\b")


@dataclass(frozen=True)
class CaseFigures:
    """What the server says of one benchmark case; no mean: it failed."""

    spec: dict[str, CaseValue]
    mean_ns: int | None = None
    error: str = ""


@dataclass(frozen=True)
class RunFigures:
    """What came of one run. Cases after the first failure are missing; `error` says why there are none."""

    cases: tuple[CaseFigures, ...]
    error: str = ""


@dataclass
class BenchmarkServer:
    """Runs files on one leaderboard and GPU. `sleep` and `log` are replaced in tests."""

    client: Client
    leaderboard: str
    gpu: str
    log: Callable[[str], None] = print
    sleep: Callable[[float], None] = time.sleep

    def run(self, content: bytes) -> RunFigures:
        """Send a file, wait for its figures. Waits out rate limits, tries again when the connection breaks.

        Raises ServerFailed.
        """
        wait_s, failure = FIRST_WAIT_S, ""
        for _ in range(MAX_TRIES):
            try:
                return self._run_once(content)
            except RateLimited as error:
                failure, seconds = str(error), seconds_in(error.detail)
                pause_s = min(wait_s if seconds is None else seconds + 1, MAX_WAIT_S)
            except (ServerUnreachable, ServerFault, BrokenOff) as error:
                failure, pause_s = str(error), wait_s
            except (ClientError, WireError) as error:
                raise ServerFailed(f"{self.client.connection.url}: {error}") from None
            self.log(f"{failure}; trying again in {pause_s:.0f} s")
            self.sleep(pause_s)
            wait_s = min(2 * wait_s, MAX_WAIT_S)
        raise ServerFailed(f"{failure}; gave up after {MAX_TRIES} tries: start again later to go on")

    def _run_once(self, content: bytes) -> RunFigures:
        for name, data in self.client.run(self.leaderboard, self.gpu, MODE, FILE_NAME, content):
            if name == "result":
                return figures_of(read(ResultEvent, data, "result"))
            if name == "error":
                return RunFigures((), read(ErrorEvent, data, "error").detail)
        raise BrokenOff


def figures_of(event: ResultEvent) -> RunFigures:
    """The figures of a `result` event: those of its benchmark run."""
    for full in event.results:
        if MODE in full.runs:
            return _run_figures(full.runs[MODE])
        if full.error:
            return RunFigures((), full.error)
    return RunFigures((), (event.reports or ("the result holds no benchmark run",))[0][:300])


def _run_figures(evaluation: EvalResult) -> RunFigures:
    if evaluation.compilation and not evaluation.compilation.success:
        return RunFigures((), f"compilation failed: {evaluation.compilation.stderr[-300:]}")
    run = evaluation.run
    if run is None:
        return RunFigures((), "the server did not run it")
    cases = tuple(filter(None, (_case(run.result, number) for number in range(_count(run.result)))))
    return RunFigures(cases, "" if run.success and cases else f"exit code {run.exit_code}: {run.stderr[-300:]}")


def _case(keys: Mapping[str, Any], number: int) -> CaseFigures | None:
    """Case `number` of the pipe's keys; None if it has no spec or no figure."""
    head = f"benchmark.{number}"
    try:
        spec = dict(parse_case(str(keys[f"{head}.spec"]), head).spec)
    except (KeyError, CaseError):
        return None
    if keys.get(f"{head}.status") == "fail":
        return CaseFigures(spec, None, str(keys.get(f"{head}.error", "failed")))
    try:
        return CaseFigures(spec, round(float(keys[f"{head}.mean"])))
    except (KeyError, ValueError):
        return None


def _count(keys: Mapping[str, Any]) -> int:
    try:
        return min(int(keys.get("benchmark-count", 0)), 1000)
    except ValueError:
        return 0


def seconds_in(text: str) -> float | None:
    """The seconds to wait that a refusal names: the last number of seconds in it."""
    found = SECONDS.findall(text)
    return float(found[-1]) if found else None
