#!/usr/bin/env python3
"""Everything that only a GPU can tell, step by step: what is right there, how fast, and whether the referee still holds.

    python scripts/on_gpu.py --list                     the steps, in the order of what they are worth
    python scripts/on_gpu.py                            all of them
    python scripts/on_gpu.py --only harness,robust-benchmark --out /tmp/h200

A step that fails or runs past its limit is ended and named, and the next one starts. What steps write, and their output,
lies in --out (default results/gpu/); results to keep go to docs/results/ by hand. Exit 1 if a step failed, 2 without a GPU.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PYTEST = ("-m", "pytest", "-q", "--maxfail", "5", "-p", "no:cacheprovider", "-m", "gpu and not slow")

KEEP_INTEGRITY = ("--json", "OUT/integrity-h200.json")


class Step(NamedTuple):
    """`command` is for Python; OUT in it stands for the folder of results."""

    name: str
    limit_s: int
    command: tuple[str, ...]


def evaluation(mode: str, policy: str) -> Step:
    name = f"{policy}-{mode}"
    options = ("--mode", mode, "--policy", policy, "--cases", "official", "--json", f"OUT/h200-{name}.json")
    return Step(name, 150, ("eval.py", *options))


STEPS = (
    Step("harness", 250, (*PYTEST, "tests/harness/test_gpu.py", "tests/harness/test_gpu_blocker.py")),
    Step("task", 60, (*PYTEST, "tests/task/test_task_gpu.py")),
    evaluation("benchmark", "robust"),
    Step("cuda", 150, (*PYTEST, "tests/kernels/test_cuda_gpu.py")),
    Step("triton", 120, (*PYTEST, "tests/kernels/test_triton_gpu.py")),
    evaluation("leaderboard", "robust"),
    evaluation("benchmark", "official"),
    evaluation("leaderboard", "official"),
    Step("overhead", 150, ("scripts/isolation_overhead.py", "--json", "OUT/isolation-h200.json")),
    Step("same", 90, ("eval.py", "--cases", "official", "--baseline", "submission.py", "--json", "OUT/h200-same.json")),
    Step("nvfp4", 120, (*PYTEST, "tests/problems/test_nvfp4_gpu.py", "tests/problems/test_nvfp4_cuda_gpu.py")),
    Step("nvfp4-times", 300, ("scripts/bench_nvfp4.py", "--backend", "cuda", "--out", "OUT/nvfp4.json")),
    Step("flash-mla", 150, (*PYTEST, "tests/problems/test_flash_mla_gpu.py", "tests/problems/test_flash_mla_cuda_gpu.py")),
    Step("flash-mla-times", 590, ("scripts/bench_flash_mla.py", "--out", "OUT/flash-mla.json")),
    Step("integrity", 400, ("scripts/integrity.py", "--gpu", "--prove", "--limit-s", "300", *KEEP_INTEGRITY)),
    Step("sweep", 590, ("scripts/sweep_recovery.py", "--out", "OUT/sweep")),
    Step("sanitizer", 590, (*PYTEST, "tests/kernels/test_cuda_sanitizer.py")),
    Step("sanitizer-problems", 590, (*PYTEST, "tests/problems/test_cuda_sanitizer_problems.py")),
    Step("peers", 300, ("scripts/bench_peers.py", "--cases", "official", "--json", "OUT/peers-h200.json")),
)


def run(step: Step, folder: Path) -> str:
    """What became of a step: "ok", its exit code, or that it ran too long. Its output goes to a file of its name."""
    command = [sys.executable, *(part.replace("OUT/", f"{folder}/") for part in step.command)]
    with (folder / f"{step.name}.log").open("w") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(step.limit_s)
        except subprocess.TimeoutExpired:
            return f"ended after {step.limit_s} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return "ok" if code == 0 else f"exit code {code}"


def gpu_is_here() -> bool:
    """In a process of its own: the steps want the device for themselves."""
    code = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode == 0


def last_line(path: Path) -> str:
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:100] if lines else ""


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the steps and do nothing")
    parser.add_argument("--only", metavar="STEP,...", help="these steps")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "gpu", metavar="DIR", help="default: results/gpu")
    options = parser.parse_args(argv)
    names = [step.name for step in STEPS]
    options.steps = options.only.split(",") if options.only else names
    if unknown := [name for name in options.steps if name not in names]:
        parser.error(f"no step is called {', '.join(unknown)}; there are {', '.join(names)}")
    return options


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    steps = [step for step in STEPS if step.name in options.steps]
    if options.list:
        print("\n".join(f"{step.name:<22} {step.limit_s:>4} s at most   python {' '.join(step.command)}" for step in steps))
        return 0
    if not gpu_is_here():
        print("error: there is no GPU on this machine, so nothing here could be told; --list names the steps", file=sys.stderr)
        return 2
    folder = options.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    failed = False
    for number, step in enumerate(steps, 1):
        print(f"{number}/{len(steps)} {step.name} ...", flush=True)
        started = time.monotonic()
        became = run(step, folder)
        failed |= became != "ok"
        line = last_line(folder / f"{step.name}.log")
        print(f"    {became} in {time.monotonic() - started:.0f} s: {line}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
