"""The CUDA kernel of the NVFP4 problem on a Hopper GPU: what the CPU machine cannot show."""

import pytest
import torch
from nvfp4_cases import PROBLEM, REFERENCE

from kernels.nvfp4_msa.cuda_backend import CUDA_SHAPES, CUDA_SIZES, CUDA_SPLITS, CudaBackend, CudaPlan
from kernels.nvfp4_msa.layout import shape_of
from popcorn.taskfile import load_task_file

TASK = load_task_file(PROBLEM / "task.yml")
TESTS = [case.spec for case in TASK.tests]
MESSY = {"batchsize": 40, "qseqlen": 2, "kvseqlen": 5000, "topk": 20, "seed": 7, "groupsize": 8}
MESSY |= {"numkvheads": 2, "kvmin": 0, "slots": "messy", "padrows": 3}
UNAVAILABLE = CudaBackend().available(torch.device("cuda")) if torch.cuda.is_available() else "needs a GPU"
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(UNAVAILABLE is not None, reason=str(UNAVAILABLE))]


def make_input(**spec):
    return REFERENCE.generate_input(**spec, device="cuda")


def make_plan(data, **params):
    return CudaPlan(data, CudaBackend().default_params(shape_of(data), data[0].device) | params)


def assert_right(data, plan, expected):
    plan.out.fill_(float("nan"))
    verdict = REFERENCE.judge_strict(plan(data).double(), expected)
    assert verdict["ok"], (plan.params, verdict)


@pytest.mark.parametrize("spec", TESTS, ids=lambda spec: f"seed {spec['seed']}")
def test_passes_with_every_shape_of_blocks_and_any_number_of_splits(spec):
    data = make_input(**spec)
    expected = REFERENCE.oracle(data)
    for sizes in CUDA_SHAPES:
        for splits in CUDA_SPLITS:
            params = dict(zip(CUDA_SIZES, sizes, strict=True))
            assert_right(data, make_plan(data, num_kv_splits=splits, **params), expected)


@pytest.mark.parametrize("group", [1, 3, 7, 9, 15])
def test_groups_that_do_not_fill_their_products(group):
    data = make_input(**(MESSY | {"groupsize": group}))
    expected = REFERENCE.oracle(data)
    for splits in CUDA_SPLITS:
        assert_right(data, make_plan(data, num_kv_splits=splits), expected)


@pytest.mark.parametrize("group", [16, 8])
def test_a_thousand_launches_repeat_their_bits(group):
    """A share that was summed before it had arrived would show."""
    data = make_input(**(MESSY | {"groupsize": group}))
    plan = make_plan(data, num_kv_splits=8)
    wanted = plan(data).clone()
    different = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(1000):
        plan.out.fill_(float("nan"))
        different += (plan(data) != wanted).sum()
    assert int(different) == 0


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


def test_contents_and_places_may_change_between_calls_of_one_plan():
    first, second = make_input(**MESSY), make_input(**(MESSY | {"seed": 8}))
    pages = max(len(first[1]), len(second[1]))
    first, second = ((data[0], torch.cat([data[1], data[1][: pages - len(data[1])]]), *data[2:]) for data in (first, second))
    plan = make_plan(first, num_kv_splits=2)
    for data in (first, second, first):
        assert REFERENCE.judge_strict(plan(data).double(), REFERENCE.oracle(data))["ok"]


@pytest.mark.parametrize("group", [16, 8])
def test_caches_beyond_four_gigabytes(group):
    if torch.cuda.get_device_properties(0).total_memory < 24 << 30:
        pytest.skip("needs 24 GiB of device memory")
    data = make_input(batchsize=4, qseqlen=1, kvseqlen=2000, topk=8, seed=3, numkvheads=4, groupsize=group)
    pages, many = len(data[1]), (5 << 30) // (4 * 18432)
    cache = torch.zeros(many, *data[1].shape[1:], dtype=torch.uint8, device="cuda")
    cache[-pages:] = data[1]
    moved = torch.where(data[3] >= 0, data[3] + (many - pages), data[3])
    far = (data[0], cache, data[2], moved, *data[4:])
    for splits in (1, 2):
        assert torch.equal(make_plan(far, num_kv_splits=splits)(far), make_plan(data, num_kv_splits=splits)(data))
