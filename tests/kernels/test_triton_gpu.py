"""The Triton backend on the GPU of this machine: what the interpreter cannot show."""

import itertools

import pytest
import torch
from mla_oracle import BF16_REL_L2, assert_steady_state, make_input, oracle, to_gpu, worst_rel_l2

from kernels.layout import shape_of
from kernels.triton_backend import TritonBackend

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
BACKEND = TritonBackend()
# A tile's P is rounded to the operand's type relative to the peak so far: a little above the rounding of the output.
GPU_REL_L2 = 2 * BF16_REL_L2


@pytest.mark.parametrize("kv_format", ["bf16", "fp8"])
@pytest.mark.parametrize(("q_len", "heads"), [(1, 16), (2, 16), (4, 16), (3, 32), (1, 128), (2, 128), (1, 5)])
def test_agrees_with_the_oracle(kv_format, q_len, heads):
    data = make_input([1000, 33, 1, 0, 64, 65, 2048, 129], q_len, heads)
    expected = oracle(data, kv_format)
    on_gpu = to_gpu(data)
    defaults = BACKEND.default_params(shape_of(on_gpu), torch.device("cuda")) | {"format": kv_format}
    for splits, convert, overlap in itertools.product((1, 3, 16), {defaults["convert"], "shift"}, {defaults["overlap"], False}):
        plan = BACKEND.plan(on_gpu, defaults | {"num_kv_splits": splits, "convert": convert, "overlap": overlap})
        assert worst_rel_l2(plan(on_gpu).cpu(), expected) < GPU_REL_L2, (splits, convert, overlap)


def test_a_steady_state_call_neither_allocates_nor_waits():
    data = to_gpu(make_input([512] * 4))
    plan = BACKEND.plan(data, BACKEND.default_params(shape_of(data), torch.device("cuda")))
    assert_steady_state(plan, data)


def test_other_boundaries_of_the_same_size():
    data = make_input([300, 300, 40])
    q, kv_data, qo_indptr, _, config = data
    other = (q, kv_data, qo_indptr, torch.tensor([0, 10, 10, 640], dtype=torch.int32), config)
    on_gpu, other_on_gpu = to_gpu(data), to_gpu(other)
    plan = BACKEND.plan(on_gpu, BACKEND.default_params(shape_of(on_gpu), torch.device("cuda")))
    for host, device_data in ((data, on_gpu), (other, other_on_gpu)):
        assert worst_rel_l2(plan(device_data).cpu(), oracle(host, "fp8")) < GPU_REL_L2


def test_rows_beyond_two_gigabytes():
    total = (1 << 32) // 576 + 4096
    fp8 = torch.zeros(total, 1, 576, dtype=torch.uint8, device="cuda")
    fp8[-1] = 0x38  # 1.0
    kv_data = {"fp8": (fp8, torch.ones(1, device="cuda"))}
    q = torch.ones(2, 16, 576, dtype=torch.bfloat16, device="cuda")
    kv_indptr = torch.tensor([0, total - 1, total], dtype=torch.int32, device="cuda")
    config = {"q_seq_len": 1, "kv_seq_len": total, "sm_scale": 1 / 24}
    data = (q, kv_data, torch.tensor([0, 1, 2], dtype=torch.int32, device="cuda"), kv_indptr, config)
    out = BACKEND.plan(data, BACKEND.default_params(shape_of(data), torch.device("cuda")))(data)
    assert out[0].count_nonzero() == 0
    assert torch.equal(out[1], torch.ones_like(out[1]))
