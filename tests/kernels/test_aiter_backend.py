"""The AITER backend against a stand-in with AITER's signatures that executes paged, scheduled attention in torch."""

import ast
import inspect
import sys
import zipfile
from pathlib import Path

import aiter_standin
import pytest
import torch
from mla_oracle import BF16_REL_L2, make_input, oracle, worst_rel_l2

import reference
from kernels.aiter_backend import AITER_METADATA, AiterPlan, fitting_page_size, page_tables, read_interface

PARAMS = {"page_size": 8, "num_kv_splits": 4, "fast_mode": False, "kv_granularity": 16}


def interface_of(module):
    found = read_interface(module.mla_decode_fwd, module.get_mla_metadata_info_v1, module.get_mla_metadata_v1)
    assert not isinstance(found, str), found
    return found


def plan_for(data, module=None, **params):
    return AiterPlan(data, PARAMS | params, interface_of(module or aiter_standin.paged()))


def assert_right(data, out):
    """Against fp64 on the fp8 values that AITER is given: q by one scale, and KV."""
    q, dtype = data[0], data[1]["fp8"][0].dtype
    scale = reference.fp8_scale(q.float(), dtype)
    rounded = reference.fp8_cast(q.float() / scale, dtype).double() * scale.double()
    assert worst_rel_l2(out, oracle((rounded, *data[1:]), "fp8")) < BF16_REL_L2


@pytest.mark.parametrize("generation", [aiter_standin.paged, aiter_standin.token])
@pytest.mark.parametrize("page_size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize(("lengths", "q_len"), [([208, 320], 1), ([200, 333, 0, 7], 1), ([256, 208], 4), ([1], 2), ([0, 0], 1)])
def test_every_page_size_length_and_token_count(generation, page_size, lengths, q_len):
    data = make_input(lengths, q_len=q_len)
    assert_right(data, plan_for(data, generation(), page_size=page_size)(data))


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("splits", [1, 2, 32])
def test_modes_and_splits(fast_mode, splits):
    data = make_input([256, 512])
    assert_right(data, plan_for(data, fast_mode=fast_mode, num_kv_splits=splits)(data))


def test_generations_are_told_apart_by_signature():
    assert interface_of(aiter_standin.paged()).paged
    assert not interface_of(aiter_standin.token()).paged
    metadata = [getattr(aiter_standin.paged(), name) for name in ("get_mla_metadata_info_v1", "get_mla_metadata_v1")]
    assert "unknown generation" in str(read_interface(lambda q, kv_buffer: None, *metadata))


def test_sequences_that_begin_within_a_page_get_smaller_pages():
    assert fitting_page_size(8, [0, 16, 64], 64) == 8
    assert fitting_page_size(8, [0, 12, 64], 64) == 4
    assert fitting_page_size(8, [0, 13, 64], 64) == 1
    assert fitting_page_size(8, [0, 16, 60], 60) == 4


def test_tokens_of_a_sequence_share_its_shuffled_pages_and_the_last_page_is_partial():
    tables = page_tables([2, 1], [11, 4], 4, [torch.tensor([7, 2, 5]), torch.tensor([0])])
    assert tables.kv_indptr.tolist() == [0, 3, 6, 7]
    assert tables.kv_indices.tolist() == [7, 2, 5, 7, 2, 5, 0]
    assert tables.kv_last_page_lens.tolist() == [3, 3, 4]
    assert tables.qo_indptr.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("page_size", [1, 2, 8])
def test_shuffled_pages_give_the_same_result(page_size):
    """The plan with its tables exchanged for those of a scattered cache."""
    lengths, q_len = [203, 260], 2
    data = make_input(lengths, q_len=q_len)
    q, kv_data, qo_indptr, kv_indptr, config = data
    counts = [-(-length // page_size) for length in lengths]
    order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(1)).split(counts)
    values, scale = kv_data["fp8"]
    scattered = torch.full((sum(counts) * page_size, 1, 576), 0x7F, dtype=torch.uint8).view(values.dtype)
    for begin, length, pages in zip(kv_indptr.tolist(), lengths, order, strict=False):
        rows = (pages[:, None] * page_size + torch.arange(page_size)).flatten()[:length]
        scattered.view(torch.uint8)[rows] = values.view(torch.uint8)[begin : begin + length]
    paged = (q, {**kv_data, "fp8": (scattered, scale)}, qo_indptr, kv_indptr, config)
    plan = plan_for(paged, page_size=page_size)
    plan.prepare(qo_indptr, kv_indptr, scattered)
    plan.page_size = page_size
    plan.tables = page_tables([q_len] * 2, lengths, page_size, list(order))
    plan.metadata = plan.make_metadata(values.dtype, values.device)
    assert_right(data, plan(paged))


def test_other_contents_of_the_same_size_make_new_tables():
    first, second = make_input([200, 312]), make_input([312, 200], seed=1)
    plan = plan_for(first)
    for data in (first, second, first):
        assert_right(data, plan(data))
    first[3][1] = 304  # in place
    assert_right(first, plan(first))


def test_a_steady_call_makes_no_metadata():
    module, calls = aiter_standin.paged(), []
    make = module.get_mla_metadata_v1
    module.get_mla_metadata_v1 = lambda *args, **named: (calls.append(1), make(*args, **named))
    data = make_input([256, 256])
    plan = plan_for(data, module)
    outputs = [plan(data).data_ptr() for _ in range(3)]
    assert len(calls) == 1
    assert len(set(outputs)) == 1


def changed(value):
    """Another value of the same type."""
    if isinstance(value, torch.Tensor):
        other = value.clone()
        if other.dtype == torch.uint64:
            return torch.zeros_like(other)
        raw = other.view(torch.uint8) if other.dtype.itemsize == 1 else other
        raw.copy_(raw.flip(0) if raw.shape[0] > 1 and not torch.equal(raw, raw.flip(0)) else raw + 1)
        return other
    if isinstance(value, torch.dtype):
        return torch.bfloat16
    return not value if isinstance(value, bool) else value + 1


def perturbed(function, name, values):
    """`function`, with the argument `name` changed; -> name missing there."""

    def call(*args, **named):
        bound = inspect.signature(function).bind(*args, **named)
        if name not in bound.arguments:
            pytest.fail(f"the backend does not pass {name}")
        values.append(bound.arguments[name])
        bound.arguments[name] = changed(bound.arguments[name])
        return function(*bound.args, **bound.kwargs)

    return call


def empty_with_rubbish(*args, _empty=torch.empty, **named):
    """torch.empty whose memory never happens to hold what an earlier plan left there."""
    made = _empty(*args, **named)
    made.untyped_storage().fill_(0xA5)
    return made


DECODE = ["q", "kv_buffer", "o", "qo_indptr", "kv_indptr", "kv_indices", "kv_last_page_lens", "max_seqlen_q"]
DECODE += [
    "page_size",
    "nhead_kv",
    "sm_scale",
    "logit_cap",
    "num_kv_splits",
    *AITER_METADATA,
    "q_scale",
    "kv_scale",
    "intra_batch_mode",
]
METADATA = ["seqlens_qo_indptr", "seqlens_kv_indptr", "kv_last_page_lens", "num_heads_per_head_k", "num_heads_k", "is_causal"]
METADATA += ["work_metadata_ptrs", "work_info_set", "work_indptr", "reduce_indptr", "reduce_final_map", "reduce_partial_map"]
METADATA += ["page_size", "kv_granularity", "max_seqlen_qo", "uni_seqlen_qo", "fast_mode", "max_split_per_batch"]
METADATA += ["intra_batch_mode", "dtype_q", "dtype_kv"]


@pytest.mark.parametrize(
    ("function", "argument"),
    [("mla_decode_fwd", name) for name in DECODE] + [("get_mla_metadata_v1", name) for name in METADATA],
)
def test_every_argument_matters(monkeypatch, function, argument):
    monkeypatch.setattr(torch, "empty", empty_with_rubbish)
    data = make_input([203, 256])
    data = (*data[:3], torch.tensor([0, 203, 459], dtype=torch.int32), data[4])
    expected = plan_for(data, page_size=1)(data).clone()
    module = aiter_standin.paged()
    setattr(module, function, perturbed(getattr(module, function), argument, []))
    interface = interface_of(aiter_standin.paged())._replace(decode=module.mla_decode_fwd, metadata=module.get_mla_metadata_v1)
    plan = AiterPlan(data, PARAMS | {"page_size": 1}, interface)
    plan.out.fill_(float("nan"))
    try:
        out = plan(data)
    except (ValueError, RuntimeError, IndexError, KeyError, TypeError):
        return
    assert not torch.equal(out, expected), f"{function}: {argument} makes no difference"


def test_the_older_generation_is_that_of_the_published_wheel():
    """Its signatures, read from the wheel's sources: AITER itself cannot be imported without ROCm."""
    sys.path.append(str(Path(__file__).resolve().parent.parent / "gfx950"))
    from corpus import aiter_wheel, wheels

    try:
        wheel = aiter_wheel.wheel()
    except wheels.Unreachable as reason:
        pytest.skip(str(reason))
    with zipfile.ZipFile(wheel) as archive:
        sources = [archive.read(path).decode() for path in ("aiter/mla.py", "aiter/ops/attention.py")]
    functions = {node.name: node for text in sources for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    for name, function in vars(aiter_standin.token()).items():
        assert [arg.arg for arg in functions[name].args.args] == list(inspect.signature(function).parameters)


def test_heads_that_aiter_has_no_kernel_for_are_refused():
    data = make_input([200], heads=8)
    with pytest.raises(ValueError, match="multiples of 16 heads, not 8"):
        plan_for(data)
