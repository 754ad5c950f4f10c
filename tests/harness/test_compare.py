"""The comparison rule: properties that hold for all samples, and intervals that cover the truth."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from terminal_results import H200

from harness.compare import MARGIN, change_of, change_text, compare_cases, compare_timings, is_regression
from harness.errors import CannotCompare
from harness.result import Change, Comparison
from harness.stats import summarize

SAMPLES = st.lists(st.integers(1_000, 1_000_000), min_size=6, max_size=30)
EDGES = st.floats(0.5, 2.0)
SWAPPED = {**{change: change for change in Change}, Change.FASTER: Change.SLOWER, Change.SLOWER: Change.FASTER}


def compare(samples_ns, baseline_ns, interleaved=True) -> Comparison:
    return compare_timings(summarize(samples_ns), summarize(baseline_ns), interleaved)


@pytest.mark.parametrize(
    ("ci95", "change"),
    [
        ((0.90, 0.95), Change.FASTER),
        ((0.98, 0.9950), Change.AMBIGUOUS),
        ((0.995, 1.005), Change.SAME),
        ((1.002, 1.008), Change.SAME),  # surely slower, and by less than matters
        ((0.97, 1.03), Change.AMBIGUOUS),
        ((1.005, 1.02), Change.AMBIGUOUS),
        ((1.011, 1.02), Change.SLOWER),
        ((0.5, 2.0), Change.AMBIGUOUS),
    ],
)
def test_the_rule(ci95, change):
    assert change_of(ci95) is change


@given(EDGES, EDGES)
def test_swapping_the_sides_turns_faster_into_slower(one, other):
    low, high = sorted((one, other))
    near_an_edge = any(abs(value * edge - 1) < 1e-9 for value in (low, high) for edge in (1 + MARGIN, 1 / (1 + MARGIN)))
    assume(not near_an_edge)
    assert change_of((1 / high, 1 / low)) is SWAPPED[change_of((low, high))]


@given(EDGES, EDGES, EDGES)
def test_a_narrower_interval_never_contradicts_a_wider_one(one, two, three):
    low, middle, high = sorted((one, two, three))
    wide = change_of((low, high))
    assert wide is Change.AMBIGUOUS or change_of((low, middle)) is wide


@settings(max_examples=25, deadline=None)
@given(SAMPLES, st.booleans())
def test_a_submission_is_the_same_as_itself_when_interleaved(samples_ns, interleaved):
    found = compare(samples_ns, samples_ns, interleaved)
    assert found.ratio == 1.0
    assert found.ci95[0] <= 1.0 <= found.ci95[1]
    if interleaved:
        assert found.change is Change.SAME  # pairs cancel whatever disturbed both


@settings(max_examples=25, deadline=None)
@given(SAMPLES, SAMPLES, st.booleans())
def test_the_interval_holds_the_ratio(samples_ns, baseline_ns, interleaved):
    found = compare(samples_ns, baseline_ns, interleaved)
    assert found.ratio == summarize(samples_ns).median_ns / summarize(baseline_ns).median_ns
    assert found.ci95[0] <= found.ratio <= found.ci95[1]
    assert found.change is change_of(found.ci95)


@settings(max_examples=15, deadline=None)
@given(SAMPLES, st.integers(2, 9))
def test_the_unit_does_not_matter(samples_ns, factor):
    baseline_ns = [value + 500 for value in samples_ns]
    one, other = compare(samples_ns, baseline_ns), compare([factor * v for v in samples_ns], [factor * v for v in baseline_ns])
    assert one.ratio == pytest.approx(other.ratio)
    assert one.ci95 == pytest.approx(other.ci95)


def test_drift_that_both_sides_see_cancels_in_pairs():
    drift = np.linspace(1.0, 1.5, 40)
    samples_ns, baseline_ns = [int(10_000 * d) for d in drift], [int(11_000 * d) for d in drift]
    paired, apart = compare(samples_ns, baseline_ns), compare(samples_ns, baseline_ns, interleaved=False)
    assert paired.change is Change.FASTER
    assert paired.ci95[1] - paired.ci95[0] < (apart.ci95[1] - apart.ci95[0]) / 10


@pytest.mark.parametrize(("true_ratio", "wrong"), [(1.0, {Change.FASTER, Change.SLOWER}), (1.05, {Change.FASTER, Change.SAME})])
def test_verdicts_on_noise_are_seldom_wrong(true_ratio, wrong):
    random = np.random.default_rng(7)
    verdicts = []
    for _ in range(60):
        a, b = (random.normal(size * 10_000, 200, 60).astype(int).tolist() for size in (true_ratio, 1.0))
        verdicts.append(compare(a, b).change)
    assert sum(verdict in wrong for verdict in verdicts) <= 3


def test_too_few_samples():
    with pytest.raises(CannotCompare, match="has 5 samples beside this one's; a comparison needs 6 of each"):
        compare([1000] * 5, [1000] * 9)


def test_an_interrupted_run_may_hold_one_sample_more():
    assert compare([1000] * 9, [1000] * 8).change is Change.SAME


def cases_with(*factors: float):
    cases = []
    for case, factor in zip(H200.cases, factors, strict=False):
        assert case.timing is not None
        baseline = summarize([round(factor * value) for value in case.timing.samples_ns])
        cases.append(replace(case, comparison=compare_timings(case.timing, baseline, True)))
    return tuple(cases)


def test_the_geometric_mean_of_all_cases():
    found = compare_cases(cases_with(2.0, 0.5, 2.0, 0.5))
    assert found is not None
    assert found.ratio == pytest.approx(1.0, abs=1e-3)
    assert found.change is Change.SAME


def test_no_geometric_mean_unless_every_case_is_compared():
    assert compare_cases((*cases_with(2.0), H200.cases[1])) is None
    assert compare_cases(()) is None


def test_one_slower_case_is_a_regression():
    cases = cases_with(2.0, 2.0, 0.9)
    result = replace(H200, cases=cases, comparison=compare_cases(cases))
    assert result.comparison is not None
    assert result.comparison.change is Change.FASTER
    assert is_regression(result)
    assert not is_regression(replace(result, cases=cases[:2]))


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (0.5, "faster than base.py: 0.500 x its time [0.500, 0.500]"),
        (1.0, "same as base.py within 1%: 1.000 x its time [1.000, 1.000]"),
        (2.0, "slower than base.py: 2.000 x its time [2.000, 2.000]"),
    ],
)
def test_words(ratio, words):
    assert change_text(Comparison(ratio, (ratio, ratio), change_of((ratio, ratio)), True), "base.py") == words
