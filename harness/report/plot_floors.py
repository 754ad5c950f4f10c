"""Time against the three floors: a row per case on one logarithmic axis.

Positions along the axis are percentages, so that a plot takes any width without its text or marks being scaled.
"""

from collections.abc import Sequence

from harness.report.columns import share
from harness.report.markup import Html, tag
from harness.report.page_parts import chip
from harness.report.scale import Log, Scale
from harness.report.words import NOTHING, case_labels, duration, microseconds, reasons
from harness.result import CaseResult, Floor, Status, Timing

ROW_PX, AXIS_PX, MIDDLE_PX, DOT_PX = 30, 22, 15, 5
MARGIN = 1.25  # beyond the outermost value, as a ratio
FLOORS = (("refusal", "refusal floor"), ("roofline", "roofline"), ("measured", "measured floor (cold read)"))


def floors_plot(cases: Sequence[CaseResult]) -> Html | None:
    """All cases, those without a time too; None if there is no time at all."""
    values = [value for case in cases for value in _values(case)]
    if not values:
        return None
    axis = Log(min(values) / MARGIN, max(values) * MARGIN)
    rows = [_row(index, case, label, axis) for index, (case, label) in enumerate(zip(cases, case_labels(cases), strict=True))]
    said = "Time of one call, logarithmic. The bar is what lies between the measured floor and the median."
    if any(case.floor and case.floor.refusal_ns for case in cases):
        said += " A time in the shaded zone would be refused."
    caption = tag("figcaption", said)
    return tag("figure", _legend(cases), tag("div", _axis(axis), rows, class_="floor-rows"), caption, class_="floors")


def _values(case: CaseResult) -> list[float]:
    floor = case.floor or Floor()
    known = [floor.refusal_ns, floor.roofline_ns, floor.measured_ns]
    timed = [time_ns for timing in (case.timing, _baseline(case)) if timing for time_ns in (timing.median_ns, *timing.ci95_ns)]
    return [value for value in [*known, *timed] if value and value > 0]


def _baseline(case: CaseResult) -> Timing | None:
    return case.comparison.baseline if case.comparison else None


def _row(index: int, case: CaseResult, label: str, axis: Scale) -> Html:
    name = tag("a", label, href=f"#case-{index + 1}", class_="row-label")
    if case.timing is None:
        said = tag("p", (reasons(case) or ["no time was taken"])[0], class_="row-message")
        return tag("div", name, said, tag("span", _verdict(case), class_="row-verdict"), class_="floor-row")
    near, median = share(case, "measured"), f"{microseconds(case.timing.median_ns)} µs"
    of_floor = None if near == NOTHING else tag("span", near, tag("span", " of floor", class_="wide"), class_="of-floor")
    return tag(
        "div",
        name,
        _strip(case, label, axis),
        tag("span", median, class_="row-median"),
        of_floor or tag("span"),
        class_="floor-row",
    )


def _verdict(case: CaseResult) -> Html:
    return chip(case.status is Status.PASS, case.status.value.replace("_", " "))


def _strip(case: CaseResult, label: str, axis: Scale) -> Html:
    timing, floor = case.timing, case.floor or Floor()
    assert timing is not None
    at = axis.percent(timing.median_ns)
    marks = [tag("line", x1=pc(x), x2=pc(x), y1=0, y2=ROW_PX, class_="grid") for x in map(axis.percent, axis.ticks())]
    if floor.refusal_ns:
        marks.insert(
            0, tag("rect", x=0, y=MIDDLE_PX - 9, width=pc(axis.percent(floor.refusal_ns)), height=18, class_="refused")
        )
    if floor.measured_ns and floor.measured_ns < timing.median_ns:
        left = axis.percent(floor.measured_ns)
        marks.append(tag("rect", x=pc(left), y=MIDDLE_PX - 3, width=pc(at - left), height=6, class_="gap"))
    marks += [_floor_mark(kind, name, floor, axis) for kind, name in FLOORS]
    if baseline := _baseline(case):
        hint = tag("title", f"baseline's median {microseconds(baseline.median_ns)} µs")
        marks.append(
            tag("circle", hint, cx=pc(axis.percent(baseline.median_ns)), cy=MIDDLE_PX, r=DOT_PX - 1, class_="baseline")
        )
    low, high = map(axis.percent, timing.ci95_ns)
    marks.append(tag("line", x1=pc(low), x2=pc(high), y1=MIDDLE_PX, y2=MIDDLE_PX, class_="interval"))
    good = "median" if case.status is Status.PASS else "median bad"
    hint = tag("title", f"median {microseconds(timing.median_ns)} µs")
    marks.append(tag("circle", hint, cx=pc(at), cy=MIDDLE_PX, r=DOT_PX, class_=good))
    return tag("svg", marks, height=ROW_PX, width="100%", role="img", aria_label=_in_words(case, label))


def _floor_mark(kind: str, name: str, floor: Floor, axis: Scale) -> Html | None:
    value_ns = getattr(floor, f"{kind}_ns")
    if not value_ns:
        return None
    x = pc(axis.percent(value_ns))
    hint = tag("title", f"{name} {microseconds(value_ns)} µs")
    return tag("line", hint, x1=x, x2=x, y1=MIDDLE_PX - 9, y2=MIDDLE_PX + 9, class_=kind)


def _in_words(case: CaseResult, label: str) -> str:
    assert case.timing is not None
    low, high = case.timing.ci95_ns
    said = [f"median {microseconds(case.timing.median_ns)} µs, interval {microseconds(low)} to {microseconds(high)}"]
    for kind, name in FLOORS:
        if value_ns := getattr(case.floor, f"{kind}_ns", None):
            said.append(f"{name} {microseconds(value_ns)} µs")
    if baseline := _baseline(case):
        said.append(f"baseline's median {microseconds(baseline.median_ns)} µs")
    return f"{label}: {', '.join(said)}"


def _axis(axis: Scale) -> Html:
    """The ticks' values, above the rows."""
    texts = [tag("text", duration(value), x=pc(axis.percent(value)), y=14, class_=_tick(value)) for value in axis.ticks()]
    svg = tag("svg", texts, height=AXIS_PX, width="100%", aria_hidden="true")
    return tag("div", tag("span"), svg, class_="floor-row axis")


def _tick(value: float) -> str:
    """Where there is little room, only powers of ten are named."""
    return "tick" if f"{value:.6e}".startswith("1.0") else "tick wide"


def _legend(cases: Sequence[CaseResult]) -> Html:
    shown = [(kind, name) for kind, name in FLOORS if any(getattr(case.floor, f"{kind}_ns", None) for case in cases)]
    keys = [(tag("line", x1=7, x2=7, y1=1, y2=15, class_=kind), name) for kind, name in shown]
    keys.append((tag("circle", cx=7, cy=8, r=DOT_PX, class_="median"), "median"))
    if any(map(_baseline, cases)):
        keys.append((tag("circle", cx=7, cy=8, r=DOT_PX - 1, class_="baseline"), "median of the baseline"))
    if any(case.timing and case.status is not Status.PASS for case in cases):
        keys.append((tag("circle", cx=7, cy=8, r=DOT_PX, class_="median bad"), "median of a case that does not pass"))
    items = [tag("li", tag("svg", mark, width=14, height=16, aria_hidden="true"), " ", name) for mark, name in keys]
    return tag("ul", items, class_="legend")


def pc(percent: float) -> str:
    """A position as an SVG attribute."""
    return f"{percent:.2f}%"
