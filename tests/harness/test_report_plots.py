"""Plots: every mark stands where its number says."""

from dataclasses import replace

import pytest
from html_tree import Element, parse_html
from hypothesis import given, settings
from hypothesis import strategies as st
from report_results import EVERY_STATUS, H200, JUDGED, timing_of

from harness.report.plot_floors import floors_plot
from harness.report.plot_samples import HEIGHT_PX, axis_of, histogram, samples_plot
from harness.result import Status

samples = st.lists(st.integers(1, 10**12), min_size=1, max_size=300)


def percent(element: Element, attribute: str) -> float:
    return float((element.attributes[attribute] or "").removesuffix("%"))


def test_marks_stand_in_the_order_of_their_values():
    for row in parse_html(str(floors_plot(H200.cases))).all("div", class_="floor-row")[1:]:
        positions = [percent(row.all("line", class_=kind)[0], "x1") for kind in ("refusal", "roofline", "measured")]
        positions.append(percent(row.all("circle")[0], "cx"))
        assert positions == sorted(positions)
        assert positions[0] > 0
        assert positions[-1] < 100


def test_one_axis_for_all_cases():
    rows = parse_html(str(floors_plot(H200.cases))).all("div", class_="floor-row")[1:]
    medians = [case.timing.median_ns for case in H200.cases if case.timing]
    positions = [percent(row.all("circle")[0], "cx") for row in rows]
    order = sorted(range(len(rows)), key=medians.__getitem__)
    assert order == sorted(range(len(rows)), key=positions.__getitem__)


def test_cases_without_time_keep_their_row():
    rows = parse_html(str(floors_plot(EVERY_STATUS.cases))).all("div", class_="floor-row")[1:]
    assert len(rows) == len(EVERY_STATUS.cases)
    for row, case in zip(rows, EVERY_STATUS.cases, strict=True):
        assert bool(row.all("circle")) is (case.timing is not None)
        assert bool(row.all("circle", class_="bad")) is (case.timing is not None and case.status is not Status.PASS)


def test_no_plot_without_a_time():
    assert floors_plot([replace(JUDGED[0], timing=None, floor=None)]) is None
    assert floors_plot([]) is None


def test_a_device_without_datasheet_has_one_floor():
    case = replace(JUDGED[0], floor=replace(JUDGED[0].floor, roofline_ns=None, refusal_ns=None))
    plot = parse_html(str(floors_plot([case])))
    assert len(plot.all("line", class_="measured")) == 2  # the legend's and the row's
    assert not plot.all(class_="refusal")
    assert not plot.all(class_="refused")
    assert "refused" not in plot.text()


@settings(deadline=None)
@given(samples)
def test_every_sample_is_a_dot_and_is_counted_once(samples_ns):
    axis = axis_of(samples_ns)
    assert sum(histogram(samples_ns, axis)) == len(samples_ns)
    figure = parse_html(samples_plot(timing_of(samples_ns), "case 1"))
    dots = [dot for path in figure.all("path") for dot in (path.attributes["d"] or "").split("M")[1:]]
    assert len(dots) == len(samples_ns)
    heights = [float(dot.split(" ")[1].removesuffix("h0")) for dot in dots]
    assert all(0 <= y <= HEIGHT_PX for y in heights)


@settings(deadline=None)
@given(samples)
def test_the_axis_holds_the_median_and_most_samples(samples_ns):
    axis = axis_of(samples_ns)
    median = sorted(samples_ns)[len(samples_ns) // 2]
    assert axis.low < median < axis.high
    assert sum(axis.low <= sample <= axis.high for sample in samples_ns) * 2 >= len(samples_ns)


def test_a_far_sample_does_not_squeeze_the_rest():
    samples_ns = [1000, 1010, 990, 1005, 995, 1002, 50_000]
    assert axis_of(samples_ns).high < 2000
    figure = parse_html(samples_plot(timing_of(samples_ns), "case 1"))
    assert len(figure.all("path", class_="far")) == 1
    assert "Off the scale, red: 1, the worst 50.00 µs." in figure.all("figcaption")[0].text()


@pytest.mark.parametrize("samples_ns", [[5], [7, 7, 7], [1, 2]])
def test_few_or_equal_samples(samples_ns):
    assert parse_html(samples_plot(timing_of(samples_ns), "case 1")).all("path", class_="dots")
