"""One submission on one case: calls, verdict, samples. A CaseRun drives one of these, or two in turn."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.accounts import Ledger, hidden_launch_ns
from harness.called import Called
from harness.clock import Clock
from harness.errors import CallFailed
from harness.inputs import InputBuffers, reveal
from harness.policies import Policy, Spent, StopRule
from harness.problem import Problem
from harness.session import Session
from harness.verdict import Verdict, judge

MIN_SLEEP_NS, MAX_SLEEP_NS = 50_000, 20_000_000
JUDGED_OF_A_BURST = 2  # whoever prepares one output after all calls would have to guess both


@dataclass
class Sampling:
    """The samples of one case, and what they cost."""

    clock: Clock
    sleep_ns: int = 0  # for how long the device is held, so that launch latency is hidden
    samples_ns: list[int] = field(default_factory=list)
    exposed: int = 0  # counted samples that launch latency is part of
    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        self._started_ns = self.clock.now_ns()

    @property
    def spent(self) -> Spent:
        """Kernel time summed, and wall time since sampling began."""
        return Spent(sum(self.samples_ns), self.clock.now_ns() - self._started_ns)


class Contestant:
    """A submission in its worker. Methods raise CallFailed; what was found before stays readable."""

    def __init__(self, problem: Problem, policy: Policy, session: Session, clock: Clock):
        self._problem, self._policy, self._session, self._clock = problem, policy, session, clock
        self._last: Called | None = None
        self._inputs = ""  # the name of the inputs that are called on
        self._buffers: InputBuffers | None = None
        self._lent: set[str] = set()
        self.first: Called | None = None
        self.verdict: Verdict | None = None
        self.sampling: Sampling | None = None
        self._sleep_ns = MIN_SLEEP_NS if policy.hides_launch else 0
        self._warm_ns: list[int] = []  # the first of them held briefly, so that little of their launch is hidden

    @property
    def passes(self) -> bool:
        """Whether the official verdict has passed so far."""
        return self.verdict is not None and self.verdict.official.ok

    def lend(self, name: str, buffers: InputBuffers, same_layout: bool) -> None:
        """Show the worker input buffers, whose contents are to come; from now on it is called on these."""
        if same_layout and name in self._lent:
            self._session.refresh(name)
        else:
            self._session.map(name, buffers)
        self._lent.add(name)
        self._inputs, self._buffers = name, buffers
        self._session.rest()

    def see_new_contents(self) -> None:
        """The contents have come; a worker that holds a copy renews it."""
        if self._buffers and self._buffers.copied:
            self._session.refresh(self._inputs)

    def turn_to(self, name: str, buffers: InputBuffers) -> None:
        """Of all buffers that were lent these come next."""
        self._inputs, self._buffers = name, buffers

    def call_first(self) -> None:
        """The first call, which compiles and plans; made like every other if the policy wants it."""
        self._reveal()
        self.first = self._last = self._session.call(self._inputs, timed=self._policy.alike, describe=True)

    def _reveal(self) -> None:
        """Complete the contents before the call: it does not count, and a longer hold would hide its launch."""
        reveal([self._buffers] if self._buffers else [])

    def check(self, data: Any, strict: bool, called: Called | None = None) -> None:
        """Judge the output of the last call, or of one of a burst, by the official rule alone unless `strict`."""
        called = called or self._last
        assert called is not None
        output = called.output if called.taken else self._session.take(called)
        verdict = judge(self._problem, data, output, strict)
        if strict:
            verdict = verdict.with_changed_inputs(self._changed_inputs())
        self.verdict = self.verdict.worst(verdict) if self.verdict else verdict

    def _changed_inputs(self) -> list[int]:
        """Positions of inputs that were written and must not be."""
        allowed = self._problem.mutable_inputs
        if allowed is None or self._buffers is None:
            return []
        return [index for index in self._session.changed_inputs(self._inputs, self._buffers) if index not in allowed]

    def warm_up(self, rule: StopRule) -> None:
        """Calls that are timed and not counted; the launch latency that they show says how long the sleep must be."""
        self._reveal()
        warm = Sampling(self._clock, self._sleep_ns)
        while not warm.samples_ns or not rule.done(warm.samples_ns, warm.spent):
            sample = self._session.call(self._inputs, timed=True, sleep_ns=warm.sleep_ns).sample
            warm.samples_ns.append(sample.elapsed_ns)
            if self._policy.hides_launch:
                self._warm_ns.append(sample.elapsed_ns + hidden_launch_ns(sample.host_ns, warm.sleep_ns))
                warm.sleep_ns = min(MIN_SLEEP_NS + 2 * sample.host_ns, MAX_SLEEP_NS)
        self._sleep_ns = warm.sleep_ns

    def start_sampling(self) -> Sampling:
        """From now on samples count."""
        self.sampling = Sampling(self._clock, self._sleep_ns, ledger=self._session.open_ledger())
        self.sampling.ledger.warm_ns += self._warm_ns
        return self.sampling

    def time_one(self) -> None:
        """One sample. If launch latency showed, it is taken again behind a longer sleep, as long as that can grow.

        Where contents are fresh none is timed twice: the sample is dropped, the next one comes behind the longer sleep.
        """
        sampling = self.sampling
        assert sampling is not None
        while True:
            take = self._policy.judged == "each"
            called = self._last = self._session.call(
                self._inputs, timed=True, sleep_ns=sampling.sleep_ns, take=take, late=self._buffers
            )
            exposed = called.sample.exposed and self._policy.hides_launch
            if not exposed or sampling.sleep_ns >= MAX_SLEEP_NS:
                break
            sampling.sleep_ns = min(2 * max(sampling.sleep_ns, called.sample.host_ns, MIN_SLEEP_NS), MAX_SLEEP_NS)
            if self._policy.fresh == "each":
                return
        sampling.exposed += exposed
        sampling.samples_ns.append(called.sample.elapsed_ns + called.ahead_ns)
        elapsed_ns, (wall_ns, waited_ns) = called.sample.elapsed_ns, (called.wall_ns, called.waited_ns)
        hidden_ns = hidden_launch_ns(called.sample.host_ns, sampling.sleep_ns) if self._policy.hides_launch else 0
        sampling.ledger.enter(elapsed_ns, wall_ns, waited_ns, called.used_ns, called.nbytes, hidden_ns)

    def prepare_burst(self, calls: int) -> None:
        """Make room for the outputs of a burst, before there are contents to work on."""
        assert self._last is not None
        self._session.lend_for_outputs(calls, self._last)

    def burst(self, names: Sequence[str], sets: Sequence[InputBuffers]) -> list[Called]:
        """Calls in a row on lent inputs, the names of sets; those calls, whichever, whose outputs are to be judged."""
        assert self.sampling is not None
        burst = self._session.burst(names, sets)
        judged = self._last.storages if self._last else ()  # others may say what they like
        self.sampling.ledger.enter_burst(len(names), burst.wall_ns, burst.waited_ns, len(judged))
        return random.SystemRandom().sample(burst.called, JUDGED_OF_A_BURST)

    @property
    def burst_calls(self) -> int:
        """How many calls in a row would say more about the samples than the samples do; 0 if none."""
        if not self.sampling or not self._last:
            return 0
        return min(self.sampling.ledger.burst_calls, self._session.room_for_outputs(self._last))

    def close_ledger(self) -> None:
        """Hold the samples against the referee's accounts. Raises ClockTampered."""
        assert self.sampling is not None
        self._session.believe(self.sampling.ledger)

    def has_enough(self, sides: int) -> bool:
        """Whether the policy is satisfied; of the wall time each of `sides` contestants has its share."""
        sampling = self.sampling
        assert sampling is not None
        return self._policy.stop.done(sampling.samples_ns, _share(sampling.spent, sides))

    def left_s(self, sides: int) -> float:
        """Seconds of sampling that are left at most, for all sides together."""
        assert self.sampling is not None
        return sides * self._policy.stop.left_ns(_share(self.sampling.spent, sides)) / 1e9

    def profile(self, calls: int, trace_fd: int) -> list[dict[str, Any]]:
        """The operator table of `calls` further calls; their chrome trace goes to `trace_fd`."""
        return self._session.profile(self._inputs, calls, trace_fd)

    def take_back(self) -> None:
        """Take the inputs back, if the worker can still answer."""
        for name in sorted(self._lent):
            if self._session.alive:
                self._session.unmap(name)

    def take_printed(self) -> str:
        """What the submission has printed since the last time."""
        return self._session.take_printed()


class Rival:
    """The baseline of an interleaved comparison. What goes wrong with it ends the comparison, not the candidate's run."""

    def __init__(self, contestant: Contestant):
        self.contestant = contestant
        self.failure = ""  # why it is no longer measured
        self.fault: CallFailed | None = None

    @property
    def competes(self) -> bool:
        """Whether it is still measured."""
        return not self.failure

    def attempt(self, step: Callable[..., object], *arguments: Any) -> None:
        """A step of its contestant; nothing once it has failed."""
        if not self.competes:
            return
        try:
            step(self.contestant, *arguments)
        except CallFailed as error:
            self.failure, self.fault = f"fails: {error}", error
        verdict = self.contestant.verdict
        if verdict and not verdict.official.ok:
            self.failure = f"fails the official check: {verdict.official.message}"


def _share(spent: Spent, sides: int) -> Spent:
    return Spent(spent.kernel_ns, spent.wall_ns // sides)
