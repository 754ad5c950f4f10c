"""What a set of samples says: the official figures, and the median with a bootstrap interval."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.result import Timing

CONFIDENCE = 0.95
RESAMPLES = 9999
SEED = 20260201  # intervals are reproducible: the same samples always give the same one


def summarize(samples_ns: Sequence[int]) -> Timing:
    """The Timing of one or more samples. Raises ValueError if there is none."""
    values = np.asarray(samples_ns, dtype=np.float64)
    mean, std, err = mean_std_err(samples_ns)
    return Timing(
        median_ns=float(np.median(values)),
        ci95_ns=median_interval(samples_ns),
        mean_ns=mean,
        err_ns=err,
        std_ns=std,
        best_ns=float(values.min()),
        worst_ns=float(values.max()),
        runs=len(samples_ns),
        samples_ns=tuple(int(value) for value in samples_ns),
    )


def mean_std_err(samples_ns: Sequence[int]) -> tuple[float, float, float]:
    """Mean, standard deviation (Bessel's n - 1; 0 for one sample) and its standard error, as the official evaluator's."""
    if not samples_ns:
        raise ValueError("no samples to summarize")
    runs, mean = len(samples_ns), math.fsum(samples_ns) / len(samples_ns)
    if runs == 1:
        return mean, 0.0, 0.0
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in samples_ns) / (runs - 1))
    return mean, std, std / math.sqrt(runs)


def quick_median(samples_ns: Sequence[int]) -> tuple[float, tuple[float, float]]:
    """The median and its 95 % interval by order statistics: cheap enough to be shown after every sample.

    The ranks n/2 -+ 1.96 sqrt(n)/2 enclose the median with 95 % probability whatever the distribution (David and
    Nagaraja, Order Statistics, 7.1); with fewer than 6 samples the interval is their range.
    """
    ordered, runs = sorted(samples_ns), len(samples_ns)
    reach = 1.96 * math.sqrt(runs) / 2
    low, high = max(math.floor(runs / 2 - reach), 0), min(math.ceil(runs / 2 + reach), runs - 1)
    return float(np.median(ordered)), (float(ordered[low]), float(ordered[high]))


def median_interval(samples_ns: Sequence[int]) -> tuple[float, float]:
    """Bootstrap 95 % interval of the median: SciPy's BCa, the percentile method where BCa is undefined or SciPy absent."""
    values = np.asarray(samples_ns, dtype=np.float64)
    if values.size < 2 or values.min() == values.max():
        return float(values.min()), float(values.max())
    low, high = _bca(values) if values.size > 2 else (math.nan, math.nan)
    return (low, high) if math.isfinite(low) and math.isfinite(high) else percentile_interval(values, RESAMPLES)


def percentile_interval(values: np.ndarray, resamples: int) -> tuple[float, float]:
    """The central 95 % of the medians of `resamples` resamples of `values` [n]."""
    draws = np.random.default_rng(SEED).integers(0, values.size, (resamples, values.size))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.median(values[draws], axis=1), (tail, 1 - tail))
    return float(low), float(high)


def _bca(values: np.ndarray) -> tuple[float, float]:
    """Bias-corrected and accelerated interval; NaN where the jackknife is degenerate (ties around the median)."""
    try:
        from scipy.stats import bootstrap
    except ImportError:
        return math.nan, math.nan
    seeded: dict[str, Any] = {"random_state": np.random.default_rng(SEED)}  # the name that old and new versions take
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy announces the degenerate case, which the caller handles
        found = bootstrap(
            (values,), np.median, confidence_level=CONFIDENCE, n_resamples=RESAMPLES, method="BCa",
            batch=max(1, 2_000_000 // values.size), **seeded,
        )  # fmt: skip
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def relative_width(samples_ns: Sequence[int], resamples: int = 1000) -> float:
    """Width of the median's percentile interval over the median: what the robust policy drives below its limit."""
    values = np.asarray(samples_ns, dtype=np.float64)
    low, high = percentile_interval(values, resamples)
    return (high - low) / max(float(np.median(values)), 1.0)
