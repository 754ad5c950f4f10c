"""One case: inputs lent, first output judged, samples taken until the policy is satisfied, outputs judged again."""

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Self

from harness.clock import Clock
from harness.errors import CallFailed
from harness.inputs import InputBuffers
from harness.policies import SEED_STEP, Policy, Spent, StopRule, samples_per_round
from harness.problem import Problem
from harness.session import Called, Session
from harness.verdict import Verdict, judge
from popcorn.cases import Case

INPUTS = "case"  # the name under which a case's inputs are lent
MIN_SLEEP_NS, MAX_SLEEP_NS = 50_000, 20_000_000
Tell = Callable[..., None]


@dataclass
class Sampling:
    """The samples of one case, and what they cost."""

    clock: Clock
    sleep_ns: int = 0  # the device-side sleep that hides launch latency
    samples_ns: list[int] = field(default_factory=list)
    exposed: int = 0  # counted samples that launch latency is part of

    def __post_init__(self) -> None:
        self._started_ns = self.clock.now_ns()

    @property
    def spent(self) -> Spent:
        """Kernel time summed, and wall time since sampling began."""
        return Spent(sum(self.samples_ns), self.clock.now_ns() - self._started_ns)


class CaseRun:
    """One case under one policy in one worker; what was found stays readable when a method raises CallFailed.

    `tell(phase, **more)` is called as it goes on.
    """

    def __init__(self, problem: Problem, case: Case, policy: Policy, session: Session, clock: Clock, tell: Tell):
        self._problem, self._case, self._policy, self._session = problem, case, policy, session
        self._clock, self._tell = clock, tell
        self._buffers = InputBuffers(session.device_ipc)
        self.contents: list[Case] = []  # the case with every seed that was used
        self.verdict: Verdict | None = None
        self.first: Called | None = None
        self.sampling: Sampling | None = None
        self.printed = ""

    def run(self, timed: bool) -> None:
        """Call once and judge; with `timed`, if the official verdict passes, take samples. Raises CallFailed."""
        self._renew()
        self.first = self._session.call(INPUTS, describe=True)
        self._check(self.first)
        if timed and self.passes:
            sleep_ns = self._warm_up(self._policy.warmup) if self._policy.warmup else 0
            self.sampling = Sampling(self._clock, sleep_ns)
            self._sample(self.sampling)

    def profile(self, calls: int, trace: BinaryIO) -> list[dict[str, Any]]:
        """The operator table of `calls` further calls; their chrome trace goes to `trace`. Raises CallFailed."""
        self._tell("profiling")
        return self._session.profile(INPUTS, calls, trace.fileno())

    def warm_up_only(self, rule: StopRule) -> None:
        """The official policy's warm-up on the first case; nothing of it is kept. Raises CallFailed."""
        self._renew()
        self._warm_up(rule)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Take the inputs back from the worker, unless the conversation was cut off in the middle, and free them."""
        self.printed = self._session.take_printed()
        if (kind is None or issubclass(kind, CallFailed)) and self._session.alive:
            with contextlib.suppress(CallFailed):
                self._session.unmap(INPUTS)
        self._buffers.close()

    @property
    def passes(self) -> bool:
        """Whether the official verdict has passed so far."""
        return self.verdict is not None and self.verdict.official.ok

    def _renew(self) -> None:
        """Fill the inputs with fresh contents, the seed advanced from the second time on, and show them to the worker."""
        self._tell("generating")
        case = with_seed_advanced(self._case, SEED_STEP * len(self.contents))
        self.contents.append(case)
        if self._buffers.fill(lambda: self._problem.generate_input(case)):
            self._session.refresh(INPUTS)
        else:
            self._session.map(INPUTS, self._buffers)

    def _check(self, called: Called) -> None:
        """Judge the output of the last call."""
        self._tell("checking")
        verdict = judge(self._problem, self._buffers.value, self._session.take(called))
        self.verdict = self.verdict.worst(verdict) if self.verdict else verdict

    def _warm_up(self, rule: StopRule) -> int:
        """Calls that are timed and not counted; the sleep that hides the launch latency they show, in nanoseconds."""
        warm = Sampling(self._clock, MIN_SLEEP_NS if self._policy.hides_launch else 0)
        while True:
            self._tell("warming up")
            sample = self._session.call(INPUTS, timed=True, sleep_ns=warm.sleep_ns).sample
            warm.samples_ns.append(sample.elapsed_ns)
            if self._policy.hides_launch:
                warm.sleep_ns = min(MIN_SLEEP_NS + 2 * sample.host_ns, MAX_SLEEP_NS)
            if rule.done(warm.samples_ns, warm.spent):
                return warm.sleep_ns

    def _sample(self, sampling: Sampling) -> None:
        """Rounds of samples, each on fresh contents if the policy says so, each ended by a look at its last output."""
        round_length: float = 1 if self._policy.fresh != "never" else math.inf
        while True:
            round_started_ns = self._clock.now_ns()
            if self._policy.fresh != "never":
                self._renew()
            renewed_ns = self._clock.now_ns()
            called, done = self._round(sampling, round_length)
            sampled_ns = self._clock.now_ns()
            self._check(called)
            if done or not self.passes:
                return
            if self._policy.fresh == "balanced":
                fresh_ns = renewed_ns - round_started_ns + self._clock.now_ns() - sampled_ns
                round_length = samples_per_round(fresh_ns, round((sampled_ns - renewed_ns) / round_length))

    def _round(self, sampling: Sampling, length: float) -> tuple[Called, bool]:
        """At most `length` samples; the last call, and whether the policy has enough."""
        taken = 0
        while True:
            called = self._time_one(sampling)
            taken += 1
            spent = sampling.spent
            self._tell("sampling", samples_ns=tuple(sampling.samples_ns), left_s=self._policy.stop.left_ns(spent) / 1e9)
            if self._policy.stop.done(sampling.samples_ns, spent):
                return called, True
            if taken >= length:
                return called, False

    def _time_one(self, sampling: Sampling) -> Called:
        """One sample. If launch latency showed, it is taken again behind a longer sleep, as long as that can grow."""
        while True:
            called = self._session.call(INPUTS, timed=True, sleep_ns=sampling.sleep_ns)
            exposed = called.sample.exposed and self._policy.hides_launch
            if not exposed or sampling.sleep_ns >= MAX_SLEEP_NS:
                break
            sampling.sleep_ns = min(2 * max(sampling.sleep_ns, called.sample.host_ns, MIN_SLEEP_NS), MAX_SLEEP_NS)
        sampling.exposed += exposed
        sampling.samples_ns.append(called.sample.elapsed_ns)
        return called


def with_seed_advanced(case: Case, advance: int) -> Case:
    """The case with its seed raised; a case without a seed stays as it is."""
    if not advance or "seed" not in case.spec:
        return case
    return replace(case, spec={**case.spec, "seed": int(case.spec["seed"]) + advance})


def description_of(called: Called | None) -> tuple[str | None, dict[str, Any] | None]:
    """Backend and parameters, as far as the submission's describe() gave them in the expected form."""
    said = called.description if called and isinstance(called.description, dict) else {}
    backend, params = said.get("backend"), said.get("params")
    return backend if isinstance(backend, str) else None, params if isinstance(params, dict) else None
