"""The Triton kernel of the NVFP4 problem on the GPU of this machine: what interpreter and compiler cannot show."""

import itertools

import pytest
import torch
from nvfp4_cases import PROBLEM, REFERENCE

from kernels.nvfp4_msa.layout import shape_of
from kernels.nvfp4_msa.triton_backend import TritonBackend, TritonPlan
from popcorn.taskfile import load_task_file

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
TESTS = [case.spec for case in load_task_file(PROBLEM / "task.yml").tests]
# num_warps, keys, num_stages: a page a tile, two or four tiles a page, one warp
TILES = [(4, 32, 3), (2, 64, 3), (2, 32, 4), (1, 32, 4), (8, 16, 3)]
MESSY = {"batchsize": 40, "qseqlen": 2, "kvseqlen": 5000, "topk": 20, "seed": 7, "groupsize": 8}
MESSY |= {"numkvheads": 2, "kvmin": 0, "slots": "messy", "padrows": 3}


def make_input(**spec):
    return REFERENCE.generate_input(**spec, device="cuda")


def make_plan(data, **params):
    return TritonPlan(data, TritonBackend().default_params(shape_of(data), data[0].device) | params)


@pytest.mark.parametrize("spec", TESTS, ids=lambda spec: f"seed {spec['seed']}")
def test_passes_both_verdicts_with_any_number_of_splits(spec):
    data = make_input(**spec)
    expected = REFERENCE.oracle(data)
    for splits in (1, 2, 5, 16):
        plan = make_plan(data, num_kv_splits=splits)
        plan.out.fill_(float("nan"))
        verdict = REFERENCE.judge_strict(plan(data).double(), expected)
        assert verdict["ok"], (splits, verdict)
        assert not plan.tickets.any()


@pytest.mark.parametrize("tile", TILES)
def test_every_tile_passes(tile):
    data = make_input(**MESSY)
    expected = REFERENCE.oracle(data)
    for splits in (1, 3):
        params = dict(zip(("num_warps", "keys", "num_stages"), tile, strict=True))
        verdict = REFERENCE.judge_strict(make_plan(data, num_kv_splits=splits, **params)(data).double(), expected)
        assert verdict["ok"], verdict


def test_all_ways_to_unpack_give_the_same_bits():
    """Their units differ by powers of two, so they would differ if an instruction flushed subnormal f16."""
    capability = torch.cuda.get_device_capability()
    if torch.version.hip or capability < (8, 9):
        pytest.skip("no hardware conversion from e4m3")
    data = make_input(**MESSY, dist="bytes")
    results = [make_plan(data, unpack=mode)(data) for mode in ("cvt", "shift", "portable")]
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_a_thousand_launches_leave_no_ticket_and_repeat_their_bits():
    """The last split to arrive is another one every time; a split that was combined before it was visible would show."""
    data = make_input(**MESSY)
    plan = make_plan(data, num_kv_splits=8)
    wanted = plan(data).clone()
    different = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(1000):
        plan.partial.fill_(float("nan"))
        different += (plan(data) != wanted).sum()
    assert int(different) == 0
    assert not plan.tickets.any()


def test_a_call_after_one_that_was_cut_short_gives_the_same_bits():
    data = make_input(**MESSY)
    plan = make_plan(data, num_kv_splits=4)
    wanted, decode = plan(data).clone(), plan.decode
    plan.tickets.fill_(1)
    plan.launching = True
    assert torch.equal(plan(data), wanted)
    assert plan.decode is decode
    assert not plan.tickets.any()


def test_a_steady_state_call_neither_allocates_nor_waits():
    data = make_input(**MESSY)
    plan = make_plan(data, num_kv_splits=4)
    plan(data)
    torch.cuda.synchronize()
    allocations = torch.cuda.memory_stats()["allocation.all.allocated"]
    torch.cuda.set_sync_debug_mode("error")
    try:
        outputs = [plan(data) for _ in range(5)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == allocations
    assert {output.data_ptr() for output in outputs} == {plan.out.data_ptr()}


def test_contents_may_change_between_calls_of_one_plan():
    first, second = make_input(**MESSY), make_input(**(MESSY | {"seed": 8}))
    pages = max(len(first[1]), len(second[1]))
    first, second = (
        (data[0], torch.cat([data[1], data[1][: pages - len(data[1])]]), *data[2:]) for data in (first, second)
    )
    plan = make_plan(first, num_kv_splits=3)
    for data in (first, second, first):
        assert REFERENCE.judge_strict(plan(data).double(), REFERENCE.oracle(data))["ok"]


def test_caches_beyond_four_gigabytes():
    """Page offsets need 64 bits."""
    if torch.cuda.get_device_properties(0).total_memory < 24 << 30:
        pytest.skip("needs 24 GiB of device memory")
    data = make_input(batchsize=4, qseqlen=1, kvseqlen=2000, topk=8, seed=3, numkvheads=4)
    pages, many = len(data[1]), (5 << 30) // (4 * 18432)
    cache = torch.zeros(many, *data[1].shape[1:], dtype=torch.uint8, device="cuda")
    cache[-pages:] = data[1]
    moved = torch.where(data[3] >= 0, data[3] + (many - pages), data[3])
    far = (data[0], cache, data[2], moved, *data[4:])
    for splits in (1, 2):
        assert torch.equal(make_plan(far, num_kv_splits=splits)(far), make_plan(data, num_kv_splits=splits)(data))


def test_split_invariance():
    data = make_input(**MESSY)
    outputs = [make_plan(data, num_kv_splits=splits)(data).float().clone() for splits in (1, 2, 4, 8, 16)]
    for one, two in itertools.pairwise(outputs):
        torch.testing.assert_close(one, two, rtol=1e-2, atol=1e-2)
