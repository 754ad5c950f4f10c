"""Axes: order kept, ends met, ticks round and few."""

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harness.report.scale import MOST_LOG_TICKS, Linear, Log

positive = st.floats(1e-3, 1e12)


def ordered(low: float, high: float) -> tuple[float, float]:
    assume(low * 1.0001 < high)
    return low, high


@settings(deadline=None)
@given(positive, positive, st.lists(positive, min_size=2, max_size=5))
def test_positions_keep_the_order(low, high, values):
    for axis in (Linear(*ordered(low, high)), Log(low, high)):
        positions = [axis.percent(value) for value in sorted(values)]
        assert positions == sorted(positions)
        assert axis.percent(low) == pytest.approx(0)
        assert axis.percent(high) == pytest.approx(100)
        assert all(0 <= position <= 100 for position in positions)


@settings(deadline=None)
@given(positive, positive)
def test_linear_ticks(low, high):
    ticks = Linear(*ordered(low, high)).ticks()
    assert 1 <= len(ticks) <= 9
    slack = 1e-9 * high
    assert all(low - slack <= tick <= high + slack for tick in ticks)


@settings(deadline=None)
@given(positive, positive)
def test_log_ticks_are_one_two_five(low, high):
    ticks = Log(*ordered(low, high)).ticks()
    assert len(ticks) <= MOST_LOG_TICKS
    assert all(low <= tick <= high for tick in ticks)
    assert all(round(tick / 10 ** math.floor(math.log10(tick) + 1e-9), 6) in (1, 2, 5) for tick in ticks)


def test_what_is_not_positive_lies_at_the_end_of_a_log_axis():
    assert Log(1, 10).percent(0) == 0
    assert Log(1, 100).percent(10) == 50
