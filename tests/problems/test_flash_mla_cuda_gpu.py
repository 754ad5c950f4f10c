"""The sparse CUDA kernels on the GPU of this machine: what their source on a CPU machine cannot show."""

import random

import pytest
import torch
from flash_mla_probes import REFERENCE

from kernels.flash_mla import flash_mla_with_kvcache, get_mla_metadata
from kernels.flash_mla.call import check_call, workload
from kernels.flash_mla.cuda_backend import SparseCudaBackend
from kernels.selection import BACKEND_VARIABLE

reason = "no GPU" if not torch.cuda.is_available() else SparseCudaBackend().available(torch.device("cuda"))
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(reason is not None, reason=str(reason))]
# A score that cancels to almost nothing is the lse of a row that sees one token; keys rounded to f16 cannot be within the 1e-6
# that a caller may ask for where there are many.
CANCELLED = 1e-4
V32 = {"qseqlen": 1, "kvseqlen": 4096, "layout": "v32", "seed": 1}


def judge(splits=0, **spec):
    """What is wrong with one launch, or ""; `splits` 0: as many as the backend would take."""
    data = REFERENCE.generate_input(**V32 | spec, device="cuda")
    q, cache, options = data
    call = check_call({"q": q, "k_cache": cache, **options})
    backend = SparseCudaBackend()
    params = backend.default_params(workload(call), q.device) | ({"num_kv_splits": splits} if splits else {})
    out, lse = backend.plan(call, params)(call)
    expected = REFERENCE.ref_kernel(data)[1]
    if torch.allclose(lse.double(), expected.double(), rtol=REFERENCE.LSE_REL, atol=CANCELLED):
        lse = expected.to(lse.dtype)
    verdict = REFERENCE.judge(data, (out, lse))
    return verdict["official"]["message"] or verdict["strict"]["message"]


@pytest.mark.parametrize("heads", [1, 16, 64, 100, 128])
@pytest.mark.parametrize("splits", [1, 2, 5, 32])
def test_heads_and_splits(heads, splits):
    assert judge(splits, batchsize=4, topk=2048, numheads=heads) == ""


@pytest.mark.parametrize("invalid", ["some", "lead", "all"])
def test_entries_that_are_not_valid(invalid):
    assert judge(3, batchsize=8, qseqlen=2, topk=1000, numheads=64, invalid=invalid, sink="mixed", lengths=1) == ""


@pytest.mark.parametrize("dist", ["large", "small", "outlier"])
def test_values_of_any_size(dist):
    assert judge(batchsize=8, topk=2048, numheads=64, dist=dist) == ""


def test_many_blocks_of_many_tiles():
    assert judge(1, batchsize=300, topk=2048, numheads=64) == ""


def random_case(draw):
    spec = {
        "batchsize": draw.randint(1, 40),
        "qseqlen": draw.randint(1, 3),
        "kvseqlen": draw.choice([0, 1, 40, 1000, 3000]),
        "seed": draw.randint(0, 1 << 30),
        "topk": draw.choice([1, 64, 512, draw.randint(1, 2500)]),
        "numheads": draw.choice([3, 16, 64, 65, 128]),
        "page": draw.choice([1, 16, 64, 100]),
        "invalid": draw.choice(["none", "some", "lead", "all"]),
        "sink": draw.choice(["none", "normal", "mixed"]),
        "lengths": draw.randint(0, 1),
        "dist": draw.choice(["normal", "large", "outlier"]),
    }
    return draw.choice([0, 0, 1, 2, 7]), spec


@pytest.mark.parametrize("seed", range(30))
def test_random_cases(seed):
    splits, spec = random_case(random.Random(seed))
    assert judge(splits, **spec) == "", (splits, spec)


@pytest.mark.slow
def test_many_random_cases():
    draw = random.Random(1000)
    for _ in range(1000):
        splits, spec = random_case(draw)
        assert judge(splits, **spec) == "", (splits, spec)


def test_a_thousand_launches_give_the_same_bits():
    q, cache, options = REFERENCE.generate_input(**V32 | {"batchsize": 64, "topk": 1024, "numheads": 128}, device="cuda")
    call = check_call({"q": q, "k_cache": cache, **options})
    plan = SparseCudaBackend().plan(call, {"num_kv_splits": 2})
    first = plan(call)
    for _ in range(1000):
        out, lse = plan(call)
    assert torch.equal(out, first[0])
    assert torch.equal(lse, first[1])


def test_a_steady_call_allocates_its_outputs_alone_and_does_not_wait(monkeypatch):
    monkeypatch.setenv(BACKEND_VARIABLE, "cuda")
    q, cache, options = REFERENCE.generate_input(**V32 | {"batchsize": 4, "topk": 512, "numheads": 64}, device="cuda")
    metadata = get_mla_metadata()[0]
    flash_mla_with_kvcache(q, cache, tile_scheduler_metadata=metadata, **options)
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    torch.cuda.set_sync_debug_mode("error")
    try:
        flash_mla_with_kvcache(q, cache, tile_scheduler_metadata=metadata, **options | {"softmax_scale": 0.3})
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before + 2
    assert len(metadata.plans) == 1


def test_a_token_beyond_four_gigabytes(monkeypatch):
    monkeypatch.setenv(BACKEND_VARIABLE, "cuda")
    pages = (5 << 30) // (64 * 656)
    cache = torch.full((pages, 64, 1, 656), 0xFF, dtype=torch.uint8, device="cuda")
    row = torch.cat((torch.full((512,), 0x38), torch.tensor([1.0] * 4).view(torch.uint8)))  # e4m3 1.0, scale 1.0
    cache[-1, -1, 0] = torch.cat((row, torch.zeros(128))).to(torch.uint8).cuda()
    q = torch.ones(1, 1, 64, 576, dtype=torch.bfloat16, device="cuda")
    indices = torch.tensor([[[-1, pages * 64 - 1, pages * 64]]], dtype=torch.int32, device="cuda")
    options = {"block_table": None, "cache_seqlens": None, "head_dim_v": 512, "is_fp8_kvcache": True, "indices": indices}
    out, _ = flash_mla_with_kvcache(q, cache, tile_scheduler_metadata=get_mla_metadata()[0], **options)
    assert torch.equal(out, torch.ones_like(out))
