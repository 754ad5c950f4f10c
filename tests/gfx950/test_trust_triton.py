"""Kernels that Triton compiles for gfx950 compute right in the emulator, under every schedule and LDS fill, with no finding.

Triton's code runs right on the hardware, so a wrong number here is the emulator's fault, and so is a finding.
"""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from corpus.case import Case
from corpus.running import prepare_triton
from corpus.triton_cases import CASES, FAMILIES

pytestmark = pytest.mark.usefixtures("toolchain")

PARAMETERS = [pytest.param(case, id=case.name, marks=[pytest.mark.slow] if case.slow else []) for case in CASES]


@pytest.mark.parametrize("case", PARAMETERS)
def test_triton_kernel_is_right(case: Case) -> None:
    verdict = prepare_triton(case).verify()
    assert verdict.ok, str(verdict)


def test_default_run_covers_every_family() -> None:
    assert all(any(not case.slow for case in cases) for cases in FAMILIES.values())
