"""What the pages call times, scores and gaps."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderboard.web import words

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


@pytest.mark.parametrize(
    ("score_ns", "text"),
    [(None, "–"), (60430.4, "60.4304"), (79067.0, "79.0670"), (1234567.8, "1234.57"), (5e9, "5000000"), (12.0, "0.01200")],
)
def test_scores_have_six_digits_that_align(score_ns, text):
    assert words.score(score_ns) == text


@given(st.floats(1e3, 1e7))
def test_scores_tell_one_in_ten_thousand_apart(score_ns):
    assert words.score(score_ns) != words.score(score_ns * 1.0001)


@pytest.mark.parametrize(("value", "text"), [(0, "best"), (0.00414, "+0.41%"), (0.198, "+19.8%"), (2.49, "3.49×")])
def test_gaps(value, text):
    assert words.gap(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 seconds"), (-5, "0 seconds"), (1, "1 second"), (59.9, "59 seconds"), (61, "1 minute 1 second"), (7200, "2 hours"),
     (86400 * 12 + 3600 * 5 + 7, "12 days 5 hours"), (86400 + 5, "1 day 5 seconds")],
)  # fmt: skip
def test_spans(seconds, text):
    assert words.span(timedelta(seconds=seconds)) == text


def test_deadlines():
    assert words.deadline(None, NOW) == "Open, without a deadline"
    assert words.deadline(NOW + timedelta(hours=3), NOW) == "Open until 2026-01-02 06:04 UTC, 3 hours left"
    assert words.deadline(NOW, NOW) == "Closed since 2026-01-02 03:04 UTC"


def test_ordinals():
    said = [words.ordinal(rank) for rank in (1, 2, 3, 4, 11, 13, 22, 111)]
    assert said == ["1st", "2nd", "3rd", "4th", "11th", "13th", "22nd", "111th"]
