"""compute-sanitizer over the CUDA kernels of the NVFP4 and flash_mla problems (tests/support/cuda_sanitizer.py)."""

import sys

import pytest
from cuda_sanitizer import NEEDS_SANITIZER, TOOLS, assert_no_complaint

pytestmark = NEEDS_SANITIZER

# Groups that do not fill their products. Rows list nothing valid, the same twice, from none to eight pages (fewer than splits
# or teams, more than a ring has stages), their own block as far as it is visible; one belongs to no request.
GROUPS = {"wide": 13, "narrow": 7}
NVFP4 = """
import itertools, sys
sys.path[:0] = [".", "tests/problems"]
from nvfp4_cases import REFERENCE, make_input
from kernels.nvfp4_msa.cuda_backend import CUDA_SHAPES, CUDA_SIZES, CudaPlan
spec = {"batchsize": 3, "qseqlen": 2, "kvseqlen": 1500, "kvmin": 0, "topk": 12, "slots": "messy", "padrows": 1, "seed": 0}
for order in ("swizzled", "linear"):
    data = make_input(**spec, numkvheads=2, groupsize=int(sys.argv[1]), vscales=order)
    expected = REFERENCE.oracle(data)
    data = (*(tensor.cuda() for tensor in data[:-1]), data[-1])
    for sizes, splits in itertools.product(CUDA_SHAPES, map(int, sys.argv[2:])):
        plan = CudaPlan(data, {"num_kv_splits": splits, **dict(zip(CUDA_SIZES, sizes, strict=True))})
        assert REFERENCE.judge_strict(plan(data).cpu().double(), expected)["ok"], plan.params
"""
ALONE = ("refilled", "overlaid")
TOGETHER = (*ALONE, "counted_stores", "wide_stores", "wide_kept", "parted")

# Two blocks of heads, of which the second has one; rows that see nothing, more splits than tiles, more tiles than stages.
FLASH_MLA = """
import sys
sys.path[:0] = [".", "tests/problems"]
from flash_mla_probes import REFERENCE, arguments
from kernels.flash_mla.call import check_call
from kernels.flash_mla.cuda_backend import SparsePlan
spec = {"batchsize": 3, "qseqlen": 2, "kvseqlen": 400, "kvmin": 0, "topk": 300, "page": 16, "layout": "v32", "seed": 1}
data = REFERENCE.generate_input(**spec, numheads=65, invalid="all", sink="mixed", lengths=1, device="cpu")
call = check_call({name: part.cuda() if hasattr(part, "cuda") else part for name, part in arguments(data).items()})
out, lse = (part.cpu() for part in SparsePlan(call, {"num_kv_splits": int(sys.argv[1])})(call))
assert REFERENCE.judge(data, (out, lse))["strict"]["ok"]
"""
SPARSE_PROGRAMS = ("handed_over", "spoken_for", "announced", "answered", "copied", "specialised")


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("form", GROUPS)
def test_nvfp4_blocks_that_are_alone(tool, form):
    command = (sys.executable, "-c", NVFP4, str(GROUPS[form]), "1")
    assert_no_complaint(tool, ("nvfp4_decode",), command, ALONE)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("form", GROUPS)
def test_nvfp4_clusters(tool, form):
    command = (sys.executable, "-c", NVFP4, str(GROUPS[form]), "2", "4", "8")
    assert_no_complaint(tool, ("nvfp4_decode",), command, TOGETHER)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("splits", [1, 5])
def test_flash_mla_sparse(tool, splits):
    command = (sys.executable, "-c", FLASH_MLA, str(splits))
    assert_no_complaint(tool, ("sparse_v32", "merge_splits"), command, SPARSE_PROGRAMS)
