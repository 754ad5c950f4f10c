#!/usr/bin/env python3
"""Everything that could only be emulated so far, on a real MI355X: one command, and what to report back.

    python scripts/on_mi355x.py [--quick]

For each problem and backend: is it right on all cases, and how fast on those of the leaderboard? Results go to results/mi355x/
as JSON; the text between the lines at the end is what to report. --quick: right or wrong only, no timing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "results" / "mi355x"
RULE = "-" * 24


class Problem(NamedTuple):
    """A problem folder, the backends of its submission that this card can run, and its case sets; "own" are task.yml's."""

    folder: str
    backends: tuple[str, ...]
    case_sets: tuple[str, ...] = ("own",)


PROBLEMS = (
    Problem("configs", ("hip", "aiter", "triton"), ("own", "ragged", "adversarial")),
    Problem("problems/nvfp4_msa", ("hip", "triton")),
)


def evaluate(problem: Problem, backend: str, mode: str, case_set: str) -> tuple[int, dict[str, Any], float]:
    """Exit code of eval.py, its Result (empty if there is none), and the seconds it took, compilation included."""
    path = FOLDER / f"{Path(problem.folder).name}-{backend}-{mode}-{case_set}.json"
    path.unlink(missing_ok=True)
    cases = [] if case_set == "own" else ["--cases", f"{problem.folder}/cases/{case_set}.txt"]
    options = ["--problem", problem.folder, "--mode", mode, "--backend", backend, "--json", str(path), *cases]
    started = time.monotonic()
    code = subprocess.run([sys.executable, "eval.py", *options], cwd=ROOT).returncode
    result = json.loads(path.read_text()) if path.exists() else {}
    return code, result, time.monotonic() - started


def machine() -> str:
    if not torch.cuda.is_available():
        return "no GPU"
    properties = torch.cuda.get_device_properties(0)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    arch = getattr(properties, "gcnArchName", "not AMD")
    return f"{properties.name}, {arch}, ROCm {torch.version.hip}, torch {torch.__version__}, commit {commit}"


def report_lines(problem: Problem, backend: str, quick: bool) -> tuple[list[str], bool]:
    """What to report of a backend, and whether it is wrong somewhere."""
    rows, failed = [], False
    for case_set in problem.case_sets:
        code, _, seconds = evaluate(problem, backend, "test", case_set)
        failed |= code != 0
        rows.append(("test", case_set, "right" if code == 0 else f"exit code {code}", seconds))
    if not quick:
        code, result, seconds = evaluate(problem, backend, "benchmark", "own")
        score = result.get("score", {}).get("value_ns")
        rows.append(("benchmark", "own", f"{score / 1000:.2f} us" if score else f"exit code {code}", seconds))
    name = f"{problem.folder:<20} {backend:<8}"
    return [f"{name} {mode:<9} {cases:<12} {shown:<14} {seconds:6.0f} s" for mode, cases, shown, seconds in rows], failed


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="right or wrong only")
    options = parser.parse_args(argv)
    if not torch.cuda.is_available() or "gfx950" not in getattr(torch.cuda.get_device_properties(0), "gcnArchName", ""):
        print(f"error: this needs an MI355X or MI350X (gfx950); here is {machine()}; without one run scripts/emulate.py")
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    lines, failed = [machine()], False
    for problem in PROBLEMS:
        for backend in problem.backends:
            found, bad = report_lines(problem, backend, options.quick)
            lines, failed = [*lines, *found], failed or bad
    print("\n".join([RULE, *lines, f"and the files in {FOLDER.relative_to(ROOT)}/", RULE]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
