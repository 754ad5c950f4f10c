"""Numbers and cases as people read them."""

from dataclasses import replace

import pytest
from report_results import EVERY_STATUS, FAILED, H200, INTERRUPTED, JUDGED, RUNNING, STARTED

from harness.report.words import case_labels, duration, headline, microseconds, number, score_meaning, size, version_and_commit
from harness.result import CaseResult, Score, State, Status


@pytest.mark.parametrize(
    ("ns", "text"), [(11_744, "11.74"), (290.13, "0.290"), (9_999_400, "9999"), (113_387_000, "113\u2009387"), (0, "0.000")]
)
def test_microseconds(ns, text):
    assert microseconds(ns) == text


@pytest.mark.parametrize(
    ("ns", "text"), [(500, "0.5 µs"), (1000, "1 µs"), (20_000, "20 µs"), (2_650_417_047, "2.65 s"), (1_143_446, "1.14 ms")]
)
def test_duration(ns, text):
    assert duration(ns) == text


@pytest.mark.parametrize(("nbytes", "text"), [(1, "1 byte"), (655, "655 bytes"), (38_502, "37.6 KiB"), (150 << 30, "150 GiB")])
def test_size(nbytes, text):
    assert size(nbytes) == text


def test_number():
    assert [number(value) for value in (None, 0.0021, 0.0)] == ["–", "0.0021", "0"]


def labels(*specs: dict) -> list[str]:
    return case_labels([CaseResult(spec, Status.SKIPPED, "-") for spec in specs])


def test_labels_name_what_differs():
    assert labels({"a": 1, "b": 2, "seed": 1}, {"a": 1, "b": 3, "seed": 2}) == ["b 2", "b 3"]
    assert labels({"a": 1, "seed": 1}, {"a": 1, "seed": 2}) == ["seed 1", "seed 2"]
    assert labels({"a": 1, "seed": 1}, {"a": 1, "seed": 1}) == ["a 1 · seed 1"] * 2
    assert labels({"a": 1, "seed": 1}) == ["a 1 · seed 1"]
    assert labels({"a": 1}, {"a": 2, "b": True}) == ["a 1", "a 2 · b True"]
    assert labels() == []


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (H200, "All 8 cases pass both verdicts"),
        (EVERY_STATUS, "9 of 10 cases fail"),
        (RUNNING, "Running, 3 of 10 cases done"),
        (STARTED, "Running, 0 of 10 cases done"),
        (INTERRUPTED, "Interrupted after 3 of 10 cases"),
        (FAILED, "Failed: SyntaxError: line 3"),
        (replace(EVERY_STATUS, cases=JUDGED[:1], cases_total=1), "1 case passes both verdicts"),
        (replace(EVERY_STATUS, cases=(replace(JUDGED[0], strict=None),), cases_total=1), "1 case passes the official verdict"),
        (replace(EVERY_STATUS, cases=JUDGED[1:2], cases_total=1), "1 of 1 case fails"),
    ],
)
def test_headline(result, text):
    assert headline(result) == text


@pytest.mark.parametrize(
    ("ranking_by", "text"),
    [
        ("geom", "geometric mean of the cases' medians"),
        ("mean", "mean of the cases' medians"),
        ("last", "median of the last case"),
    ],
)
def test_what_the_score_means(ranking_by, text):
    assert score_meaning(replace(H200, score=Score(ranking_by, "median", 1.0))) == text


def test_version_and_commit():
    assert version_and_commit(EVERY_STATUS) == ("0.1.0", "abc1234-dirty")
    assert version_and_commit(H200) == ("0.1.0", "")
    assert H200.state is State.COMPLETE
