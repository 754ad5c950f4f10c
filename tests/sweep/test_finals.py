"""The finals: who goes on, what a crash or a biased order does to them, and that all of it is kept and shown."""

import dataclasses
import html.parser
import json

import pytest
from simulated import MACHINE, PRESET, SHAPES, SPACE, SimulatedExecutor, searches_in, store_in, true_ns, worst

from sweep.finals import Finals
from sweep.outcome import outcomes_of
from sweep.report_page import page
from sweep.report_text import summary
from sweep.run import Deadline, Sweep
from sweep.space import Space
from sweep.variant import Ask, Outcome, Variant

SHAPE = SHAPES[0]
ENTRY = worst(SHAPE)
BEST, SECOND = sorted(Space([SPACE], PRESET, SHAPE), key=lambda variant: true_ns(variant, SHAPE))[:2]
EXHAUSTIVE = dataclasses.replace(PRESET, exhaustive=True, trials=1, batch=40)  # so that BEST and SECOND are finalists
A, B, C = (Variant("sim", {"splits": splits}) for splits in (1, 2, 4))


def sweep_of(folder, executor, preset=EXHAUSTIVE):
    """The finished search of one shape, its decision and its outcome."""
    sweep = Sweep(searches_in(store_in(folder), {SHAPE: ENTRY}, preset), executor, Deadline(None), out=lambda line: None)
    decision = sweep.run()[0]
    return sweep.searches[0], decision, outcomes_of(sweep.searches, sweep.decisions)[0]


class Crashing(SimulatedExecutor):
    """Measures BEST right until the finals, and fails it in the first `times` of their rounds."""

    def __init__(self, times, **more):
        super().__init__({SHAPE: ENTRY}, **more)
        self.times = times

    def outcome(self, ask, place, samples):
        if "/final" in ask.tag and ask.variants[place] == BEST and self.times:
            self.times -= 1
            return Outcome((), "failed", "CUDA error 700")
        return super().outcome(ask, place, samples)


def finals_of(*rounds):
    """Finals of A (the favourite), B, C and the incumbent: each round a list of times, a text being a failure."""
    finals = Finals(A, 100.0, (A, B, C, None))
    for times in rounds:
        ask = Ask(None, finals.next_entrants(), 9, "")
        finals = finals.with_round(ask, [Outcome((), "failed", t) if isinstance(t, str) else Outcome((t,) * 9) for t in times])
    return finals


# ---- the rule


def test_who_may_still_be_the_fastest_goes_on_and_the_rest_does_not():
    finals = finals_of([100, 101, 130, 150])
    assert finals.next_entrants() == (A, B)
    assert finals.winner() == A
    assert finals.remarks() == []


def test_a_winner_without_rivals_needs_no_further_round():
    assert finals_of([100, 110, 130, 150]).next_entrants() == ()


def test_a_favourite_that_falls_behind_is_measured_again_and_the_contradiction_is_told():
    finals = finals_of([110, 101, 130, 150])
    assert finals.next_entrants() == (A, B)
    assert finals.winner() == B
    assert "was the fastest while exploring (0.100 us); in the finals 0.110 us, behind sim splits=2" in finals.remarks()[0]


def test_rounds_are_judged_together():
    """One biased round of three does not decide."""
    finals = finals_of([110, 101, 130, 150], [100, 101], [100, 101])
    assert finals.winner() == A
    assert len(finals.samples_ns(A)) == 27


def test_who_fails_gets_one_further_chance():
    once = finals_of(["CUDA error 700", 101, 130, 150])
    assert once.next_entrants() == (B, A)
    mended = once.with_round(Ask(None, (B, A), 9), [Outcome((101,) * 9), Outcome((100,) * 9)])
    assert mended.winner() == A
    assert mended.remarks() == ["sim splits=1 failed in 1 of 2 rounds of the finals: failed: CUDA error 700"]
    twice = once.with_round(Ask(None, (B, A), 9), [Outcome((101,) * 9), Outcome((), "wrong", "3 rows fail")])
    assert twice.next_entrants() == ()
    assert twice.winner() == B
    assert twice.messages(A) == ["failed: CUDA error 700", "wrong: 3 rows fail"]


def test_when_every_candidate_fails_the_incumbent_stays():
    finals = finals_of(["x", "x", "x", 150], [150, "x", "x", "x"])
    assert finals.next_entrants() == ()
    assert finals.winner() is None
    assert finals.all_failed


def test_an_incumbent_that_is_among_the_fastest_goes_on():
    assert finals_of([100, 120, 130, 101]).next_entrants() == (A, None)


# ---- in a search


@pytest.mark.parametrize("rounds", [1, 3])
def test_what_the_slow_entry_leaves_behind_is_not_charged_to_one_finalist(tmp_path, rounds):
    """Whoever is measured right after the entry loses 8 %: more than lies between the fastest two."""
    assert true_ns(SECOND, SHAPE) < 1.08 * true_ns(BEST, SHAPE)
    carried = lambda earlier, variant: 1.08 if earlier == ENTRY and variant != ENTRY else 1.0  # noqa: E731
    executor = SimulatedExecutor({SHAPE: ENTRY}, rounds, 0.003, carried=carried)
    _, decision, _ = sweep_of(tmp_path, executor, dataclasses.replace(EXHAUSTIVE, final_rounds=rounds))
    assert decision.challenger == BEST


def test_a_finalist_that_crashes_once_can_still_win(tmp_path):
    search, decision, outcome = sweep_of(tmp_path, Crashing(1, noise=0.003))
    assert decision.challenger == BEST
    assert search.finals.messages(BEST) == ["failed: CUDA error 700"]
    assert any("failed in 1 of" in line for line in summary([outcome]))


def test_a_finalist_that_keeps_crashing_is_told_of_and_not_chosen(tmp_path):
    executor = Crashing(10, noise=0.003)
    search, decision, outcome = sweep_of(tmp_path, executor)
    assert decision.changes
    assert decision.challenger == SECOND
    assert len(search.finals.messages(BEST)) == 2
    assert any(f"{BEST} failed in 2 of 2 rounds of the finals: failed: CUDA error 700" in line for line in summary([outcome]))
    text = page("mla", MACHINE, [outcome], "note", running=False)
    html.parser.HTMLParser().feed(text)
    assert "failed: CUDA error 700; failed: CUDA error 700" in text


def test_the_finals_are_in_the_study_and_in_the_samples(tmp_path):
    search, decision, outcome = sweep_of(tmp_path, SimulatedExecutor({SHAPE: ENTRY}))
    stored = json.loads(json.dumps(outcome.to_json()))["finals"]
    first = stored["rounds"][0]
    assert len(first["variants"]) == len(first["outcomes"]) == PRESET.finalists + 1
    assert all(one["status"] == "ok" and len(one["samples_ns"]) == PRESET.final_samples for one in first["outcomes"])
    assert [sorted(map(int, turn.split())) for turn in first["turns"]] == [[0, 1, 2, 3]] * PRESET.final_samples
    again, same, _ = sweep_of(tmp_path, SimulatedExecutor({SHAPE: ENTRY}))
    assert same == decision
    assert again.finals == search.finals


def test_rounds_are_bounded(tmp_path):
    """Everything equally fast: no round can decide."""
    executor = SimulatedExecutor({SHAPE: ENTRY}, noise=0.3)
    sweep_of(tmp_path, executor)
    assert 1 <= sum("/final" in ask.tag for ask in executor.asked) <= EXHAUSTIVE.final_rounds
