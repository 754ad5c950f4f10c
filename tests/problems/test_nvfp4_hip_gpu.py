"""The NVFP4 HIP kernel on a real MI355X; elsewhere the emulator runs the same machine code."""

import pytest
import torch
from nvfp4_cases import HEADS, REFERENCE, heads_spec, make_input

from kernels.nvfp4_msa.hip_backend import HipBackend, HipPlan
from kernels.nvfp4_msa.layout import shape_of

pytestmark = pytest.mark.gpu
GPU = torch.device("cuda", 0)


@pytest.fixture(scope="module", autouse=True)
def card():
    reason = HipBackend().available(GPU) if torch.cuda.is_available() else "there is no GPU"
    if reason:
        pytest.skip(reason)


def assert_right(data, plan):
    judgement = REFERENCE.judge(data, plan(data))["strict"]
    assert judgement["ok"], judgement["message"]
    assert not plan.tickets.any()


@pytest.mark.parametrize("vscales", ["swizzled", "linear"])
@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize("splits", [None, 1, 5])
def test_right_with_tickets_zero(heads, vscales, splits):
    options = heads_spec(*heads) | {"kvmin": 0, "slots": "messy", "padrows": 3, "vscales": vscales}
    data = make_input(batchsize=33, kvseqlen=9000, topk=16, device=GPU, **options)
    params = HipBackend().default_params(shape_of(data), GPU)
    plan = HipPlan(data, params if splits is None else params | {"num_kv_splits": splits, "num_xcds": 8})
    for _ in range(20):
        assert_right(data, plan)


def test_recovers_from_stale_counters_and_allocates_nothing():
    data = make_input(batchsize=64, kvseqlen=9000, topk=16, device=GPU)
    plan = HipPlan(data, {"buffers": 3, "waves_per_simd": 2, "num_kv_splits": 4, "num_xcds": 1})
    plan.tickets.fill_(3)
    plan.recover()
    assert_right(data, plan)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats(GPU)["allocation.all.allocated"]
    plan(data)
    assert torch.cuda.memory_stats(GPU)["allocation.all.allocated"] == before
