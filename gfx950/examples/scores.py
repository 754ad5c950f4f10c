"""Worked example: a kernel that is right, and five ways to break it, each caught with its source line.

python -m gfx950.examples.scores            the kernel as it is
python -m gfx950.examples.scores wait       ... and broken: wait, lds, barrier, shuffle, hazard or all
"""

from __future__ import annotations

import sys
from pathlib import Path

import ml_dtypes
import numpy as np

from gfx950 import compile_hip
from gfx950.checks import Finding as StaticFinding
from gfx950.checks import check
from gfx950.emulator import Buffer, Run, Verdict, verify

SOURCE = Path(__file__).with_suffix(".hip")
BREAKS = {
    "wait": "the wait for the LDS-DMA load is dropped",
    "lds": "the last wave writes behind the LDS array",
    "barrier": "the barrier before the last reduction is dropped",
    "shuffle": "the reduction shuffles inside a divergent branch",
    "hazard": "inline assembly uses the MFMA result at once",
}
QUERIES, KEYS, DIM = 16, 64, 32
LINES_SHOWN = 14


def run(broken: str | None = None, n: int = 100, seed: int = 0) -> tuple[list[StaticFinding], Verdict]:
    """Check the machine code statically, then run it under every schedule and compare with numpy.

    broken: a name from BREAKS, or None. n: keys; 100 leaves the second workgroup partly empty.
    """
    defines = {f"BREAK_{broken.upper()}": 1} if broken else {}
    code = compile_hip(SOURCE, defines=defines)
    random = np.random.default_rng(seed)
    q = random.standard_normal((QUERIES, DIM)).astype(ml_dtypes.bfloat16)
    k = random.standard_normal((n, DIM)).astype(ml_dtypes.bfloat16)
    scale = np.float32(DIM**-0.5)
    blocks = -(-n // KEYS)
    out, largest = np.zeros((QUERIES, n), np.float32), np.zeros((blocks, QUERIES), np.float32)
    expected = q.astype(np.float64) @ k.astype(np.float64).T * scale

    def compare(result: Run) -> str | None:
        """None if right. Tolerance: 32 products rounded in fp32."""
        got, got_largest = result.args[0], result.args[1]
        want_largest = np.stack([expected[:, KEYS * b : KEYS * (b + 1)].max(axis=1) for b in range(blocks)])
        if not np.allclose(got, expected, rtol=1e-5, atol=1e-5):
            return f"{np.sum(~np.isclose(got, expected, rtol=1e-5, atol=1e-5))} wrong scores"
        return None if np.allclose(got_largest, want_largest, rtol=1e-5, atol=1e-5) else "wrong maxima"

    args = [
        Buffer(out, "out"),
        Buffer(largest, "largest"),
        Buffer(q, "q", writable=False),
        Buffer(k, "k", writable=False),
        n,
        scale,
    ]
    return check(code), verify(code, "scores", grid=blocks, block=256, args=args, check=compare)


def main(names: list[str]) -> int:
    wrong = False
    for name in names:
        found, verdict = run(name or None)
        print(f"== {BREAKS.get(name, 'as it is')}")
        for item in found:
            print(f"check:  {item}")
        shown = str(verdict).splitlines()
        print(
            "verify: "
            + "\n".join(shown[:LINES_SHOWN])
            + (f"\n  ... {len(shown) - LINES_SHOWN} more" if len(shown) > LINES_SHOWN else "")
        )
        print()
        wrong |= bool(found) or not verdict.ok
    return int(wrong)


if __name__ == "__main__":
    chosen = sys.argv[1:] or [""]
    if chosen != [""] and (unknown := set(chosen) - {*BREAKS, "all"}):
        sys.exit(f"no such break: {', '.join(unknown)}; there are {', '.join(BREAKS)} and all")
    sys.exit(main(list(BREAKS) if chosen == ["all"] else chosen))
