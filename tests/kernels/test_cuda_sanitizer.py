"""compute-sanitizer over the MLA CUDA kernels (tests/support/cuda_sanitizer.py)."""

import sys

import pytest
from cuda_sanitizer import NEEDS_SANITIZER, TOOLS, assert_no_complaint

from kernels.cuda_backend import CUDA_KERNELS

pytestmark = NEEDS_SANITIZER
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


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_blocks_that_are_alone(tool, kernel):
    assert_no_complaint(tool, ("mla_",), kernel_run(tool, kernel, "1"), IN_A_BLOCK)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_clusters(tool, kernel):
    clusters = ("2",) if tool == "racecheck" else ("3", "4")
    assert_no_complaint(tool, ("mla_",), kernel_run(tool, kernel, *clusters), IN_A_BLOCK + IN_A_CLUSTER)
