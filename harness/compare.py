"""Is a submission faster than a baseline? The ratio of medians with a bootstrap interval, and what it says.

The rule (docs/policies.md) is that of a region of practical equivalence (Kruschke, 2018): ratios within 1 % of 1 are
the same for all purposes. An interval wholly inside says `same`, wholly below `faster`, wholly above `slower`, and one
that crosses an edge `ambiguous`.
"""

from collections.abc import Sequence

import numpy as np

from harness.errors import CannotCompare
from harness.result import CaseResult, Change, Comparison, Result, Timing
from harness.stats import CONFIDENCE, RESAMPLES, SEED

MARGIN = 0.01
MIN_SAMPLES = 6  # with fewer, a median has no 95 % interval


def change_of(ci95: tuple[float, float]) -> Change:
    """What the 95 % interval of a ratio says."""
    low, high = ci95
    if high < 1 / (1 + MARGIN):
        return Change.FASTER
    if low > 1 + MARGIN:
        return Change.SLOWER
    return Change.SAME if low >= 1 / (1 + MARGIN) and high <= 1 + MARGIN else Change.AMBIGUOUS


def compare_timings(timing: Timing, baseline: Timing, interleaved: bool) -> Comparison:
    """One case. Interleaved samples are resampled in pairs, so that what disturbed both cancels.

    Raises CannotCompare if there are too few samples.
    """
    ratio = timing.median_ns / baseline.median_ns
    return _comparison(ratio, _log_ratios(timing.samples_ns, baseline.samples_ns, interleaved), interleaved, baseline)


def compare_cases(cases: Sequence[CaseResult]) -> Comparison | None:
    """The geometric mean over the cases' ratios; None unless every case has one."""
    found = [(case.timing, case.comparison, case.comparison.baseline) for case in cases if case.timing and case.comparison]
    pairs = [(timing, baseline, comparison) for timing, comparison, baseline in found if baseline]
    if not pairs or len(pairs) != len(cases):
        return None
    interleaved = all(comparison.interleaved for _, _, comparison in pairs)
    logs = [_log_ratios(a.samples_ns, b.samples_ns, interleaved, stir) for stir, (a, b, _) in enumerate(pairs)]
    ratio = float(np.exp(np.mean([np.log(comparison.ratio) for _, _, comparison in pairs])))
    return _comparison(ratio, np.mean(logs, axis=0), interleaved)


def is_regression(result: Result) -> bool:
    """Whether the run or one of its cases is slower than the baseline."""
    compared = [result.comparison, *(case.comparison for case in result.cases)]
    return any(comparison.change is Change.SLOWER for comparison in compared if comparison)


def change_text(comparison: Comparison, name: str) -> str:
    """A comparison in words."""
    low, high = comparison.ci95
    figures = f"{comparison.ratio:.3f} x its time [{low:.3f}, {high:.3f}]"
    match comparison.change:
        case Change.SAME:
            return f"same as {name} within {MARGIN:.0%}: {figures}"
        case Change.AMBIGUOUS:
            return f"ambiguous against {name}: {figures}; more samples decide (--budget-s)"
    return f"{comparison.change.value} than {name}: {figures}"


def _comparison(ratio: float, log_ratios: np.ndarray, interleaved: bool, baseline: Timing | None = None) -> Comparison:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.exp(np.quantile(log_ratios, (tail, 1 - tail)))
    ci95 = min(float(low), ratio), max(float(high), ratio)  # rounding must not put the ratio outside
    return Comparison(ratio, ci95, change_of(ci95), interleaved, baseline)


def _log_ratios(samples_ns: Sequence[int], baseline_ns: Sequence[int], paired: bool, stir: int = 0) -> np.ndarray:
    """Logarithms of the ratios of the medians of resamples [RESAMPLES]; `stir` makes the resamples of cases independent."""
    a, b = np.asarray(samples_ns, dtype=np.float64), np.asarray(baseline_ns, dtype=np.float64)
    if min(a.size, b.size) < MIN_SAMPLES:
        has = min(a.size, b.size)
        raise CannotCompare(f"has {has} samples beside this one's; a comparison needs {MIN_SAMPLES} of each: raise --budget-s")
    random = np.random.default_rng((SEED, stir))
    if paired:  # an interrupted run may hold one sample more of the one that goes first
        pairs = min(a.size, b.size)
        draws = random.integers(0, pairs, (RESAMPLES, pairs))
        return np.log(_medians(a, draws) / _medians(b, draws))
    of_a, of_b = (_medians(values, random.integers(0, values.size, (RESAMPLES, values.size))) for values in (a, b))
    return np.log(of_a / of_b)


def _medians(values: np.ndarray, draws: np.ndarray) -> np.ndarray:
    return np.maximum(np.median(values[draws], axis=1), 1.0)
