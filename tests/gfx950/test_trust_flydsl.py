"""Kernels that FlyDSL compiles for gfx950 compute right in the emulator. The wheel is fetched at test time."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")  # its device libraries stand in for ROCm's

from corpus import flydsl_problems, wheels
from corpus.running import prepare_flydsl

pytestmark = pytest.mark.usefixtures("toolchain")


@pytest.fixture(scope="module")
def flydsl() -> None:
    try:
        flydsl_problems.code_objects()
    except wheels.Unreachable as reason:
        pytest.skip(str(reason))


@pytest.mark.usefixtures("flydsl")
@pytest.mark.parametrize("name", flydsl_problems.PROBLEMS)
def test_flydsl_kernel_is_right(name: str) -> None:
    verdict = prepare_flydsl(name).verify()
    assert verdict.ok, str(verdict)
