"""No number that a Result can hold stops a renderer: a file from a broken run is just what people want to look at."""

from dataclasses import replace

from html_tree import parse_html
from hypothesis import given, settings
from hypothesis import strategies as st
from report_results import COMPARED, COMPARED_CASE

from harness.report import RENDERERS
from harness.result import Floor, Strict, Timing

number = st.floats() | st.sampled_from([0.0, -1.0, 1e-300, 1e300])
maybe = st.none() | number
samples = st.lists(st.integers(0, 10**15), min_size=1, max_size=20)


@st.composite
def timings(draw: st.DrawFn) -> Timing:
    samples_ns = draw(samples)
    figures = [draw(number) for _ in range(5)]
    return Timing(draw(number), (draw(number), draw(number)), *figures, len(samples_ns), tuple(samples_ns))


@settings(deadline=None)
@given(timings(), timings(), st.builds(Floor, maybe, maybe, maybe), st.lists(maybe, min_size=1, max_size=20), number)
def test_every_renderer_copes(timing, baseline, floor, per_head, figure):
    strict = Strict(True, "", "fp8", figure, figure, figure, details={"error_per_head": per_head})
    assert COMPARED_CASE.comparison
    comparison = replace(COMPARED_CASE.comparison, ratio=figure, ci95=(figure, figure), baseline=baseline)
    case = replace(COMPARED_CASE, timing=timing, floor=floor, strict=strict, comparison=comparison)
    assert COMPARED.score
    result = replace(COMPARED, cases=(case, case), cases_total=2, score=replace(COMPARED.score, value_ns=figure))
    texts = {name: render(result) for name, render in RENDERERS.items()}
    assert parse_html(texts["html"]).all("section", id="case-2")
    assert texts["csv"].count("\n") == 3
