"""When an entry changes: a duel of fresh, interleaved samples, held against the noise that equal kernels show."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.compare import compare_timings
from harness.result import Comparison
from harness.stats import summarize
from sweep.variant import Variant


@dataclass(frozen=True)
class Duel:
    """Samples taken in turn: the incumbent, the incumbent again, the challenger."""

    incumbent_ns: tuple[int, ...]
    again_ns: tuple[int, ...]
    challenger_ns: tuple[int, ...]

    @property
    def noise(self) -> Comparison:
        """The incumbent against itself: how far from 1 a ratio is that should be 1."""
        return _ratio(self.again_ns, self.incumbent_ns)

    @property
    def gain(self) -> Comparison:
        """The challenger's time over the incumbent's."""
        return _ratio(self.challenger_ns, self.incumbent_ns)


@dataclass(frozen=True)
class Decision:
    """What becomes of one entry, and why."""

    changes: bool
    reason: str
    incumbent: Variant | None  # None: nothing said what it is
    challenger: Variant | None
    duel: Duel | None = None
    median_ns: float | None = None  # of what the entry says from now on


def decide(incumbent: Variant | None, challenger: Variant, duel: Duel) -> Decision:
    """The entry changes only if the ratio's 95 % interval lies below 1, and the ratio below the noise of equal kernels."""
    gain, noise = duel.gain, duel.noise
    low, high = gain.ci95
    figures = f"{gain.ratio:.3f} x the incumbent's time [{low:.3f}, {high:.3f}]"
    changes = False
    if high >= 1:
        reason = f"kept: {figures} does not exclude 1"
    elif gain.ratio >= min(noise.ci95[0], 1.0):
        reason = f"kept: {figures} is within the noise of equal kernels, down to {noise.ci95[0]:.3f}"
    else:
        changes, reason = True, f"changed: {figures}"
    samples = duel.challenger_ns if changes else duel.incumbent_ns
    return Decision(changes, reason, incumbent, challenger, duel, summarize(samples).median_ns)


def noise_floor(noises: Sequence[Comparison]) -> float:
    """The largest distance from 1 that the intervals of equal kernels reach."""
    return max((max(1 - noise.ci95[0], noise.ci95[1] - 1) for noise in noises), default=0.0)


def _ratio(samples_ns: Sequence[int], baseline_ns: Sequence[int]) -> Comparison:
    return compare_timings(summarize(samples_ns), summarize(baseline_ns), interleaved=True)
