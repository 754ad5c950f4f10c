"""Inverting any one layout fact must break kernels that are right otherwise: what nothing notices is not pinned down."""

from __future__ import annotations

from functools import cache

import pytest

pytest.importorskip("triton")

from corpus.assumptions import PINNED_BY, Assumption, inverted
from corpus.running import Prepared, prepare_triton
from corpus.triton_cases import CASES

from gfx950.emulator import CONJUNCTION

pytestmark = pytest.mark.usefixtures("toolchain")

BY_NAME = {case.name: case for case in CASES}
NEAR_ONE = 0.3  # relative L2; a right kernel is below 1e-5


PAIRS = [(assumption, name) for assumption, names in PINNED_BY.items() for name in names]


@cache
def prepared(name: str) -> Prepared:
    return prepare_triton(BY_NAME[name])


def worst_error(kernel: Prepared) -> float:
    run = kernel.verify(schedules=CONJUNCTION[:1], lds_fills=("nan",)).runs[0]
    return max(deviation.relative_l2 for deviation in kernel.deviations(run))


def test_every_assumption_is_pinned() -> None:
    assert set(PINNED_BY) == set(Assumption)


@pytest.mark.parametrize(("assumption", "name"), PAIRS, ids=[f"{a.name}-{n}" for a, n in PAIRS])
def test_inverted_assumption_breaks_the_kernel(assumption: Assumption, name: str) -> None:
    if not assumption.concerns(prepared(name).code):
        pytest.skip(f"this Triton compiles {name} without what the fact is about")
    assert worst_error(prepared(name)) < 1e-5
    with inverted(assumption):
        assert worst_error(prepare_triton(BY_NAME[name])) > NEAR_ONE
    assert worst_error(prepared(name)) < 1e-5
