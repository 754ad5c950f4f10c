"""compute-sanitizer over CUDA kernels: memory, races, barriers, uninitialised reads.

What a tool says of a kernel counts as far as it says nothing of programs without a fault (tests/support/sanitizer/control.cu)
that do the same: stores to another block's shared memory, reads that only an mbarrier or an announcement orders, warps
with code of their own.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import torch

from kernels.nvcc import find_nvcc, hopper_unavailable

UNAVAILABLE = hopper_unavailable(torch.device("cuda", 0)) if torch.cuda.is_available() else "needs a GPU"
SANITIZER = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
NEEDS_SANITIZER = [
    pytest.mark.gpu,
    pytest.mark.skipif(UNAVAILABLE is not None, reason=str(UNAVAILABLE)),
    pytest.mark.skipif(not os.access(SANITIZER, os.X_OK), reason="needs compute-sanitizer"),
]
SUPPORT = Path(__file__).resolve().parent
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")


def complaints(tool: str, kernels: tuple[str, ...], *command: str) -> str:
    """What the tool says of the kernels of a command whose names have one of `kernels` in them; nothing if it finds nothing."""
    # Without torch's cache an address past the end of a tensor belongs to nobody.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    options = ["--error-exitcode", "9", "--print-limit", "5"]
    if tool != "initcheck":  # which has to see everything that is written
        options += [part for name in kernels for part in ("--kernel-name", f"kernel_substring={name}")]
    full = [SANITIZER, "--tool", tool, *options, *command]
    done = subprocess.run(full, cwd=SUPPORT.parents[1], env=environment, capture_output=True, text=True, timeout=120)
    return "" if done.returncode == 0 else f"{done.stdout[:6000]}\n{done.stderr[-2000:]}"


@functools.cache
def control() -> str:
    """The control programs, as a command."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    program, source = f"{folder}/control", str(SUPPORT / "sanitizer" / "control.cu")
    subprocess.run([str(find_nvcc()), "-std=c++17", "-arch=sm_90a", "-lineinfo", "-o", program, source], check=True)
    return program


@functools.cache
def misjudged(tool: str, names: tuple[str, ...]) -> str:
    """The first line of what the tool has against a program without a fault."""
    for name in names:
        subprocess.run([control(), name], check=True)
        if said := complaints(tool, (name,), control(), name):
            errors = [line for line in said.splitlines() if "=========" in line and "COMPUTE-SANITIZER" not in line]
            return f"{tool} says of `{name}`, which has no fault: {errors[0].strip('= ') if errors else said[:200]}"
    return ""


def assert_no_complaint(tool: str, kernels: tuple[str, ...], command: tuple[str, ...], programs: tuple[str, ...]) -> None:
    """Skips instead if the tool has something against one of `programs`, which have no fault, too."""
    said = complaints(tool, kernels, *command)
    if said and (why := misjudged(tool, programs)):
        pytest.skip(why)
    assert not said, said
