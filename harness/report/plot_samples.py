"""The samples of one case: in the order in which they were taken, and beside it how they are distributed."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from harness.report.markup import Html, tag
from harness.report.scale import Linear
from harness.report.words import microseconds
from harness.result import Timing

HEIGHT_PX, WIDTH_UNITS = 168, 1000
FEWEST_BINS, MOST_BINS = 10, 36
FAR_MADS = 12  # samples farther from the median than this many median absolute deviations lie on the plot's edge


def samples_plot(timing: Timing, name: str) -> Html:
    """Order at the left, histogram at the right, on one axis of time, with the median and its interval across both."""
    axis = axis_of(timing.samples_ns)
    ticks = axis.ticks()
    across = [_interval(timing, axis), [_rule(axis, value, "grid") for value in ticks], _rule(axis, timing.median_ns, "center")]
    labels = [tag("text", microseconds(value), x="100%", y=_y(axis, value) + 4, class_="tick end") for value in ticks]
    parts = (
        _svg(labels, aria_hidden="true"),
        _svg(across, _dots(timing.samples_ns, axis), role="img", aria_label=_words(timing, name)),
        _svg(across, _bars(timing.samples_ns, axis), role="img", aria_label=f"{name}: histogram of the samples"),
        tag("span", "µs", class_="axis-name unit"),
        tag("span", [tag("span", word) for word in ("first", "samples in order", "last")], class_="axis-name"),
        tag("span", "how often", class_="axis-name"),
    )
    return tag("figure", tag("div", parts, class_="samples-grid"), tag("figcaption", _caption(timing, axis)), class_="samples")


def _svg(*children: Any, **attributes: Any) -> Html:
    return tag("svg", children, width="100%", height=HEIGHT_PX, **attributes)


def axis_of(samples_ns: Sequence[int]) -> Linear:
    """From the best to the worst sample, without those that are far off; never empty."""
    median = statistics.median(samples_ns)
    spread = statistics.median(abs(sample - median) for sample in samples_ns)
    low, high = min(samples_ns), max(samples_ns)
    if spread:
        low, high = max(low, median - FAR_MADS * spread), min(high, median + FAR_MADS * spread)
    pad = 0.06 * (high - low) or 0.01 * median or 1.0
    return Linear(low - pad, high + pad)


def histogram(samples_ns: Sequence[int], axis: Linear) -> list[int]:
    """How many samples lie in each of some equal parts of the axis; those beyond an end count to the outermost part."""
    bins = min(max(FEWEST_BINS, 3 * math.isqrt(len(samples_ns))), MOST_BINS)
    counts = [0] * bins
    for sample in samples_ns:
        counts[min(int(axis.percent(sample) / 100 * bins), bins - 1)] += 1
    return counts


def _y(axis: Linear, value: float) -> float:
    return HEIGHT_PX * (1 - axis.percent(value) / 100)


def _rule(axis: Linear, value: float, kind: str) -> Html:
    y = _y(axis, value)
    return tag("line", x1=0, x2="100%", y1=y, y2=y, class_=kind)


def _interval(timing: Timing, axis: Linear) -> Html:
    top, bottom = _y(axis, timing.ci95_ns[1]), _y(axis, timing.ci95_ns[0])
    return tag("rect", x=0, width="100%", y=top, height=max(bottom - top, 1.0), class_="band")


def _dots(samples_ns: Sequence[int], axis: Linear) -> Html:
    """Lines of no length with round ends: as the strokes are not scaled, they stay round at any width."""
    step = WIDTH_UNITS / len(samples_ns)
    near, far = [], []
    for index, sample in enumerate(samples_ns):
        inside = axis.low <= sample <= axis.high
        (near if inside else far).append(f"M{(index + 0.5) * step:.1f} {_clear_of_the_edge(_y(axis, sample)):.1f}h0")
    paths = [tag("path", d="".join(dots), class_=kind) for dots, kind in ((near, "dots"), (far, "dots far")) if dots]
    box = f"0 0 {WIDTH_UNITS} {HEIGHT_PX}"
    return _svg(paths, viewBox=box, preserveAspectRatio="none")


def _clear_of_the_edge(y: float) -> float:
    return min(max(y, 3.0), HEIGHT_PX - 3.0)


def _bars(samples_ns: Sequence[int], axis: Linear) -> list[Html]:
    counts = histogram(samples_ns, axis)
    height, most, step_ns = HEIGHT_PX / len(counts), max(counts), (axis.high - axis.low) / len(counts)
    bars = []
    for index, count in enumerate(counts):
        low, high = axis.low + index * step_ns, axis.low + (index + 1) * step_ns
        hint = tag("title", f"{microseconds(low)} to {microseconds(high)} µs: {count}")
        y = HEIGHT_PX - (index + 1) * height
        if count:
            bars.append(tag("rect", hint, x=0, y=y + 0.5, width=f"{96 * count / most:.1f}%", height=height - 1, class_="bar"))
    return bars


def _words(timing: Timing, name: str) -> str:
    low, high = timing.ci95_ns
    return (
        f"{name}: {timing.runs} samples from {microseconds(timing.best_ns)} to {microseconds(timing.worst_ns)} µs, "
        f"median {microseconds(timing.median_ns)}, interval {microseconds(low)} to {microseconds(high)} µs"
    )


def _caption(timing: Timing, axis: Linear) -> list[str]:
    far = sum(not axis.low <= sample <= axis.high for sample in timing.samples_ns)
    said = [f"{timing.runs} samples. Line: median; band: its 95 % interval."]
    if far:
        said.append(f" Off the scale, red: {far}, the worst {microseconds(timing.worst_ns)} µs.")
    return said
