"""The order of events inside a case, with a worker, a problem and a clock that are stand-ins: no process, no waiting."""

from dataclasses import dataclass, field, replace

import pytest
import torch

from harness.accounts import MAX_BURSTS, Ledger
from harness.called import Burst, Called
from harness.case_run import CaseRun
from harness.contestant import MAX_SLEEP_NS
from harness.defences import Defences
from harness.errors import ClockTampered, OutOfMemory, SubmissionRaised
from harness.inputs import InputBuffers
from harness.policies import AfterCalls, Policy, weakened
from harness.timing import Cold, Sample
from popcorn.cases import parse_case

CASE = parse_case("size: 4; seed: 100", "test")
POLICY = Policy(
    "fake", "median", Cold("none"), hides_launch=False, stop=AfterCalls(6, 10**9), warmup=None, first_case_warmup=None
)
FRESH = replace(POLICY, fresh="each", judged="each", foreseeable=True)


class FakeClock:
    def __init__(self):
        self.time_ns = 0

    def now_ns(self) -> int:
        return self.time_ns


@dataclass
class FakeWorker:
    """A worker and a problem in one; writes down what is asked of it. A call takes 10 ns, renewing and judging 40 each."""

    clock: FakeClock
    log: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of the inputs that calls were made on
    device_ipc: bool = False
    alive: bool = True
    mutable_inputs: tuple[int, ...] | None = None
    changes: tuple[int, ...] = ()  # positions of inputs that every call writes
    walls_ns: int = 0  # that the referee waits for a timed call
    bursts_ns: list[int] = field(default_factory=list)  # of a call in each burst
    room: int = 1  # for sets of inputs
    output_room: int = 10**6  # calls
    seeds_in_memory: int = 10**9  # contents that there is memory for
    compared: list[str] = field(default_factory=list)  # names of inputs that were held against the referee's
    wrong_from: int = 10**9  # the first judged output that is wrong
    raises_at: int = 10**9
    exposed_below_ns: int = 0  # a sleep shorter than this shows the launch latency
    calls: int = 0
    judged: int = 0

    def new_buffers(self) -> InputBuffers:
        return InputBuffers(self.device_ipc)

    def take_printed(self) -> str:
        return ""

    def map(self, name, buffers):
        self.log.append("map")

    def refresh(self, name):
        self.log.append("refresh")

    def room_for(self, inputs):
        return self.room

    def room_for_outputs(self, like):
        return self.output_room

    def lend_for_outputs(self, calls, like):
        self.log.append(f"room for {calls} outputs")

    def burst(self, names, late):
        self.log.append(f"burst of {len(names)}")
        self.names = list(names)
        wall_ns = len(names) * (self.bursts_ns.pop(0) if self.bursts_ns else 10)
        return Burst(tuple(Called(Sample(0, 0, False), None, (), index=i) for i in range(len(names))), wall_ns, 0)

    def rest(self):
        self.log.append("rest")

    def open_ledger(self):
        return Ledger()

    def believe(self, ledger):
        self.log.append("believe")
        if ledger.contradiction():
            raise ClockTampered(ledger.contradiction())

    def changed_inputs(self, name, buffers):
        self.log.append("compare")
        self.compared.append(name)
        return list(self.changes)

    def unmap(self, name):
        self.log.append("unmap")

    def call(self, name, timed=False, sleep_ns=0, describe=False, take=False, late=None):
        self.calls += 1
        self.names.append(name)
        if self.calls >= self.raises_at:
            raise SubmissionRaised("boom")
        self.clock.time_ns += 10
        self.log.append("time" if timed else "call")
        sample = Sample(10, 5, timed and sleep_ns < self.exposed_below_ns)
        return Called(sample, None, (), None, wall_ns=self.walls_ns, taken=take)

    def take(self, called):
        return None

    def generate_input(self, case):
        self.clock.time_ns += 40
        self.log.append(f"seed {case.spec['seed']}")
        if sum(step.startswith("seed") for step in self.log) > self.seeds_in_memory:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nhelp")
        return torch.zeros(case.spec["size"])

    def judge(self, data, output):
        self.clock.time_ns += 40
        self.judged += 1
        self.log.append("judge")
        return {"official": {"ok": self.judged < self.wrong_from, "message": ""}, "strict": {"ok": True}}

    def check_implementation(self, data, output):
        self.clock.time_ns += 10
        self.judged += 1
        self.log.append("check")
        return self.judged < self.wrong_from, ""


@pytest.fixture
def worker() -> FakeWorker:
    return FakeWorker(FakeClock())


def run(worker: FakeWorker, policy: Policy = POLICY, timed: bool = True) -> CaseRun:
    with CaseRun(worker, CASE, policy, worker, worker.clock, lambda phase, **more: None) as case_run:
        case_run.run(timed)
    return case_run


def test_without_timing(worker):
    run(worker, timed=False)
    assert worker.log == ["seed 100", "map", "rest", "call", "judge", "unmap"]


def test_first_and_last_outputs_are_judged(worker):
    case_run = run(worker)
    assert worker.log == ["seed 100", "map", "rest", "call", "judge", *["time"] * 6, "judge", "believe", "unmap"]
    assert case_run.sampling.samples_ns == [10] * 6


def test_fresh_contents_for_each_sample(worker):
    run(worker, replace(FRESH, stop=AfterCalls(3, 10**9)))
    rounds = [step for seed in (113, 126, 139) for step in (f"seed {seed}", "refresh", "rest", "time", "judge")]
    assert worker.log == ["seed 100", "map", "rest", "call", "judge", *rounds, "believe", "unmap"]


BURSTS = replace(FRESH, bursts=True, stop=AfterCalls(2, 10**9))


def burst(seed: int) -> list[str]:
    """What a burst of 32 calls takes: room before there are contents, and two judged outputs."""
    return ["room for 32 outputs", f"seed {seed}", "refresh", "rest", "burst of 32", *["judge", "compare"] * 2]


def test_a_burst_on_fresh_contents_follows_the_samples(worker):
    worker.mutable_inputs = ()
    run(worker, BURSTS)
    assert worker.log[-11:] == [*burst(139), "believe", "unmap"]


@pytest.mark.parametrize(("room", "sets"), [(1, 1), (5, 5), (10**6, 32)])
def test_each_call_of_a_burst_has_contents_of_its_own_as_far_as_there_is_room(worker, room, sets):
    worker.room, worker.mutable_inputs = room, ()
    run(worker, BURSTS)
    at = worker.log.index("burst of 32")
    assert sum(step.startswith("seed") for step in worker.log[:at]) == 3 + sets  # all of them new, and poured only then
    assert worker.log[at - 1] == "rest"
    assert sorted(map(worker.names.count, set(worker.names))) == sorted(len(range(i, 32, sets)) for i in range(sets))
    assert set(worker.compared[-2:]) <= set(worker.names)
    assert worker.log.count("unmap") == len({"inputs0", *worker.names})


def test_a_burst_has_no_more_calls_than_outputs_fit(worker):
    worker.output_room, worker.mutable_inputs = 5, ()
    run(worker, BURSTS)
    assert "room for 5 outputs" in worker.log
    assert "burst of 5" in worker.log


@pytest.mark.parametrize(("seeds", "what"), [(0, "the inputs"), (2, "the inputs"), (4, "32 sets of inputs")])
def test_memory_that_the_submission_has_taken(worker, seeds, what):
    """Whoever leaves no room for contents of its own in each call of a burst is not timed without them."""
    worker.seeds_in_memory, worker.room, worker.mutable_inputs = seeds, 10**6, ()
    with pytest.raises(OutOfMemory, match=f"no memory left for {what}; .* leave the referee half of it: CUDA out of memory"):
        run(worker, BURSTS)


def test_a_slow_burst_is_repeated(worker):
    worker.bursts_ns, worker.mutable_inputs = [10**8], ()
    run(worker, BURSTS)
    assert worker.log[-20:] == [*burst(139), *burst(152), "believe", "unmap"]


def test_only_slow_bursts_are_not_believed(worker):
    worker.bursts_ns, worker.mutable_inputs = [10**8] * 9, ()
    with pytest.raises(ClockTampered, match="in a row"):
        run(worker, BURSTS)
    assert worker.log.count("burst of 32") == MAX_BURSTS


def test_a_wrong_output_of_a_burst_fails(worker):
    worker.wrong_from, worker.mutable_inputs = 4, ()
    assert not run(worker, BURSTS).passes


@pytest.mark.parametrize("mutable", [None, (0,)])
def test_no_burst_where_inputs_may_be_written(worker, mutable):
    """The second call of a burst would find what the first one wrote."""
    worker.mutable_inputs = mutable
    run(worker, BURSTS)
    assert not any(step.startswith("burst") for step in worker.log)


def test_drawn_seeds_cannot_be_foreseen():
    seen = set()
    for _ in range(3):
        worker = FakeWorker(FakeClock())
        run(worker, replace(FRESH, foreseeable=False, stop=AfterCalls(5, 10**9)))
        seeds = [step for step in worker.log if step.startswith("seed")]
        assert seeds[0] == "seed 100"
        seen |= set(seeds[1:])
    assert len(seen) == 15


def test_a_changed_input_fails_the_strict_verdict(worker):
    worker.mutable_inputs, worker.changes = (), (0, 2)
    case_run = run(worker)
    assert case_run.passes
    assert not case_run.verdict.ok
    assert "input 0, 2 was changed" in case_run.verdict.strict.message


@pytest.mark.parametrize(("mutable", "compared"), [((0,), True), (None, False)])
def test_inputs_that_may_be_written(worker, mutable, compared):
    worker.mutable_inputs, worker.changes = mutable, (0,)
    assert run(worker).verdict.ok
    assert ("compare" in worker.log) is compared


def test_times_that_the_referee_cannot_believe(worker):
    worker.walls_ns = 10**9
    with pytest.raises(ClockTampered, match="kept the referee waiting"):
        run(worker, FRESH)


def test_buffers_are_visited_in_random_order_and_warm(worker):
    run(worker, replace(FRESH, pool=3, warmup=AfterCalls(1, 10**9), stop=AfterCalls(40, 10**9)))
    before_sampling = worker.log[: -5 * 40 - 4]
    assert before_sampling.count("map") == 3  # none is seen for the first time by a sample
    assert {name: worker.names.count(name) > 1 for name in worker.names} == dict.fromkeys(
        ("inputs0", "inputs1", "inputs2"), True
    )
    assert worker.log[-3:] == ["unmap"] * 3


def test_no_content_is_timed_twice(worker):
    worker.exposed_below_ns = 300_000
    case_run = run(worker, replace(FRESH, hides_launch=True))
    assert len(case_run.sampling.samples_ns) == 6
    seeds = [step for step in worker.log if step.startswith("seed")]
    assert len(seeds) == len(set(seeds)) == 1 + worker.log.count("time") > 7


def test_calls_are_alike(worker):
    run(worker, replace(FRESH, alike=True, warmup=AfterCalls(2, 10**9)))
    assert "call" not in worker.log


def test_the_number_of_warm_up_calls_cannot_be_foreseen():
    policy = replace(FRESH, alike=True, warmup=AfterCalls(4, 10**9), stop=AfterCalls(1, 10**9))
    counts = set()
    for _ in range(60):
        worker = FakeWorker(FakeClock())
        run(worker, policy)
        counts.add(worker.calls)
    assert counts == {3, 4, 5, 6}


def test_every_sample_is_judged_strictly(worker):
    """A share of them would let a submission that is fast and wrong in the others have its median."""
    run(worker, replace(FRESH, stop=AfterCalls(50, 10**9)))
    assert worker.log.count("judge") == 51
    assert "check" not in worker.log


def test_without_strict_verdicts_only_the_official_check_runs(worker):
    run(worker, replace(FRESH, strict=False))
    assert "judge" not in worker.log
    assert worker.log.count("check") == 7


@pytest.mark.parametrize(
    ("defence", "field", "value"),
    [
        ("fresh_inputs", "fresh", "never"),
        ("check_every_call", "judged", "ends"),
        ("strict_verdict", "strict", False),
        ("drawn_contents", "foreseeable", True),
        ("referee_clock", "bursts", False),
        ("fresh_inputs", "bursts", False),
        ("one_code_path", "alike", False),
        ("cold_caches", "cold", Cold("none")),
    ],
)
def test_a_defence_that_is_off_weakens_the_policy(defence, field, value):
    policy = replace(FRESH, alike=True, foreseeable=False, bursts=True, cold=Cold("read", 1))
    assert weakened(policy, Defences()) == policy
    assert getattr(weakened(policy, Defences().without(defence)), field) == value


def test_a_wrong_output_ends_the_sampling(worker):
    worker.wrong_from = 3
    case_run = run(worker, FRESH)
    assert worker.judged == 3
    assert not case_run.passes


def test_a_wrong_first_output_is_never_timed(worker):
    worker.wrong_from = 1
    assert run(worker).sampling is None
    assert "time" not in worker.log


def test_warm_up_is_not_counted(worker):
    case_run = run(worker, replace(POLICY, warmup=AfterCalls(4, 10**9), stop=AfterCalls(2, 10**9)))
    assert worker.log.count("time") == 6
    assert len(case_run.sampling.samples_ns) == 2


def test_the_sleep_grows_until_launches_are_hidden(worker):
    worker.exposed_below_ns = 300_000
    case_run = run(worker, replace(POLICY, hides_launch=True))
    assert case_run.sampling.exposed == 0
    assert len(case_run.sampling.samples_ns) == 6
    assert 300_000 <= case_run.sampling.sleep_ns <= 600_000


def test_a_call_that_waits_for_the_device_is_counted_as_exposed(worker):
    worker.exposed_below_ns = 10 * MAX_SLEEP_NS
    case_run = run(worker, replace(POLICY, hides_launch=True))
    assert case_run.sampling.exposed == 6
    assert len(case_run.sampling.samples_ns) == 6


def test_inputs_are_taken_back_after_a_failure(worker):
    worker.raises_at = 4
    with pytest.raises(SubmissionRaised):
        run(worker)
    assert worker.log[-1] == "unmap"


def test_nothing_is_asked_of_a_dead_worker(worker):
    worker.raises_at, worker.alive = 1, False
    with pytest.raises(SubmissionRaised):
        run(worker)
    assert worker.log == ["seed 100", "map", "rest"]
