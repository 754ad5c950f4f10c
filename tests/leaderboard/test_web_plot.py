"""Score against date: whatever the scores and dates, the marks lie on the plot and the axes have names."""

import re
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from web_site import Element, parse_html

from leaderboard.queries.views import ScorePoint
from leaderboard.web import plot_history
from leaderboard.web.plot_history import HEIGHT_PX, history_plot

START = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
SPANS = st.floats(0, 10 * 365 * 86400)
SCORES = st.floats(10, 1e11)


def points_of(story):
    """Points in time order from (seconds after START, score)."""
    points, record = [], float("inf")
    for number, (after_s, score_ns) in enumerate(sorted(story), start=1):
        points.append(ScorePoint(number, "ada", START + timedelta(seconds=after_s), score_ns, score_ns < record))
        record = min(record, score_ns)
    return points


def drawn(points) -> Element:
    return parse_html(str(history_plot(points)))


@given(st.lists(st.tuples(SPANS, SCORES), min_size=2, max_size=30))
def test_every_mark_is_inside_and_leads_to_its_submission(story):
    points = points_of(story)
    plot = drawn(points)
    links = plot.all("a")
    assert {link.attributes["href"] for link in links} == {f"/submission/{point.submission_id}" for point in points}
    for link in links:
        (circle,) = link.all("circle")
        assert 0 <= float(str(circle.attributes["cx"]).rstrip("%")) <= 100
        assert 0 <= float(str(circle.attributes["cy"])) <= HEIGHT_PX
        assert "ada" in str(link.attributes["aria-label"])
    texts = [text.text() for text in plot.all("text")]
    assert len(texts) >= 2
    assert len(texts) < 40


@given(st.lists(st.tuples(SPANS, SCORES), min_size=2, max_size=30))
def test_the_line_never_rises(story):
    (line,) = drawn(points_of(story)).all("path", class_="record-line")
    steps = str(line.attributes["d"])
    heights = [float(height) for height in re.findall(r"(?:V|M\S+ )([\d.]+)", steps)]
    assert heights == sorted(heights)  # pixels from above


def test_of_too_many_the_records_stay(monkeypatch):
    monkeypatch.setattr(plot_history, "MOST_OTHERS", 3)
    points = points_of([(after_s, 100.0 - after_s if after_s % 5 == 0 else 1000.0) for after_s in range(50)])
    drawn_ids = {int(str(link.attributes["href"]).rpartition("/")[2]) for link in drawn(points).all("a")}
    assert drawn_ids == {point.submission_id for point in points if point.is_record} | {48, 49, 50}


def test_one_point_is_no_plot():
    assert history_plot([]) is None
    assert history_plot(points_of([(0, 5.0)])) is None


def test_dates_are_midnights_and_within_a_day_times():
    days = drawn(points_of([(0, 5e4), (86400 * 6, 4e4)]))
    assert "2026-01-05" in [text.text() for text in days.all("text")]
    hours = drawn(points_of([(0, 5e4), (7200, 4e4)]))
    assert "04:00" in [text.text() for text in hours.all("text")]
