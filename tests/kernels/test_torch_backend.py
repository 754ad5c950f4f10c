"""The torch backend against the fp64 oracle: every format, ragged and empty sequences, several query tokens, head counts."""

import pytest
import torch
from mla_oracle import BF16_REL_L2, make_input, oracle, worst_rel_l2

import reference
from kernels.layout import shape_of
from kernels.torch_backend import KV_READERS, TorchBackend, e8m0_powers, equal_groups

BACKEND = TorchBackend()
FORMATS = sorted(KV_READERS)


def run(data, kv_format, chunk_tokens=4096):
    return BACKEND.plan(data, {"format": kv_format, "chunk_tokens": chunk_tokens})(data)


@pytest.mark.parametrize("kv_format", FORMATS)
@pytest.mark.parametrize(
    ("lengths", "q_len", "heads"),
    [([1000, 0, 7, 7, 7, 300], 1, 16), ([64, 64, 64], 3, 32), ([700], 2, 128), ([5000, 1], 4, 16), ([31, 33], 1, 5)],
)
def test_agrees_with_the_oracle(kv_format, lengths, q_len, heads):
    data = make_input(lengths, q_len, heads)
    assert worst_rel_l2(run(data, kv_format), oracle(data, kv_format)) < BF16_REL_L2


@pytest.mark.parametrize("kv_format", FORMATS)
@pytest.mark.parametrize("dist", reference.DISTRIBUTIONS)
def test_passes_the_strict_verdict_on_every_distribution(kv_format, dist):
    data = reference.generate_input(3, 2, 400, seed=11, kvmin=1, dist=dist, device="cpu")
    verdict = reference.judge(data, run(data, kv_format))
    assert verdict["strict"]["ok"], verdict["strict"]["message"]


@pytest.mark.parametrize("chunk_tokens", [1, 7, 64, 1 << 20])
def test_chunks_do_not_change_the_result(chunk_tokens):
    data = make_input([65, 0, 20, 20, 3], q_len=2)
    assert worst_rel_l2(run(data, "bf16", chunk_tokens), oracle(data, "bf16")) < BF16_REL_L2


def test_empty_sequences_give_exact_zeros():
    data = make_input([0, 5, 0], q_len=2)
    out = run(data, "bf16")
    assert out[:2].count_nonzero() == 0
    assert out[4:].count_nonzero() == 0
    assert out[2:4].count_nonzero() > 0


def test_nothing_but_empty_sequences():
    data = make_input([0, 0])
    assert run(data, "mxfp4").count_nonzero() == 0


def test_the_scale_row_stride_comes_from_the_tensor():
    plain, padded = (make_input([300, 33], seed=3, scale_padding=padding) for padding in (False, True))
    assert plain[1]["mxfp4"][1].shape != padded[1]["mxfp4"][1].shape
    assert torch.equal(run(plain, "mxfp4"), run(padded, "mxfp4"))


def test_uint8_stands_in_for_the_fp4_dtypes():
    data = make_input([40])
    q, kv_data, *rest = data
    as_bytes = {**kv_data, "mxfp4": tuple(tensor.view(torch.uint8) for tensor in kv_data["mxfp4"])}
    assert torch.equal(run((q, as_bytes, *rest), "mxfp4"), run(data, "mxfp4"))


def test_e8m0_corner_bytes():
    powers = e8m0_powers(torch.device("cpu"))
    assert powers[0] == 2.0**-127
    assert powers[127] == 1
    assert powers[254] == 2.0**127
    assert powers[255].isnan()


def test_a_nan_in_the_cache_reaches_the_rows_that_see_it():
    data = make_input([10, 10])
    data[1]["bf16"][3, 0, 100] = float("nan")
    out = run(data, "bf16")
    assert out[0].isnan().any(dim=-1).all()
    assert not out[1].isnan().any()


def test_equal_lengths_share_a_batch_up_to_the_chunk():
    groups = list(equal_groups([0, 1, 2, 3, 4, 5], [0, 10, 20, 30, 30, 45], chunk_tokens=20))
    assert [(group.count, group.kv_start, group.kv_len) for group in groups] == [(2, 0, 10), (1, 20, 10), (1, 30, 15)]


def test_default_params_are_what_plan_takes():
    data = make_input([8])
    device = torch.device("cpu")
    params = BACKEND.default_params(shape_of(data), device)
    assert BACKEND.available(device) is None
    assert BACKEND.plan(data, params)(data).shape == (1, 16, 512)
