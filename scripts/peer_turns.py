"""Any number of submissions that take turns on the same inputs, each in a worker of its own, by the harness's own code."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch

from harness.case_run import CaseRun, description_of
from harness.clock import WallClock
from harness.contestant import Contestant, Rival
from harness.errors import CallFailed, SubmissionNotLoaded, SubmissionRaised
from harness.policies import Policy
from harness.problem import Problem
from harness.referee import Request, Workers
from harness.result import Timing
from harness.session import Session
from harness.stats import summarize
from popcorn.cases import Case

MAX_REASON = 300


@dataclass(frozen=True)
class Entry:
    """What one submission did in one case: its times, or why there are none."""

    failure: str = ""
    timing: Timing | None = None
    strict: bool | None = None  # the strict verdict
    kv_format: str | None = None  # that its output says it read
    backend: str | None = None
    params: dict[str, Any] | None = None


@dataclass
class Turn:
    """One case."""

    case: Case
    entries: dict[str, Entry] = field(default_factory=dict)


class Round(CaseRun):
    """One case of a first submission and of any number of others, which may fail without ending it."""

    def __init__(self, problem: Problem, case: Case, policy: Policy, sessions: dict[str, Session]):
        clock = WallClock()
        (_, first), *others = sessions.items()
        super().__init__(problem, case, policy, first, clock, lambda phase, **more: None)
        self.rivals = {name: Rival(Contestant(problem, policy, session, clock)) for name, session in others}

    def __exit__(self, *raised: Any) -> None:
        for rival in self.rivals.values():
            rival.attempt(Contestant.take_back)
        super().__exit__(*raised)

    def _both(self, step: Callable[..., object], *arguments: Any) -> None:
        super()._both(step, *arguments)
        for rival in self.rivals.values():
            rival.attempt(step, *arguments)

    @property
    def _sides(self) -> int:
        return 1 + sum(rival.competes for rival in self.rivals.values())

    def _has_enough(self) -> bool:
        sides = [self._candidate, *(rival.contestant for rival in self.rivals.values() if rival.competes)]
        return all(side.has_enough(self._sides) for side in sides)

    @property
    def sides(self) -> list[Contestant]:
        """Everybody, in the order of the sessions."""
        return [self._candidate, *(rival.contestant for rival in self.rivals.values())]


class Entrants:
    """The submissions of a comparison. `missing`: those that could not be loaded, and why."""

    def __init__(
        self,
        problem: Problem,
        policy: Policy,
        device: torch.device,
        cases: tuple[Case, ...],
        files: dict[str, Path],
        scratch: Path,
        timeout_s: float,
    ):
        self._problem, self._policy = problem, policy
        self._workers: dict[str, Workers] = {}
        self.missing: dict[str, str] = {}
        for name, path in files.items():
            request = Request(problem, path, "benchmark", cases, "", policy, device, timeout_s=timeout_s)
            folder = scratch / name
            folder.mkdir()
            self._workers[name] = Workers(request, path, folder)

    def __enter__(self) -> Self:
        """Load everybody."""
        for name in list(self._workers):
            if reason := self._why_not_loaded(name):
                self.missing[name] = reason
                del self._workers[name]
        return self

    def __exit__(self, *_: object) -> None:
        for workers in self._workers.values():
            workers.close()

    def _why_not_loaded(self, name: str) -> str:
        try:
            self._workers[name].session()
        except SubmissionNotLoaded as error:
            self._workers[name].close()
            return brief(error)
        return ""

    def take_turns(self, case: Case) -> Turn:
        """One case, until everybody who can be measured was: who goes first and fails is left out and the rest begin anew."""
        turn, waiting = Turn(case), list(self._workers)
        while waiting:
            sessions = {}
            for name in waiting:
                if reason := self._why_not_loaded(name):
                    turn.entries[name] = Entry(reason)
                else:
                    sessions[name] = self._workers[name].session()
            waiting = self._round(turn, sessions) if sessions else []
        turn.entries = {name: turn.entries[name] for name in self._workers}
        return turn

    def _round(self, turn: Turn, sessions: dict[str, Session]) -> list[str]:
        """Fill in the entries of those who were measured or failed; the names of those who must begin anew."""
        for session in sessions.values():
            session.grant_time()
        first, *others = sessions
        run = Round(self._problem, turn.case, self._policy, sessions)
        failure, fault = "", None
        try:
            with run:
                run.run(timed=True)
        except CallFailed as error:
            failure, fault = f"fails: {brief(error)}", error
        for name, rival in run.rivals.items():
            self._replace_fallen(name, rival.fault)
        self._replace_fallen(first, fault)
        if not failure and run.verdict and not run.passes:
            failure = f"fails the official check: {run.verdict.official.message}"
        if failure:
            turn.entries[first] = Entry(failure)
            fallen = {name: Entry(rival.failure) for name, rival in run.rivals.items() if not rival.competes}
            turn.entries |= fallen
            return [name for name in others if name not in fallen]
        failures = ["", *(rival.failure for rival in run.rivals.values())]
        for name, side, why in zip(sessions, run.sides, failures, strict=True):
            turn.entries[name] = Entry(why) if why else measured(side)
        return []

    def _replace_fallen(self, name: str, fault: CallFailed | None) -> None:
        """Who did not merely raise gets a new worker, as everywhere."""
        if fault is not None and not isinstance(fault, SubmissionRaised):
            with contextlib.suppress(CallFailed):
                self._workers[name].close()


def measured(side: Contestant) -> Entry:
    """The entry of a contestant with samples."""
    strict = side.verdict.strict if side.verdict else None
    if side.sampling is None or not side.sampling.samples_ns:
        return Entry("was not measured")
    backend, params = description_of(side.first)
    return Entry(
        timing=summarize(side.sampling.samples_ns),
        strict=strict.ok if strict else None,
        kv_format=strict.format if strict else None,
        backend=backend,
        params=params,
    )


def brief(error: Exception) -> str:
    """The first line of an error's message."""
    return (str(error).splitlines() or [type(error).__name__])[0][:MAX_REASON]
