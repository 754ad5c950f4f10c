#!/usr/bin/env python3
"""Does a sweep find back? Spoil a copy of the table, sweep it on this machine, measure the outcome against the original.

    python scripts/sweep_recovery.py --out FOLDER                      the official shapes on a GPU, the smoke cases on a CPU
    python scripts/sweep_recovery.py --out FOLDER --kill-every-s 60    the same, killed (SIGKILL) again and again

The repository stays as it is: kernels, table and problem are copied. Exit 0 if every entry is within the noise of the original
one or faster, 1 if one is slower or could not be compared, else the exit code of what failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness.compare import change_text  # noqa: E402
from harness.result import Change, read_result  # noqa: E402

COPIED = ("configs", "kernels", "problems")
LONGER = 1.3
COPIED_FILES = ("task.py", "reference.py", "utils.py", "eval.py", "submission.py")


def copy_root(folder: Path) -> Path:
    """What a sweep reads and writes, copied."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    for name in COPIED_FILES:
        shutil.copy(ROOT / name, folder / name)
    return folder


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "sweep", *words]


def run(words: list[str], kill_after_s: float | None = None) -> int:
    """The exit code; -9 if it was killed."""
    process = subprocess.Popen(words, cwd=ROOT)
    try:
        return process.wait(timeout=kill_after_s)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        return process.wait()


def sweep(words: list[str], kill_after_s: float | None) -> tuple[int, int]:
    """The exit code of the last run, and how often one was killed: each lives a little longer, so that even where a start
    takes its time one gets to the end."""
    kills = 0
    while (code := run(words, kill_after_s)) == -signal.SIGKILL and kill_after_s:
        print(f"killed after {kill_after_s:.0f} s; starting again", flush=True)
        kills, kill_after_s = kills + 1, kill_after_s * LONGER
    return code, kills


def compare(root: Path, out: Path, options: argparse.Namespace) -> int:
    """The found table's submission against the original's, interleaved; 1 if a case is slower."""
    words = [sys.executable, "eval.py", "--submission", str(root / "submission.py"), "--baseline", str(ROOT / "submission.py")]
    words += ["--budget-s", str(options.budget_s), "--json", str(out / "recovery.json")]
    words += ["--cases", options.cases] if options.cases else []
    words += ["--device", options.device] if options.device else []
    code = run(words)
    result = read_result(out / "recovery.json")
    if code or not result.ok:
        return code or 112
    slower = [case for case in result.cases if case.comparison and case.comparison.change is Change.SLOWER]
    for case in result.cases:
        print(f"{case.spec}: {change_text(case.comparison, 'the original') if case.comparison else 'not compared'}")
    unknown = sum(case.comparison is None for case in result.cases)
    print(f"of {len(result.cases)} entries {len(slower)} are slower than the original ones, {unknown} could not be compared")
    return 1 if slower or unknown else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where the copy, the report and the comparison go")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--cases", help="as in eval.py")
    parser.add_argument("--device", help="as in eval.py")
    parser.add_argument("--budget-s", type=float, default=4.0, help="of the comparison, for each case")
    parser.add_argument("--kill-every-s", type=float, help="kill the sweep after so long, and start it again")
    options = parser.parse_args()
    root = copy_root(options.out / "copy")
    chosen = [word for name in ("cases", "device") if (value := getattr(options, name)) for word in (f"--{name}", value)]
    common = ["--root", str(root), "--preset", options.preset, *chosen]
    if code := run(command(*common, "--spoil")):
        return code
    began = time.monotonic()
    code, kills = sweep(command(*common, "--html", str(options.out / "sweep.html")), options.kill_every_s)
    print(f"the sweep took {time.monotonic() - began:.0f} s, killed {kills} times, exit code {code}", flush=True)
    shutil.copy(root / "configs" / "dispatch.yml", options.out / "dispatch.yml")
    return code or compare(root, options.out, options)


if __name__ == "__main__":
    sys.exit(main())
