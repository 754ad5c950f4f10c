"""Time against the three floors: a row per case on one logarithmic axis.

Positions along the axis are percentages, so that a plot takes any width without its text or marks being scaled.
"""

from collections.abc import Sequence

from harness.report.columns import share
from harness.report.markup import Html, tag
from harness.report.page_parts import chip
from harness.report.scale import Log, Scale, fits
from harness.report.words import NOTHING, case_labels, duration, microseconds, reasons
from harness.result import CaseResult, Floor, Status, Timing

ROW_PX, AXIS_PX, MIDDLE_PX = 30, 22, 15
DOT_PX, BASELINE_PX, FLOOR_PX, GAP_PX = 5, 4, 18, 6
MARGIN = 1.25  # beyond the outermost value, as a ratio
FLOORS = (("refusal", "refusal floor"), ("roofline", "roofline"), ("measured", "measured floor (cold read)"))


def floors_plot(cases: Sequence[CaseResult]) -> Html | None:
    """All cases, those without a time too; None if there is no time at all."""
    values = [value for case in cases if _timing(case) for value in _values(case)]
    if not values:
        return None
    axis = Log(min(values) / MARGIN, max(values) * MARGIN)
    rows = [_row(index, case, label, axis) for index, (case, label) in enumerate(zip(cases, case_labels(cases), strict=True))]
    said = "Time of one call, logarithmic. The bar is what lies between the measured floor and the median."
    if any("refusal" in _floors(case) for case in cases):
        said += " A time in the shaded zone would be refused."
    parts = _legend(cases), tag("div", _axis(axis), rows, class_="floor-rows"), tag("figcaption", said)
    return tag("figure", parts, class_="floors")


def pc(percent: float) -> str:
    """A position as an SVG attribute."""
    return f"{percent:.2f}%"


def _timing(case: CaseResult) -> Timing | None:
    """The case's times, if they can be drawn."""
    return case.timing if case.timing and fits(case.timing.median_ns) else None


def _baseline(case: CaseResult) -> Timing | None:
    baseline = case.comparison.baseline if case.comparison else None
    return baseline if baseline and fits(baseline.median_ns) else None


def _floors(case: CaseResult) -> dict[str, float]:
    """The floors that can be drawn, by kind, in nanoseconds."""
    found = {kind: getattr(case.floor or Floor(), f"{kind}_ns") for kind, _ in FLOORS}
    return {kind: value_ns for kind, value_ns in found.items() if fits(value_ns)}


def _values(case: CaseResult) -> list[float]:
    """What the axis has to hold, in nanoseconds."""
    times = [
        time_ns for timing in (_timing(case), _baseline(case)) if timing for time_ns in (timing.median_ns, *timing.ci95_ns)
    ]
    return [*_floors(case).values(), *filter(fits, times)]


def _row(index: int, case: CaseResult, label: str, axis: Scale) -> Html:
    name = tag("a", label, href=f"#case-{index + 1}", class_="row-label")
    timing = _timing(case)
    if timing is None:
        said = tag("p", (reasons(case) or ["no time was taken"])[0], class_="row-message")
        verdict = tag("span", chip(case.status is Status.PASS, case.status.value.replace("_", " ")), class_="row-verdict")
        return tag("div", name, said, verdict, class_="floor-row")
    median = tag("span", f"{microseconds(timing.median_ns)} µs", class_="row-median")
    near = share(case, "measured")
    of_floor = tag("span", [near, tag("span", " of floor", class_="wide")] if near != NOTHING else None, class_="of-floor")
    return tag("div", name, _strip(case, timing, label, axis), median, of_floor, class_="floor-row")


def _strip(case: CaseResult, timing: Timing, label: str, axis: Scale) -> Html:
    """The marks of one case, those in front last."""
    floors, names = _floors(case), dict(FLOORS)
    good = "median" if case.status is Status.PASS else "median bad"
    baseline = _baseline(case)
    marks = [
        _bar(0, axis.percent(floors["refusal"]), FLOOR_PX, "refused") if "refusal" in floors else None,
        [tag("line", x1=pc(x), x2=pc(x), y1=0, y2=ROW_PX, class_="grid") for x in map(axis.percent, axis.ticks())],
        _gap(floors.get("measured"), timing, axis),
        [
            _floor(axis.percent(value_ns), kind, f"{names[kind]} {microseconds(value_ns)} µs")
            for kind, value_ns in floors.items()
        ],
        _dot(axis, baseline, BASELINE_PX, "baseline", "baseline's median") if baseline else None,
        _interval(*map(axis.percent, timing.ci95_ns)),
        _dot(axis, timing, DOT_PX, good, "median"),
    ]
    return tag("svg", marks, height=ROW_PX, width="100%", role="img", aria_label=_in_words(case, timing, label))


def _bar(left: float, right: float, height_px: int, kind: str) -> Html:
    return tag("rect", x=pc(left), y=MIDDLE_PX - height_px / 2, width=pc(right - left), height=height_px, class_=kind)


def _gap(measured_ns: float | None, timing: Timing, axis: Scale) -> Html | None:
    """What is left to gain."""
    if measured_ns is None or measured_ns >= timing.median_ns:
        return None
    return _bar(axis.percent(measured_ns), axis.percent(timing.median_ns), GAP_PX, "gap")


def _floor(at: float, kind: str, hint: str) -> Html:
    top, bottom = MIDDLE_PX - FLOOR_PX / 2, MIDDLE_PX + FLOOR_PX / 2
    return tag("line", tag("title", hint), x1=pc(at), x2=pc(at), y1=top, y2=bottom, class_=kind)


def _interval(low: float, high: float) -> Html:
    return tag("line", x1=pc(low), x2=pc(high), y1=MIDDLE_PX, y2=MIDDLE_PX, class_="interval")


def _dot(axis: Scale, timing: Timing, radius_px: int, kind: str, name: str) -> Html:
    hint = tag("title", f"{name} {microseconds(timing.median_ns)} µs")
    return tag("circle", hint, cx=pc(axis.percent(timing.median_ns)), cy=MIDDLE_PX, r=radius_px, class_=kind)


def _in_words(case: CaseResult, timing: Timing, label: str) -> str:
    """The row for those who do not see it."""
    low, high = timing.ci95_ns
    said = [f"median {microseconds(timing.median_ns)} µs, interval {microseconds(low)} to {microseconds(high)}"]
    floors, baseline = _floors(case), _baseline(case)
    said += [f"{name} {microseconds(floors[kind])} µs" for kind, name in FLOORS if kind in floors]
    said += [f"baseline's median {microseconds(baseline.median_ns)} µs"] if baseline else []
    return f"{label}: {', '.join(said)}"


def _axis(axis: Scale) -> Html:
    """The ticks' values, above the rows."""
    texts = [tag("text", duration(value), x=pc(axis.percent(value)), y=14, class_=_tick(value)) for value in axis.ticks()]
    return tag("div", tag("span"), tag("svg", texts, height=AXIS_PX, width="100%", aria_hidden="true"), class_="floor-row axis")


def _tick(value: float) -> str:
    """Where there is little room, only powers of ten are named."""
    return "tick" if f"{value:.6e}".startswith("1.0") else "tick wide"


def _legend(cases: Sequence[CaseResult]) -> Html:
    keys = [(_key_line(kind), name) for kind, name in FLOORS if any(kind in _floors(case) for case in cases)]
    keys.append((_key_dot(DOT_PX, "median"), "median"))
    if any(map(_baseline, cases)):
        keys.append((_key_dot(BASELINE_PX, "baseline"), "median of the baseline"))
    if any(_timing(case) and case.status is not Status.PASS for case in cases):
        keys.append((_key_dot(DOT_PX, "median bad"), "median of a case that does not pass"))
    items = [tag("li", tag("svg", mark, width=14, height=16, aria_hidden="true"), " ", name) for mark, name in keys]
    return tag("ul", items, class_="legend")


def _key_line(kind: str) -> Html:
    return tag("line", x1=7, x2=7, y1=1, y2=15, class_=kind)


def _key_dot(radius_px: int, kind: str) -> Html:
    return tag("circle", cx=7, cy=8, r=radius_px, class_=kind)
