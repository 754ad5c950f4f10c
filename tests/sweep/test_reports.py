"""What a sweep tells: importance of parameters, the page, the terminal's table."""

import html.parser
import random

import pytest
from simulated import MACHINE, PRESET, SHAPES, SPACE, target, true_ns

from sweep.decision import Decision, Duel, decide, noise_floor
from sweep.importance import importance
from sweep.outcome import ShapeOutcome
from sweep.racing import losers
from sweep.record import Record
from sweep.report_page import page
from sweep.report_text import summary
from sweep.run import Deadline
from sweep.space import Space
from sweep.variant import Variant

SHAPE = SHAPES[0]


def records():
    """Every setting of the simulated backend at its exact time, one of them wrong."""
    found = [Record(v, "ok", (round(true_ns(v, SHAPE)),) * 3) for v in Space([SPACE], PRESET, SHAPE)]
    return [Record(found[0].variant, "wrong", (), "<b>12 rows fail</b>"), *found[1:]]


def outcome(decision=None):
    return ShapeOutcome(target(SHAPE), tuple(records()), decision or Decision(False, "not decided yet", None, None), 55_000.0)


def test_the_parameter_that_changes_most_matters_most():
    shares = importance(records())
    assert next(iter(shares)) == "splits"
    assert set(shares) == {"splits", "tile", "warps", "mode"}
    assert all(0 < share < 1 for share in shares.values())


def test_without_differences_nothing_matters():
    same = [Record(Variant("sim", {"splits": n}), "ok", (1000,)) for n in range(5)]
    assert importance(same) == {}
    assert importance([]) == {}


def test_the_page_is_whole_and_escapes_what_kernels_say():
    text = page("mla", MACHINE, [outcome()], "note", running=True)
    html.parser.HTMLParser().feed(text)
    assert "<b>12 rows fail" not in text
    assert "&lt;b&gt;12 rows fail" in text
    assert "<script" not in text
    assert 'http-equiv="refresh"' in text
    assert text.count("<circle") == len(records()) - 1
    assert 'http-equiv="refresh"' not in page("mla", MACHINE, [outcome()], "note", running=False)


def test_a_page_without_a_single_time_is_a_page():
    empty = ShapeOutcome(target(SHAPE), (), Decision(False, "not decided yet", None, None))
    assert "No candidate has a time yet." in page("mla", MACHINE, [empty], "note", running=True)


def samples(center, count=41, seed=0, noise=0.01):
    draw = random.Random(seed)
    return tuple(round(center * draw.gauss(1, noise)) for _ in range(count))


@pytest.mark.parametrize(("challenger", "changes"), [(9_000, True), (9_990, False), (10_000, False), (11_000, False)])
def test_an_entry_changes_only_beyond_the_noise(challenger, changes):
    duel = Duel(samples(10_000, seed=1), samples(10_000, seed=2), samples(challenger, seed=3))
    decision = decide(Variant("sim"), Variant("sim", {"splits": 2}), duel)
    assert decision.changes is changes
    assert decision.median_ns == pytest.approx(challenger if changes else 10_000, rel=0.01)
    lines = summary([outcome(decision)])
    assert any("noise floor: equal kernels differed by up to" in line for line in lines)
    assert ("-> sim splits=2" in lines[1]) is changes


def test_a_gain_within_the_incumbent_s_own_noise_changes_nothing():
    """The same kernel twice in a row, 3 % apart: a challenger 2 % faster proves nothing."""
    duel = Duel(samples(10_000, seed=1, noise=0.001), samples(9_700, seed=2, noise=0.001), samples(9_800, seed=3, noise=0.001))
    decision = decide(Variant("sim"), Variant("sim", {"splits": 2}), duel)
    assert not decision.changes
    assert "within the noise of equal kernels" in decision.reason
    assert noise_floor([duel.noise]) > 0.02


def test_a_race_drops_what_cannot_be_the_best():
    found = losers({1: [100, 101, 102], 2: [99, 103, 104], 3: [200, 201, 205]})
    assert found == {3}
    assert losers({1: [100, 101, 102]}, best_known_ns=[50, 51, 52]) == {1}
    assert losers({}) == set()
    assert losers({1: []}) == set()


def test_the_time_left_follows_progress_and_the_limit():
    now = [0.0]
    deadline = Deadline(10, lambda: now[0])
    assert deadline.left_s(0.0) == 600
    now[0] = 60.0
    assert deadline.left_s(0.5) == 60
    assert deadline.left_s(0.01) == 540
    assert not deadline.is_late()
    now[0] = 560.0
    assert deadline.is_late()
    assert not Deadline(None, lambda: now[0]).is_late()
