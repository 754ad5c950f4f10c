"""compute-sanitizer over the CUDA kernels: memory, races, barriers, uninitialised reads.

What a tool says of a kernel counts as far as it says nothing of programs without a fault (tests/support/sanitizer/control.cu)
that do the same: stores to another block's shared memory, reads that only an mbarrier or an announcement orders, warps
with code of their own.
"""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernels.cuda_backend import CUDA_KERNELS, CudaBackend
from kernels.nvcc import find_nvcc

REASON = CudaBackend().available(torch.device("cuda", 0)) if torch.cuda.is_available() else "needs a GPU"
SANITIZER = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
    pytest.mark.skipif(not os.access(SANITIZER, os.X_OK), reason="needs compute-sanitizer"),
]
ROOT = Path(__file__).resolve().parents[2]
CONTROL = ROOT / "tests" / "support" / "sanitizer" / "control.cu"
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
IN_A_BLOCK = (
    "loads", "handed_over", "spoken_for", "announced", "answered", "voted", "left_early", "met_unevenly", "specialised",
)  # fmt: skip
IN_A_CLUSTER = ("stores", "counted_stores", "bulk_stores", "bulk_kept")
KERNELS = [name for name in CUDA_KERNELS if not name.endswith("paged")]
SCRIPT = """
import json, sys
sys.path[:0] = [".", "tests/kernels"]
from mla_oracle import make_input, to_gpu
from kernels.cuda_backend import CudaBackend
data = to_gpu(make_input(json.loads(sys.argv[2]), 2, 24))
for cluster in map(int, sys.argv[3:]):
    for groups in (1, 2):
        plan = CudaBackend().plan(data, {"kernel": sys.argv[1], "cluster": cluster, "groups": groups})
        assert plan(data).isfinite().all()
"""

LENGTHS = [300, 0, 64, 65, 1]
EVEN = [1536, 0]  # racecheck is slow, and loses count (met_unevenly) where warpgroups have not as many tiles as each other


def kernel_run(tool: str, kernel: str, *clusters: str) -> tuple[str, ...]:
    """The command that decodes with a kernel."""
    return sys.executable, "-c", SCRIPT, kernel, str(EVEN if tool == "racecheck" else LENGTHS), *clusters


def complaints(tool: str, kernels: str, *command: str) -> str:
    """What the tool says of the kernels of a command whose names have `kernels` in them; nothing if it finds nothing."""
    # Without torch's cache an address past the end of a tensor belongs to nobody.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    options = ["--error-exitcode", "9", "--print-limit", "5"]
    if tool != "initcheck":  # which has to see everything that is written
        options += ["--kernel-name", f"kernel_substring={kernels}"]
    full = [SANITIZER, "--tool", tool, *options, *command]
    done = subprocess.run(full, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    return "" if done.returncode == 0 else f"{done.stdout[:6000]}\n{done.stderr[-2000:]}"


@pytest.fixture(scope="session")
def control(tmp_path_factory):
    """The control programs, as a command."""
    program = tmp_path_factory.mktemp("control") / "control"
    subprocess.run([str(find_nvcc()), "-std=c++17", "-arch=sm_90a", "-lineinfo", "-o", program, CONTROL], check=True)
    return str(program)


@functools.cache
def misjudged(tool: str, control: str, names: tuple[str, ...]) -> str:
    """The first line of what the tool has against a program without a fault."""
    for name in names:
        subprocess.run([control, name], check=True)
        if said := complaints(tool, name, control, name):
            errors = [line for line in said.splitlines() if "=========" in line and "COMPUTE-SANITIZER" not in line]
            return f"{tool} says of `{name}`, which has no fault: {errors[0].strip('= ') if errors else said[:200]}"
    return ""


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_blocks_that_are_alone(tool, kernel, control):
    said = complaints(tool, "mla_", *kernel_run(tool, kernel, "1"))
    if said and (why := misjudged(tool, control, IN_A_BLOCK)):
        pytest.skip(why)
    assert not said, said


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_clusters(tool, kernel, control):
    clusters = ("2",) if tool == "racecheck" else ("3", "4")
    said = complaints(tool, "mla_", *kernel_run(tool, kernel, *clusters))
    if said and (why := misjudged(tool, control, IN_A_BLOCK + IN_A_CLUSTER)):
        pytest.skip(why)
    assert not said, said
