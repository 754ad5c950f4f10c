"""Statistics by independent formulas and by simulation."""

import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.stats import mean_std_err, median_interval, percentile_interval, relative_width, summarize

samples = st.lists(st.integers(1, 10**9), min_size=1, max_size=60)


@settings(deadline=None)
@given(samples)
def test_figures_by_the_standard_library(values):
    timing = summarize(values)
    assert timing.runs == len(values)
    assert timing.samples_ns == tuple(values)
    assert timing.median_ns == statistics.median(values)
    assert timing.mean_ns == pytest.approx(statistics.fmean(values), rel=1e-12)
    assert (timing.best_ns, timing.worst_ns) == (min(values), max(values))
    if len(values) > 1:
        assert timing.std_ns == pytest.approx(statistics.stdev(values), rel=1e-9, abs=1e-9)
        assert timing.err_ns == pytest.approx(statistics.stdev(values) / len(values) ** 0.5, rel=1e-9, abs=1e-9)
    low, high = timing.ci95_ns
    assert min(values) <= low <= high <= max(values)


def test_one_sample_has_no_spread():
    assert mean_std_err([7]) == (7.0, 0.0, 0.0)
    assert median_interval([7]) == (7.0, 7.0)


def test_no_samples():
    with pytest.raises(ValueError, match="no samples"):
        summarize([])


def test_equal_samples_have_an_interval_of_no_width():
    assert median_interval([5] * 40) == (5.0, 5.0)
    assert relative_width([5] * 40) == 0.0


def test_intervals_are_reproducible():
    values = [int(value) for value in np.random.default_rng(1).normal(1000, 20, 50)]
    assert median_interval(values) == median_interval(values)


def test_ties_around_the_median_fall_back_to_percentiles():
    values = [100] * 30 + [200]
    assert median_interval(values) == (100.0, 100.0)


def test_the_interval_covers_the_true_median():
    """Of 200 intervals about 95 % hold the truth; fewer than 88 % would be a five-sigma event."""
    draw = np.random.default_rng(2)
    covered = 0
    for _ in range(200):
        low, high = percentile_interval(draw.lognormal(0.0, 0.3, 40) * 1e4, 1000)
        covered += low <= 1e4 <= high
    assert covered >= 176


def test_more_samples_narrow_the_interval():
    draw = np.random.default_rng(3)
    wide, narrow = (relative_width([int(v) for v in draw.normal(10_000, 300, runs)]) for runs in (20, 500))
    assert narrow < wide / 2
