"""scripts/strict_bounds.py: from noise to bounds, and their place in the files."""

import pytest

from reference import DISTRIBUTIONS, FORMATS, STRICT_BOUNDS
from scripts import strict_bounds
from scripts.strict_bounds import Noise


def noise_of_committed_bounds(factor: float) -> dict[str, Noise]:
    """The noise to which every committed bound is `factor` times."""
    return {
        name: Noise(
            bound.rel_l2 / factor, (1 - bound.cosine) / factor**2, bound.element_rms / factor, bound.element_max / factor
        )
        for name, bound in STRICT_BOUNDS.items()
    }


@pytest.mark.parametrize(("value", "rounded"), [(0.0501, 0.051), (0.05, 0.05), (0.123, 0.13), (1.4e-5, 1.4e-5), (99.1, 100)])
def test_bounds_are_rounded_up_to_two_digits(value, rounded):
    assert strict_bounds.round_up(value) == pytest.approx(rounded, rel=1e-9)


def test_a_bound_is_the_worst_noise_with_its_safety():
    bound = strict_bounds.bound_of(Noise(rel_l2=0.02, one_minus_cosine=2e-4, element_rms=0.02, element_max=0.1))
    assert bound.rel_l2 == pytest.approx(0.03)
    assert bound.cosine == pytest.approx(1 - 4.5e-4)
    assert bound.element_max == pytest.approx(0.15)


def test_formats_of_one_group_share_the_worst_noise():
    measured = {(name, "kernel", dist): Noise(0.01, 1e-4, 0.01, 0.1) for name in FORMATS for dist in DISTRIBUTIONS}
    measured["mxfp4", "kernel", "outlier"] = Noise(0.05, 1e-3, 0.05, 0.05)
    worst = strict_bounds.worst_noise(measured)
    assert worst["bf16"] == Noise(0.01, 1e-4, 0.01, 0.1)
    assert worst["fp8"] == worst["mxfp4"] == Noise(0.05, 1e-3, 0.05, 0.1)


def test_committed_bounds_that_fit_raise_no_complaint():
    assert strict_bounds.complaints(noise_of_committed_bounds(1.5)) == []


@pytest.mark.parametrize("factor", [1.05, 2.5])
def test_committed_bounds_too_near_to_the_noise_or_too_far_are_named(factor):
    lines = strict_bounds.complaints(noise_of_committed_bounds(factor))
    assert len(lines) == 4 * len(FORMATS)
    assert f"fp8 rel_l2: the bound is {factor:.2f} times the measured noise, not 1.2 to 2.0 times" in lines[4]


def test_a_generated_block_is_replaced_between_its_markers(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- BEGIN GENERATED X -->\nold\n<!-- END GENERATED X -->\nb\n")
    strict_bounds.replace_block(page, "GENERATED X", "new\n")
    assert page.read_text() == "a\n<!-- BEGIN GENERATED X -->\nnew\n<!-- END GENERATED X -->\nb\n"


def test_a_missing_marker_is_a_clear_error(tmp_path):
    (tmp_path / "page.md").write_text("nothing\n")
    with pytest.raises(SystemExit, match=r"page\.md has no block BEGIN GENERATED X"):
        strict_bounds.replace_block(tmp_path / "page.md", "GENERATED X", "new\n")


def test_reference_py_holds_the_bounds_as_they_are_generated():
    source = (strict_bounds.ROOT / "reference.py").read_text()
    assert strict_bounds.bounds_source(STRICT_BOUNDS) in source


@pytest.mark.slow
def test_committed_bounds_fit_the_noise_measured_here():
    assert strict_bounds.complaints(strict_bounds.worst_noise(strict_bounds.measure_noise())) == []
