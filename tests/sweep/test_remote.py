"""Tuning on a leaderboard server: merged submissions, rate limits, broken connections, failures, resumption."""

import json

import pytest
from popcorn_standin import StandIn
from simulated import MACHINE, SHAPES, SimulatedExecutor, best_ns, searches_in, store_in, target, true_ns, worst

from popcorn.client import Client
from popcorn.connection import Connection
from sweep.config import Preset
from sweep.errors import ServerFailed
from sweep.ledger import Ledger
from sweep.popcorn_run import BenchmarkServer, seconds_in
from sweep.remote import PopcornExecutor
from sweep.run import Deadline, Sweep
from sweep.submission import TAIL
from sweep.variant import Ask, Shape, Variant

REMOTE = Preset("remote", 12, 6, (1,), 1, 2, 2, 6)
ENTRIES = {shape: worst(shape) for shape in SHAPES}


def text_of(choices):
    """A submission with the tail alone: the stand-in reads no more."""
    variants = {str(s): json.dumps({"backend": v.backend, "params": v.params}) for s, v in choices.items()}
    return TAIL.format(variants=json.dumps(variants), config=4, key="sweep_variant")


@pytest.fixture
def standin():
    made = StandIn(SimulatedExecutor(ENTRIES, noise=0.003), list(SHAPES))
    yield made
    made.close()


class Waits(list):
    """Stands for time.sleep."""

    def __call__(self, seconds):
        self.append(seconds)


def executor(standin, folder, waits=None):
    client, sleep = Client(Connection(standin.url, "token")), Waits() if waits is None else waits
    server = BenchmarkServer(client, "AMD-Mixed-MLA", "MI355X", log=lambda line: None, sleep=sleep)
    return PopcornExecutor(server, MACHINE, text_of, Ledger(folder / "runs.jsonl"))


def variant(splits, **more):
    return Variant("sim", {"splits": splits, "tile": 64, "warps": 4, "mode": "a", **more})


def test_the_search_finds_back_over_the_wire(standin, tmp_path):
    searches = searches_in(store_in(tmp_path), ENTRIES, REMOTE)
    decisions = Sweep(searches, executor(standin, tmp_path), Deadline(None), out=lambda line: None).run()
    for number, shape in enumerate(ENTRIES):
        assert decisions[number].changes
        assert true_ns(decisions[number].challenger, shape) <= best_ns(shape) * 1.35
        assert true_ns(decisions[number].challenger, shape) < true_ns(ENTRIES[shape], shape)
    assert set(standin.paths) == {"/amd-mixed-mla/MI355X/benchmark"}


def test_one_submission_measures_one_variant_of_every_shape(standin, tmp_path):
    asks = [Ask(target(shape), (variant(2), None, variant(4)), 2) for shape in SHAPES]
    answers = dict(executor(standin, tmp_path).run(asks))
    assert len(standin.received) == 6
    assert all(len(outcome.samples_ns) == 2 for outcomes in answers.values() for outcome in outcomes)
    served = [choices.get(str(SHAPES[0]), {}).get("params", {}).get("splits") for choices in standin.received]
    assert served == [(2, None, 4)[place] for turn in range(2) for place in asks[0].order(turn)]


def test_rate_limits_are_waited_out_and_broken_runs_sent_again(standin, tmp_path):
    waits = Waits()
    standin.faults = [(429, "2 of 2 benchmark submissions in the last hour; try again in 47 s"), "hang up", (503, "restarting")]
    ((_, (outcome,)),) = executor(standin, tmp_path, waits).run([Ask(target(SHAPES[0]), (variant(2),), 1)])
    assert outcome.ok
    assert waits[0] == 48
    assert len(waits) == 3


def test_a_server_that_stays_away_ends_the_sweep_with_nothing_lost(standin, tmp_path):
    standin.faults = [(503, "restarting")] * 50
    with pytest.raises(ServerFailed, match="start again later"):
        list(executor(standin, tmp_path).run([Ask(target(SHAPES[0]), (variant(2),), 1)]))
    standin.faults = [(401, "unknown token")]
    with pytest.raises(ServerFailed, match="POPCORN_CLI_ID"):
        list(executor(standin, tmp_path).run([Ask(target(SHAPES[0]), (variant(2),), 1)]))


@pytest.mark.parametrize("stops", [True, False])
def test_a_failing_variant_fails_alone(standin, tmp_path, stops):
    standin.stop_at_failure = stops
    bad = variant(2, mode="b")
    standin.simulated.broken = lambda v: "failed" if v == bad else "ok"
    asks = [Ask(target(SHAPES[0]), (bad, variant(4)), 1), Ask(target(SHAPES[1]), (variant(8),), 1)]
    answers = dict(executor(standin, tmp_path).run(asks))
    assert [outcome.status for outcome in answers[0]] == ["failed", "ok"]
    assert "mode=b is failed" in answers[0][0].message
    assert answers[1][0].ok


def test_a_variant_that_takes_the_whole_run_down_is_found(standin, tmp_path):
    shapes = [Shape(batch, 1, 1024, 16) for batch in (4, 8, 16, 32)]
    standin.shapes = shapes
    standin.simulated.entries = {shape: worst(shape) for shape in shapes}
    bad = variant(2, mode="b")
    standin.simulated.broken = lambda v: "crash" if v == bad else "ok"
    asks = [Ask(target(shape), (bad if number == 2 else variant(4),), 1) for number, shape in enumerate(shapes)]
    answers = dict(executor(standin, tmp_path).run(asks))
    assert [answers[number][0].status for number in range(4)] == ["ok", "ok", "failed", "ok"]
    assert "139" in answers[2][0].message


def test_a_table_that_does_not_run_there_is_said(standin, tmp_path):
    standin.simulated.broken = lambda v: "crash"
    with pytest.raises(ServerFailed, match="even for the present table"):
        list(executor(standin, tmp_path).run([Ask(target(SHAPES[0]), (None,), 2)]))


def test_an_error_event_is_the_run_s_failure(standin, tmp_path):
    standin.faults = [("error", "no runner for MI355X")]
    ((_, (outcome,)),) = executor(standin, tmp_path).run([Ask(target(SHAPES[0]), (variant(2),), 1)])
    assert outcome.status == "failed"
    assert outcome.message == "no runner for MI355X"


def test_finished_runs_are_not_sent_again_after_a_crash(standin, tmp_path):
    asks = [Ask(target(shape), (None, None, variant(4)), 3, f"{shape}/duel") for shape in SHAPES]
    standin.faults = [None] * 5 + [(503, "down")] * 6
    with pytest.raises(ServerFailed):
        list(executor(standin, tmp_path).run(asks))
    assert len(standin.received) == 5
    with (tmp_path / "runs.jsonl").open("a") as file:
        file.write('{"key": "cut sho')
    standin.faults = []
    answers = dict(executor(standin, tmp_path).run(asks))
    assert len(standin.received) == 9
    assert [len(outcome.samples_ns) for outcome in answers[0]] == [3, 3, 3]


def test_another_step_of_the_search_measures_anew(standin, tmp_path):
    for tag in ("final", "duel"):
        list(executor(standin, tmp_path).run([Ask(target(SHAPES[0]), (variant(4),), 1, tag)]))
    assert len(standin.received) == 2


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("try again in 47 s", 47), ("10 per 3600 s, wait 12.5 seconds", 12.5), ("Rate limit: 5 sec", 5), ("too many", None)],
)
def test_seconds_to_wait_are_read_from_the_refusal(text, seconds):
    assert seconds_in(text) == seconds
