#!/usr/bin/env python3
"""Everything that could only be emulated so far, on a real MI355X: one command, and what to report back.

    python scripts/on_mi355x.py [--quick]

For each backend (hip, aiter, triton): is it right on official, ragged and adversarial cases, and how fast on the official
ones? Results go to results/mi355x/ as JSON; the text between the lines at the end is what to report. --quick: right or wrong
only, no timing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "results" / "mi355x"
BACKENDS = ("hip", "aiter", "triton")
CASE_SETS = ("official", "ragged", "adversarial")
RULE = "-" * 24


def evaluate(backend: str, mode: str, case_set: str) -> tuple[int, dict[str, Any], float]:
    """Exit code of eval.py, its Result (empty if there is none), and the seconds it took, compilation included."""
    cases = case_set if case_set == "official" else str(ROOT / "configs" / "cases" / f"{case_set}.txt")
    path = FOLDER / f"{backend}-{mode}-{case_set}.json"
    path.unlink(missing_ok=True)
    command = [sys.executable, "eval.py", "--mode", mode, "--cases", cases, "--backend", backend, "--json", str(path)]
    started = time.monotonic()
    code = subprocess.run(command, cwd=ROOT).returncode
    result = json.loads(path.read_text()) if path.exists() else {}
    return code, result, time.monotonic() - started


def machine() -> str:
    if not torch.cuda.is_available():
        return "no GPU"
    properties = torch.cuda.get_device_properties(0)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    arch = getattr(properties, "gcnArchName", "not AMD")
    return f"{properties.name}, {arch}, ROCm {torch.version.hip}, torch {torch.__version__}, commit {commit}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="right or wrong only")
    options = parser.parse_args(argv)
    if not torch.cuda.is_available() or "gfx950" not in getattr(torch.cuda.get_device_properties(0), "gcnArchName", ""):
        print(f"error: this needs an MI355X or MI350X (gfx950); here is {machine()}; without one run scripts/emulate.py")
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    lines, failed = [machine()], False
    for backend in BACKENDS:
        for case_set in CASE_SETS:
            code, _, seconds = evaluate(backend, "test", case_set)
            failed |= code != 0
            verdict = "right" if code == 0 else f"exit code {code}"
            lines.append(f"{backend:<8} test      {case_set:<12} {verdict:<14} {seconds:6.0f} s")
        if not options.quick:
            code, result, seconds = evaluate(backend, "benchmark", "official")
            score = result.get("score", {}).get("value_ns")
            shown = f"{score / 1000:.2f} us" if score else f"exit code {code}"
            lines.append(f"{backend:<8} benchmark {'official':<12} {shown:<14} {seconds:6.0f} s")
    print("\n".join([RULE, *lines, f"and the files in {FOLDER.relative_to(ROOT)}/", RULE]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
