"""Plans are cached under everything they depend on, and under nothing that changes from call to call."""

import itertools

import pytest
import torch
from mla_oracle import BF16_REL_L2, make_input, oracle, worst_rel_l2

from kernels import selection
from kernels.dispatch import SELECTION
from kernels.entry import custom_kernel, describe
from kernels.layout import plan_key


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch):
    monkeypatch.setattr(SELECTION, "plans", {})
    monkeypatch.setenv("KERNELPROOF_BACKEND", "torch")


def with_config(data, **changes):
    return (*data[:4], {**data[4], **changes})


def test_other_boundaries_of_the_same_size_share_a_plan_and_give_their_own_result():
    first = make_input([30, 30, 4])
    q, kv_data, qo_indptr, _, config = first
    second = (q, kv_data, qo_indptr, torch.tensor([0, 1, 1, 64], dtype=torch.int32), config)
    assert plan_key(first) == plan_key(second)
    for data in (first, second, first):
        assert worst_rel_l2(custom_kernel(data), oracle(data, "bf16")) < BF16_REL_L2
    assert len(SELECTION.plans) == 1


def test_boundaries_changed_in_place_are_seen():
    data = make_input([30, 30])
    custom_kernel(data)
    data[3][1] = 7
    assert worst_rel_l2(custom_kernel(data), oracle(data, "bf16")) < BF16_REL_L2


def test_other_query_boundaries_are_seen():
    data = with_config(make_input([20, 20], q_len=2), q_seq_len=3)
    custom_kernel(data)
    data[2][1] = 3
    assert worst_rel_l2(custom_kernel(data), oracle(data, "bf16")) < BF16_REL_L2


def test_fresh_contents_in_the_same_buffers_give_a_fresh_result():
    data = make_input([40])
    before = custom_kernel(data).clone()
    data[0].copy_(torch.randn_like(data[0]))
    data[1]["bf16"].copy_(torch.randn_like(data[1]["bf16"]))
    after = custom_kernel(data)
    assert not torch.equal(before, after)
    assert worst_rel_l2(after, oracle(data, "bf16")) < BF16_REL_L2


def test_what_a_plan_depends_on_is_in_its_key():
    data = make_input([24, 24], q_len=2)
    q, kv_data, *rest = data
    wide = torch.zeros(kv_data["mxfp4"][1].shape[0], 24, dtype=torch.uint8)
    misaligned = torch.zeros(q.numel() + 1, dtype=q.dtype)[1:].view(q.shape)
    variants = [
        data,
        make_input([24, 25], q_len=2),
        make_input([48], q_len=4),
        make_input([24, 24], q_len=2, heads=32),
        with_config(data, sm_scale=0.5),
        with_config(data, q_seq_len=4),
        with_config(data, kv_seq_len=48),
        (q, {**kv_data, "mxfp4": (kv_data["mxfp4"][0], wide)}, *rest),
        (q, {**kv_data, "fp8": (kv_data["fp8"][0].view(torch.uint8), kv_data["fp8"][1])}, *rest),
        (misaligned, kv_data, *rest),
    ]
    for left, right in itertools.combinations(variants, 2):
        assert plan_key(left) != plan_key(right)


def test_the_cache_is_bounded(monkeypatch):
    monkeypatch.setattr(selection, "MAX_PLANS", 3)
    for length in range(1, 8):
        custom_kernel(make_input([length]))
    assert len(SELECTION.plans) == 3


def test_describe_names_the_backend_and_its_parameters():
    assert describe(make_input([8])) == {"backend": "torch", "params": {"format": "bf16", "chunk_tokens": 4096}}
