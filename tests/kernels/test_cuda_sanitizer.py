"""compute-sanitizer over the CUDA kernels: memory, races, barriers, uninitialised reads."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernels.cuda_backend import CUDA_KERNELS, CudaBackend

REASON = CudaBackend().available(torch.device("cuda", 0)) if torch.cuda.is_available() else "needs a GPU"
SANITIZER = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
    pytest.mark.skipif(not os.access(SANITIZER, os.X_OK), reason="needs compute-sanitizer"),
]
ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys
sys.path[:0] = [".", "tests/kernels"]
from mla_oracle import make_input, to_gpu
from kernels.cuda_backend import CudaBackend
data = to_gpu(make_input([300, 0, 64, 65, 1], 2, 24))
for cluster, groups in ((1, 1), (3, 1), (4, 2), (1, 3)):
    plan = CudaBackend().plan(data, {"kernel": sys.argv[1], "cluster": cluster, "groups": groups})
    assert plan(data).isfinite().all()
"""


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck", "initcheck"])
@pytest.mark.parametrize("kernel", [name for name in CUDA_KERNELS if not name.endswith("paged")])
def test_the_sanitizer_finds_nothing(tool, kernel):
    # Without torch's cache an address past the end of a tensor belongs to nobody.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    options = ["--error-exitcode", "9", "--kernel-regex", "kns=mla_", "--print-limit", "5"]
    command = [SANITIZER, "--tool", tool, *options, sys.executable, "-c", SCRIPT, kernel]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{done.stdout[:6000]}\n{done.stderr[-2000:]}"
