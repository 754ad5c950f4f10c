"""How fast the gfx950 emulator executes, with all its checks on.

    python scripts/emulator_speed.py

Runs gfx950/examples/scores.hip on many workgroups and prints wave instructions per second of CPU time of one thread, by
schedule, and the peak memory of the process. CPU time, because other work on the machine would stretch the wall clock.
"""

import resource
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402

from gfx950 import CodeObject, compile_hip  # noqa: E402
from gfx950.emulator import CONJUNCTION, Buffer, Schedule, launch  # noqa: E402

WORKGROUPS, QUERIES, KEYS_EACH, DIM = 1024, 16, 64, 32


def arguments() -> list[object]:
    """Inputs of scores.hip for WORKGROUPS workgroups."""
    rng = np.random.default_rng(0)
    n = WORKGROUPS * KEYS_EACH
    q = rng.standard_normal((QUERIES, DIM)).astype(ml_dtypes.bfloat16)
    k = rng.standard_normal((n, DIM)).astype(ml_dtypes.bfloat16)
    out, largest = np.zeros((QUERIES, n), np.float32), np.zeros((WORKGROUPS, QUERIES), np.float32)
    return [Buffer(out, "out"), Buffer(largest, "largest"), Buffer(q, "q"), Buffer(k, "k"), n, np.float32(0.2)]


def measure(code: CodeObject, schedule: Schedule) -> tuple[int, float]:
    """Wave instructions, and seconds of CPU time that they took."""
    args = arguments()
    start = time.process_time()
    run = launch(code, "scores", grid=WORKGROUPS, block=256, args=args, schedule=schedule)
    return run.instructions, time.process_time() - start


def main() -> None:
    code = compile_hip(ROOT / "gfx950" / "examples" / "scores.hip")
    measure(code, CONJUNCTION[0])  # builds, decodes
    for schedule in CONJUNCTION:
        instructions, seconds = measure(code, schedule)
        print(f"{schedule.name:32} {instructions:9,} wave instructions, {instructions / seconds / 1e6:5.2f} million a second")
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of the process: {peak_mib:.0f} MiB")


if __name__ == "__main__":
    main()
