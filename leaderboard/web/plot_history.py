"""Score against date: every ranked submission, and the line of the records.

Positions are percentages, so that the plot takes any width without its text being scaled.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from harness.report.markup import Html, tag
from harness.report.plot_floors import pc
from harness.report.scale import Linear, Log
from leaderboard.queries.views import ScorePoint
from leaderboard.web import links
from leaderboard.web.words import score

HEIGHT_PX, WIDTH_UNITS, LABELS_PX, MARGIN = 240, 1000, 22, 0.06
DOT_PX, RECORD_PX = 4, 5.5
MOST_OTHERS = 400  # marks besides the records
DAY_S, MOST_DATES = 86400, 6
STEPS, FEWEST_TICKS = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 6, 8)), 4
STEPS_S = (60, 300, 900, 3600, 10800, 21600, 43200, *(days * DAY_S for days in (1, 2, 7, 14, 30, 90, 365)))
SHORTEST = timedelta(minutes=1)  # that the axis spans


def history_plot(points: Sequence[ScorePoint]) -> Html | None:
    """The plot of points in time order; None if there are fewer than two, which say nothing about time."""
    if len(points) < 2:
        return None
    points = _drawn(points)
    dates, scores = _date_axis(points), _score_axis(points)
    ticks = _round_scores(scores)
    grid = [tag("line", x1=0, x2="100%", y1=_y(scores, value), y2=_y(scores, value), class_="grid") for value in ticks]
    names = [tag("text", f"{value / 1e3:g}", x="100%", y=_y(scores, value) + 4, class_="tick end") for value in ticks]
    marks = [_dot(point, dates, scores) for point in sorted(points, key=lambda point: point.is_record)]
    parts = (
        tag("svg", names, width="100%", height=HEIGHT_PX, aria_hidden="true"),
        tag(
            "svg", grid, _record_line(points, dates, scores), marks, _dates(dates), width="100%", height=HEIGHT_PX + LABELS_PX,
            role="group", aria_label=_in_words(points),
        ),
    )  # fmt: skip
    legend = tag("ul", _key("record", "record"), _key("other", "other submission"), class_="legend")
    said = "Score in µs against the date, logarithmic; lower is better. Each mark leads to its submission."
    return tag("figure", legend, tag("div", parts, class_="history-grid"), tag("figcaption", said), class_="history")


def _drawn(points: Sequence[ScorePoint]) -> list[ScorePoint]:
    """All records, and of the others the latest."""
    others = [point for point in points if not point.is_record]
    left_out = {point.submission_id for point in others[: max(0, len(others) - MOST_OTHERS)]}
    return [point for point in points if point.submission_id not in left_out]


def _date_axis(points: Sequence[ScorePoint]) -> Linear:
    first, last = points[0].submitted_at.timestamp(), points[-1].submitted_at.timestamp()
    pad = max(MARGIN / 2 * (last - first), SHORTEST.total_seconds() / 2)
    return Linear(first - pad, last + pad)


def _score_axis(points: Sequence[ScorePoint]) -> Log:
    low, high = min(point.score_ns for point in points), max(point.score_ns for point in points)
    room = max((high / low) ** MARGIN, 1.01)
    return Log(low / room, high * room)


def _round_scores(axis: Log) -> list[float]:
    """Round scores, closer together the less the axis spans; in equal steps where that is less than a factor of two."""
    decades = range(math.floor(math.log10(axis.low)), math.ceil(math.log10(axis.high)) + 1)
    for steps in STEPS:
        ticks = [step * 10.0**decade for decade in decades for step in steps if axis.low <= step * 10.0**decade <= axis.high]
        if len(ticks) >= FEWEST_TICKS:
            return ticks
    return Linear(axis.low, axis.high).ticks()


def _y(axis: Log, value: float) -> float:
    return HEIGHT_PX * (1 - axis.percent(value) / 100)


def _dot(point: ScorePoint, dates: Linear, scores: Log) -> Html:
    kind, radius_px = ("record", RECORD_PX) if point.is_record else ("other", DOT_PX)
    said = f"{point.user}, {score(point.score_ns)} µs, {point.submitted_at.astimezone(UTC):%Y-%m-%d %H:%M}"
    x, y = pc(dates.percent(point.submitted_at.timestamp())), _y(scores, point.score_ns)
    circle = tag("circle", tag("title", said), cx=x, cy=y, r=radius_px, class_=kind)
    name = f"{'record: ' if point.is_record else ''}{said}"
    return tag("a", circle, href=links.submission(point.submission_id), aria_label=name)


def _record_line(points: Sequence[ScorePoint], dates: Linear, scores: Log) -> Html:
    """A staircase: a record holds until the next one, the last to the end of the axis."""
    steps = []
    for point in points:
        if point.is_record:
            x, y = dates.percent(point.submitted_at.timestamp()) / 100 * WIDTH_UNITS, _y(scores, point.score_ns)
            steps.append(f"H{x:.1f}V{y:.1f}" if steps else f"M{x:.1f} {y:.1f}")
    path = tag("path", d="".join([*steps, f"H{WIDTH_UNITS}"]), class_="record-line")
    box = f"0 0 {WIDTH_UNITS} {HEIGHT_PX}"
    return tag("svg", path, viewBox=box, preserveAspectRatio="none", width="100%", height=HEIGHT_PX)


def _dates(axis: Linear) -> list[Html]:
    """Round moments under the plot: midnights (UTC), or times of day where it spans little."""
    step_s = next((step_s for step_s in STEPS_S if axis.high - axis.low <= step_s * MOST_DATES), STEPS_S[-1])
    form = "%Y-%m-%d" if step_s >= DAY_S else "%H:%M"
    stops = range(math.ceil(axis.low / step_s) * step_s, int(axis.high) + 1, step_s)
    return [
        tag(
            "text",
            f"{datetime.fromtimestamp(stop, UTC):{form}}",
            x=pc(axis.percent(stop)),
            y=HEIGHT_PX + 18,
            class_=_tick(index),
        )
        for index, stop in enumerate(stops)
    ]


def _tick(index: int) -> str:
    """Where there is little room, every other date is left out."""
    return "tick wide" if index % 2 else "tick"


def _in_words(points: Sequence[ScorePoint]) -> str:
    best = min(points, key=lambda point: point.score_ns)
    return f"{len(points)} submissions by date; the best is {score(best.score_ns)} µs by {best.user}"


def _key(kind: str, name: str) -> Html:
    mark = tag("circle", cx=7, cy=8, r=RECORD_PX if kind == "record" else DOT_PX, class_=kind)
    return tag("li", tag("svg", mark, width=14, height=16, aria_hidden="true"), " ", name)
