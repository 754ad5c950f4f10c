"""The CUDA backend on a Hopper GPU."""

import random

import pytest
import torch
from cuda_inputs import paged, random_input, scales_far_apart
from mla_oracle import BF16_REL_L2, assert_steady_state, make_input, oracle, to_gpu, worst_rel_l2

from kernels.cuda_backend import CUDA_KERNELS, CudaBackend
from kernels.layout import shape_of

BACKEND = CudaBackend()
REASON = BACKEND.available(torch.device("cuda", 0)) if torch.cuda.is_available() else "needs a GPU"
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(REASON is not None, reason=str(REASON))]
# Scores come from fp8 wgmma, whose accumulator is shorter than fp32: 6e-3 is the worst row seen on the official shapes.
CUDA_REL_L2 = 4 * BF16_REL_L2
KERNELS = [name for name in CUDA_KERNELS if not name.endswith("paged")]
MXFP4_KERNELS = [name for name in KERNELS if name.startswith("mxfp4")]
SPLITS = [(1, 1), (2, 1), (3, 1), (4, 2), (7, 3), (16, 1), (16, 4)]


def defaults(data):
    return BACKEND.default_params(shape_of(data), torch.device("cuda", 0))


def assert_right(data, on_gpu, params):
    plan = BACKEND.plan(on_gpu, params)
    expected = oracle(data, plan.kv_format)
    for _ in range(2):  # the second call finds what the first one left behind
        plan.out.fill_(float("nan"))
        plan.part.fill_(float("nan"))
        assert worst_rel_l2(plan(on_gpu).cpu(), expected) < CUDA_REL_L2, params
    assert plan.tickets.count_nonzero() == 0


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("q_len", "heads"), [(1, 16), (2, 16), (4, 16), (3, 32), (1, 128), (1, 5), (3, 7)])
def test_agrees_with_the_oracle(kernel, q_len, heads):
    data = make_input([1000, 33, 1, 0, 64, 65, 2048, 129], q_len, heads)
    on_gpu = to_gpu(data)
    for cluster, groups in SPLITS:
        assert_right(data, on_gpu, {"kernel": kernel, "cluster": cluster, "groups": groups})


@pytest.mark.parametrize("lengths", [[130, 130, 130], [200, 0, 190], [1, 2999, 3000]])
@pytest.mark.parametrize("kernel", KERNELS)
def test_lengths_that_the_host_takes_for_equal(kernel, lengths):
    """Copies start before the lengths are read; where the host was wrong they are thrown away."""
    data = make_input(lengths)
    data[4]["kv_seq_len"] = sum(lengths) // len(lengths)
    for cluster in (1, 2, 5):
        assert_right(data, to_gpu(data), {"kernel": kernel, "cluster": cluster, "groups": 1})


def check_random_shape(draw):
    data = random_input(draw, sequences=9, longest=3000)
    on_gpu = to_gpu(data)
    cluster, groups = draw.choice(SPLITS)
    assert_right(data, on_gpu, {"kernel": draw.choice(KERNELS), "cluster": cluster, "groups": groups})
    assert_right(data, on_gpu, defaults(on_gpu))


@pytest.mark.parametrize("seed", range(40))
def test_random_shapes(seed):
    check_random_shape(random.Random(seed))


@pytest.mark.slow
@pytest.mark.parametrize("share", range(8))
def test_thousands_of_random_shapes(share):
    draw = random.Random(1000 + share)
    for _ in range(250):
        check_random_shape(draw)


def test_nan_beyond_a_sequence_stays_there():
    data = make_input([70, 3, 200])
    on_gpu = to_gpu(data)
    fp8 = on_gpu[1]["fp8"][0].view(torch.uint8)
    fp8[70:73] = 0x7F  # NaN: the second sequence, which lies in the first one's last tile
    out = BACKEND.plan(on_gpu, {"kernel": "fp8_wide", "cluster": 1, "groups": 1})(on_gpu)
    assert out[0].isfinite().all()
    assert out[1].isnan().all()
    assert out[2].isfinite().all()


@pytest.mark.parametrize("kernel", MXFP4_KERNELS)
def test_block_scales_of_any_size(kernel):
    data = scales_far_apart([300, 70, 1])
    assert_right(data, to_gpu(data), {"kernel": kernel, "cluster": 3, "groups": 1})


@pytest.mark.parametrize("kernel", ["fp8_paged", "bf16_paged"])
@pytest.mark.parametrize("page_size", [8, 16, 64, 256])
def test_pages_anywhere(page_size, kernel):
    lengths = [1000, 1, 0, 64, 333]
    data = make_input(lengths, 2, 16)
    cache, table = paged(data, lengths, page_size)
    on_gpu = to_gpu(cache)
    plan = BACKEND.plan(on_gpu, {"kernel": kernel, "cluster": 3, "groups": 2})
    plan.page_through(table.cuda(), page_size)
    assert worst_rel_l2(plan(on_gpu).cpu(), oracle(data, kernel.partition("_")[0])) < CUDA_REL_L2


def test_a_page_size_that_does_not_fit_is_refused():
    data = to_gpu(make_input([64]))
    plan = BACKEND.plan(data, {"kernel": "fp8_paged", "cluster": 1, "groups": 1})
    with pytest.raises(ValueError, match="page_size=12: a power of two, at least 8 tokens"):
        plan.page_through(torch.zeros(1, 8, dtype=torch.int32, device="cuda"), 12)


@pytest.mark.parametrize("scale", [2.0**-20, 2.0**12])
def test_queries_of_any_size(scale):
    data = make_input([300, 50])
    scaled = (data[0] * scale, *data[1:4], {**data[4], "sm_scale": data[4]["sm_scale"] / scale})
    assert_right(scaled, to_gpu(scaled), {"kernel": "fp8_wide", "cluster": 2, "groups": 1})


def test_a_steady_state_call_neither_allocates_nor_waits():
    data = to_gpu(make_input([512] * 4))
    plan = BACKEND.plan(data, defaults(data))
    assert_steady_state(plan, data)


@pytest.mark.parametrize("kernel", KERNELS)
def test_two_runs_give_the_same_bits(kernel):
    data = to_gpu(make_input([777, 64, 3000]))
    plan = BACKEND.plan(data, {"kernel": kernel, "cluster": 5, "groups": 2})
    first = plan(data).clone()
    assert all(torch.equal(plan(data), first) for _ in range(20))
