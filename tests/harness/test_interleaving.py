"""The order in which a submission and its baseline are called; a baseline that fails stops its own measurement only."""

from dataclasses import replace

import pytest
from test_case_run import CASE, POLICY, FakeWorker

from harness.case_run import CaseRun
from harness.errors import SubmissionRaised, WorkerDied
from harness.policies import AfterCalls, Spent


class Side(FakeWorker):
    """One of two workers that write into one log."""

    def __init__(self, clock, log, name):
        super().__init__(clock, log)
        self.name = name

    def __getattribute__(self, attribute):
        log = object.__getattribute__(self, "__dict__").get("log")
        if attribute in ("map", "refresh", "rest", "unmap", "call", "believe") and log is not None:
            return lambda *args, **more: self._told(attribute, *args, **more)
        return object.__getattribute__(self, attribute)

    def _told(self, attribute, *args, **more):
        before = len(self.log)
        try:
            return getattr(FakeWorker, attribute)(self, *args, **more)
        finally:
            self.log[before:] = [f"{self.name}.{step}" for step in self.log[before:]]


class Pair:
    """A candidate A and a baseline B on one clock."""

    def __init__(self):
        self.problem = FakeWorker(_Clock())
        log, clock = self.problem.log, self.problem.clock
        self.a, self.b = Side(clock, log, "A"), Side(clock, log, "B")

    def run(self, policy=POLICY) -> CaseRun:
        tell = lambda phase, **more: None  # noqa: E731
        with CaseRun(self.problem, CASE, policy, self.a, self.problem.clock, tell, self.b) as case_run:  # type: ignore[arg-type]
            case_run.run(timed=True)
        return case_run


class _Clock:
    time_ns = 0

    def now_ns(self) -> int:
        return self.time_ns


@pytest.fixture
def pair() -> Pair:
    return Pair()


def times_of(log: list[str]) -> str:
    return "".join(step[0] for step in log if step.endswith(".time"))


def test_every_step_is_done_by_both_in_turn(pair):
    case_run = pair.run(replace(POLICY, warmup=AfterCalls(2, 10**9), stop=AfterCalls(3, 10**9)))
    begin = ["seed 100", "A.map", "A.rest", "B.map", "B.rest", "A.call", "B.call", "judge", "judge"]
    warm_up, samples = ["A.time"] * 2 + ["B.time"] * 2, ["A.time", "B.time"] * 3
    ends = ["A.believe", "B.believe", "A.unmap", "B.unmap"]
    assert pair.problem.log == [*begin, *warm_up, *samples, "judge", "judge", *ends]
    assert len(case_run.sampling.samples_ns) == len(case_run.rival.contestant.sampling.samples_ns) == 3


def test_both_see_every_renewal(pair):
    pair.run(replace(POLICY, fresh="each", foreseeable=True, judged="each", stop=AfterCalls(2, 10**9)))
    rounds = [
        step
        for seed in (113, 126)
        for step in (f"seed {seed}", "A.refresh", "A.rest", "B.refresh", "B.rest", "A.time", "B.time", "judge", "judge")
    ]
    assert pair.problem.log[9:-4] == rounds


def test_sampling_goes_on_until_both_have_enough(pair):
    class EnoughOnce:
        """Satisfied with the baseline's samples only after ten."""

        asked = 0

        def done(self, samples_ns, spent):
            self.asked += 1
            return len(samples_ns) >= (10 if self.asked % 2 == 0 else 1)

        def left_ns(self, spent):
            return 0

    pair.run(replace(POLICY, stop=EnoughOnce()))
    assert times_of(pair.problem.log) == "AB" * 10


def test_each_side_has_its_share_of_the_wall_time(pair):
    seen = []

    class Watching(AfterCalls):
        def done(self, samples_ns, spent: Spent):
            seen.append(spent)
            return super().done(samples_ns, spent)

    pair.run(replace(POLICY, stop=Watching(4, 10**9)))
    assert all(spent.wall_ns == spent.kernel_ns for spent in seen)  # nothing but calls of 10 ns takes time here


@pytest.mark.parametrize("error", [SubmissionRaised("boom"), WorkerDied("gone")])
def test_a_baseline_that_fails_leaves_the_candidate_alone(pair, error):
    def failing(*args, **more):
        raise error

    pair.b.raises_at = 4
    if isinstance(error, WorkerDied):
        object.__setattr__(pair.b, "_told", failing)
    case_run = pair.run()
    assert len(case_run.sampling.samples_ns) == 6
    assert case_run.rival.failure == f"fails: {error}"
    assert case_run.rival.fault is error or str(case_run.rival.fault) == str(error)


def test_a_wrong_baseline_is_not_compared_with(pair):
    judgements = iter([True, False])

    def judge(data, output):
        return {"official": {"ok": next(judgements, True), "message": "values differ"}}

    pair.problem.judge = judge
    case_run = pair.run()
    assert case_run.rival.failure == "fails the official check: values differ"
    assert "B" not in times_of(pair.problem.log)
    assert len(case_run.sampling.samples_ns) == 6


def test_a_candidate_that_fails_gives_both_inputs_back(pair):
    pair.a.raises_at = 3
    with pytest.raises(SubmissionRaised):
        pair.run()
    assert pair.problem.log[-2:] == ["A.unmap", "B.unmap"]
