"""The same source at every optimisation level: quite different machine code, the same results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gfx950 import compile_hip
from gfx950.emulator import Run, verify

pytestmark = pytest.mark.usefixtures("toolchain")

SOURCE = Path(__file__).parent / "corpus" / "levels.hip"
TERMS, BLOCK, GRID = 40, 256, 2
FIBONACCI = np.array([0, 1, 1, 2, 3, 5, 8, 13, 21])


def expected_sums(a: np.ndarray) -> np.ndarray:
    """[GRID * BLOCK] float64 of what the kernel sums in fp32."""
    t = np.arange(BLOCK)
    sign = np.where(np.arange(TERMS) % 2, -1.0, 2.0)
    terms = a.reshape(GRID, BLOCK).astype(np.float64)[:, (t[:, None] + np.arange(TERMS)) % BLOCK] * sign
    sums = terms.sum(-1)
    return np.select([t % 5 == 0, t % 5 == 1, t % 5 == 3], [sums + 1, sums * 2, -sums], sums).ravel()


@pytest.mark.parametrize("level", ["-O0", "-O1", "-Os", "-O3"])
def test_every_optimisation_level_gives_the_same(level: str) -> None:
    i = np.arange(GRID * BLOCK)
    t = i % BLOCK
    a = np.random.default_rng(0).standard_normal(len(i)).astype(np.float32)
    outputs = [np.zeros(len(i), dtype) for dtype in (np.float32, np.int32, np.float64, np.int64)]

    def check(run: Run) -> str | None:
        sums, numbers, thirds, remainders = run.args[1:5]
        right = {
            "sums": np.abs(sums - expected_sums(a)).max() < 2 * TERMS * 2.0**-24 * 2 * TERMS * np.abs(a).max(),
            "numbers": (numbers == FIBONACCI[t % 9]).all(),
            "thirds": (thirds == a.astype(np.float64) / 3 + t).all(),
            "remainders": (remainders == i * 123456789123 % (t + 7)).all(),
        }
        return ", ".join(name for name, ok in right.items() if not ok) or None

    code = compile_hip(SOURCE, flags=[level])
    verdict = verify(code, grid=GRID, block=BLOCK, args=[a, *outputs, TERMS], check=check)
    assert verdict.ok, str(verdict)
