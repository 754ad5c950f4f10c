"""One case: inputs lent, first output judged, samples taken until the policy is satisfied, outputs judged again."""

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO, Self

import torch

from harness.called import Called
from harness.clock import Clock
from harness.contestant import Contestant, Rival, Sampling
from harness.errors import CallFailed, OutOfMemory
from harness.inputs import InputBuffers
from harness.policies import SEED_STEP, AfterCalls, Policy, StopRule
from harness.problem import Problem
from harness.session import Session
from harness.verdict import Verdict
from popcorn.cases import Case

SEED_BITS = 31  # what every library's generator takes
Tell = Callable[..., None]


class CaseRun:
    """One case under one policy in one worker; what was found stays readable when a method raises CallFailed.

    With a `rival`, the session of a baseline, every step is done by both in turn on the same inputs: samples come A B A B.
    `tell(phase, **more)` is called as it goes on.
    """

    def __init__(
        self,
        problem: Problem,
        case: Case,
        policy: Policy,
        session: Session,
        clock: Clock,
        tell: Tell,
        rival: Session | None = None,
    ):
        self._problem, self._case, self._policy, self._session = problem, case, policy, session
        self._clock, self._tell = clock, tell
        self._random = random.SystemRandom()  # nothing that a submission could foresee
        self._pool = [session.new_buffers() for _ in range(policy.pool if policy.fresh == "each" else 1)]
        self._present = self._pool[0]
        self._candidate = Contestant(problem, policy, session, clock)
        self.rival = Rival(Contestant(problem, policy, rival, clock)) if rival else None
        self.contents: list[Case] = []  # the case with every seed that was used
        self.printed = ""

    @property
    def first(self) -> Called | None:
        """The first call."""
        return self._candidate.first

    @property
    def verdict(self) -> Verdict | None:
        """The worst verdict so far."""
        return self._candidate.verdict

    @property
    def sampling(self) -> Sampling | None:
        """The samples so far; None before the first."""
        return self._candidate.sampling

    @property
    def passes(self) -> bool:
        """Whether the official verdict has passed so far."""
        return self._candidate.passes

    def run(self, timed: bool) -> None:
        """Call once and judge; with `timed`, if the official verdict passes, take samples. Raises CallFailed."""
        self._renew(self._pool[0])
        self._both(Contestant.call_first)
        self._check()
        if timed and self.passes:
            if self._policy.warmup:
                self._warm_up(self._policy.warmup)
            self._both(Contestant.start_sampling)
            self._sample()

    def profile(self, calls: int, trace: BinaryIO) -> list[dict[str, Any]]:
        """The operator table of `calls` further calls; their chrome trace goes to `trace`. Raises CallFailed."""
        self._tell("profiling")
        return self._candidate.profile(calls, trace.fileno())

    def warm_up_only(self, rule: StopRule) -> None:
        """The official policy's warm-up on the first case; nothing of it is kept. Raises CallFailed."""
        self._renew(self._pool[0])
        self._warm_up(rule)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Take the inputs back from the workers, unless the conversation was cut off in the middle, and free them."""
        self.printed = self._candidate.take_printed()
        if kind is None or issubclass(kind, CallFailed):
            with contextlib.suppress(CallFailed):
                self._candidate.take_back()
            if self.rival:
                self.rival.attempt(Contestant.take_back)
        for buffers in self._pool:
            buffers.close()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # what torch keeps for later is missing to the worker

    def _both(self, step: Callable[..., object], *arguments: Any) -> None:
        """A step of the candidate, then of the baseline."""
        step(self._candidate, *arguments)
        if self.rival:
            self.rival.attempt(step, *arguments)

    @property
    def _sides(self) -> int:
        return 2 if self.rival and self.rival.competes else 1

    def _renew(self, *sets: InputBuffers) -> None:
        """Fill buffers with fresh contents, which the workers cannot see before all is ready for the call; on a GPU they are
        complete only then."""
        self._tell("generating")
        self._present.forget()
        with _memory_for(f"{len(sets)} sets of inputs" if len(sets) > 1 else "the inputs"):
            for buffers in sets:
                self.contents.append(self._next_contents())
                same_layout = buffers.prepare(partial(self._problem.generate_input, self.contents[-1]))
                self._both(Contestant.lend, self._name(buffers), buffers, same_layout)
            for buffers in sets:
                buffers.pour(stage=len(sets) == 1)
        for self._present in sets:
            self._both(Contestant.turn_to, self._name(self._present), self._present)
            self._both(Contestant.see_new_contents)

    def _name(self, buffers: InputBuffers) -> str:
        return f"inputs{self._pool.index(buffers)}"

    def _next_contents(self) -> Case:
        """The case itself first; then with its seed advanced, or drawn anew: who finds one out knows no other."""
        if not self.contents or self._policy.foreseeable:
            return with_seed_advanced(self._case, SEED_STEP * len(self.contents))
        return with_seed(self._case, self._random.getrandbits(SEED_BITS))

    def _check(self) -> None:
        """Judge the outputs of the last calls."""
        self._tell("checking")
        self._both(Contestant.check, self._present.value, self._policy.strict)

    def _warm_up(self, rule: StopRule) -> None:
        """Calls that do not count, on each set of buffers."""
        for buffers in self._random.sample(self._pool, len(self._pool)):
            if len(self._pool) > 1:
                self._renew(buffers)
            self._tell("warming up")
            if self._policy.alike and isinstance(rule, AfterCalls):
                fewer = replace(rule, calls=self._random.randint(1, rule.calls))
                self._both(Contestant.warm_up, fewer)
            else:
                self._both(Contestant.warm_up, rule)

    def _sample(self) -> None:
        """Samples until the policy has enough, each on fresh contents and each judged if the policy says so."""
        while True:
            if self._policy.fresh == "each":
                self._renew(self._random.choice(self._pool))
            self._both(Contestant.time_one)
            assert self.sampling is not None
            left_s = self._candidate.left_s(self._sides)
            self._tell("sampling", samples_ns=tuple(self.sampling.samples_ns), left_s=left_s)
            done = self._has_enough()
            if done or self._policy.judged == "each":
                self._check()
            if done or not self.passes:
                break
        if self.passes:
            if self._policy.bursts:
                self._burst()
            self._both(Contestant.close_ledger)

    def _burst(self) -> None:
        """Calls in a row, apart from the samples, each time on fresh contents: a bound for what was reported.

        As far as there is room each call has contents of its own, lest one call's output serve all. Where there is not,
        several are made on the same contents, so not where a call may write its inputs.
        """
        while self._problem.mutable_inputs == () and self.passes and (calls := self._candidate.burst_calls):
            sets = self._sets(calls)
            order = [sets[index % len(sets)] for index in range(calls)]
            with _memory_for(f"the outputs of {calls} calls"):
                self._candidate.prepare_burst(calls)
                self._renew(*sets)
                called = self._candidate.burst(list(map(self._name, order)), sets)
            for one in called if self._policy.judged == "each" else ():
                self._candidate.turn_to(self._name(order[one.index]), order[one.index])
                self._candidate.check(order[one.index].value, self._policy.strict, one)

    def _sets(self, calls: int) -> list[InputBuffers]:
        """Buffers for a burst, as many as its calls or as there is room for; the pool grows to hold them."""
        count = min(calls, self._session.room_for(self._present))
        self._pool += [self._session.new_buffers() for _ in range(count - len(self._pool))]
        return self._random.sample(self._pool, count)

    def _has_enough(self) -> bool:
        """Whether the policy is satisfied with every side's samples."""
        rival = self.rival.contestant if self.rival and self.rival.competes else None
        return self._candidate.has_enough(self._sides) and (rival is None or rival.has_enough(self._sides))


@contextlib.contextmanager
def _memory_for(what: str) -> Iterator[None]:
    """Raises OutOfMemory where the referee's memory does not suffice."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError) as error:
        reason = str(error).partition("\n")[0]
        raise OutOfMemory(f"no memory left for {what}; a submission must leave the referee half of it: {reason}") from None


def with_seed_advanced(case: Case, advance: int) -> Case:
    """The case with its seed raised; a case without a seed stays as it is."""
    return with_seed(case, int(case.spec["seed"]) + advance) if advance and "seed" in case.spec else case


def with_seed(case: Case, seed: int) -> Case:
    """The case with another seed; a case without one stays as it is."""
    return replace(case, spec={**case.spec, "seed": seed}) if "seed" in case.spec else case


def description_of(called: Called | None) -> tuple[str | None, dict[str, Any] | None]:
    """Backend and parameters, as far as the submission's describe() gave them in the expected form."""
    said = called.description if called and isinstance(called.description, dict) else {}
    backend, params = said.get("backend"), said.get("params")
    return backend if isinstance(backend, str) else None, params if isinstance(params, dict) else None
