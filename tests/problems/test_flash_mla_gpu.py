"""flash_mla_with_kvcache on the GPU of this machine: what neither the interpreter nor a compiler alone can show."""

from pathlib import Path

import pytest
import torch
from flash_mla_probes import REFERENCE

from harness.problem import load_problem
from kernels.flash_mla import flash_mla_with_kvcache, get_mla_metadata

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
FOLDER = Path(__file__).resolve().parents[2] / "problems" / "flash_mla"
TESTS = {case.text: case.spec for case in load_problem(FOLDER).task.tests}
V32 = {"batchsize": 4, "qseqlen": 1, "kvseqlen": 4096, "layout": "v32", "topk": 512, "numheads": 64, "seed": 1}


def run(data, metadata=None, **changes):
    q, cache, options = data
    metadata = get_mla_metadata()[0] if metadata is None else metadata
    return flash_mla_with_kvcache(q, cache, tile_scheduler_metadata=metadata, **options | changes)


@pytest.mark.parametrize("spec", TESTS.values(), ids=TESTS)
def test_the_cases_of_the_task_pass_both_verdicts(spec):
    data = REFERENCE.generate_input(**spec, device="cuda")
    verdict = REFERENCE.judge(data, run(data))
    assert verdict["official"]["ok"], verdict
    assert verdict["strict"]["ok"], verdict


def test_a_steady_call_allocates_its_outputs_alone_and_does_not_wait():
    data, metadata = REFERENCE.generate_input(**V32, device="cuda"), get_mla_metadata()[0]
    run(data, metadata)
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    torch.cuda.set_sync_debug_mode("error")
    try:
        run(data, metadata, softmax_scale=0.3)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before + 2
    assert len(metadata.plans) == 1


def test_a_token_beyond_four_gigabytes():
    pages = (5 << 30) // (64 * 656)
    cache = torch.full((pages, 64, 1, 656), 0xFF, dtype=torch.uint8, device="cuda")
    row = torch.cat((torch.full((512,), 0x38), torch.tensor([1.0] * 4).view(torch.uint8)))  # e4m3 1.0, scale 1.0
    cache[-1, -1, 0] = torch.cat((row, torch.zeros(128))).to(torch.uint8).cuda()
    q = torch.ones(1, 1, 64, 576, dtype=torch.bfloat16, device="cuda")
    indices = torch.tensor([[[-1, pages * 64 - 1, pages * 64]]], dtype=torch.int32, device="cuda")
    options = {"block_table": None, "cache_seqlens": None, "head_dim_v": 512, "is_fp8_kvcache": True, "indices": indices}
    out, _ = run((q, cache, options))
    assert torch.equal(out, torch.ones_like(out))
