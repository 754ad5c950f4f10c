"""Byte layouts of the caches: where every byte lies, what quantising keeps, and that nothing unwritten is a number."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.modules import ModuleSpace

CACHE = ModuleSpace(Path(__file__).resolve().parents[2] / "problems" / "flash_mla").load("cache")
CPU = torch.device("cpu")
DIMS = {"v32": 576, "model1": 512, "bf16": 576}


def written(layout, page_size, token, row):
    cache = CACHE.new_cache(layout, 3, page_size, DIMS[layout], 1, CPU)
    CACHE.write_rows(cache, layout, torch.tensor([token]), row[None, None].bfloat16())
    return cache


@pytest.mark.parametrize("layout", DIMS)
@given(seed=st.integers(0, 2**32), exponent=st.integers(-20, 12), page_size=st.sampled_from([1, 2, 48, 64]), data=st.data())
@settings(max_examples=20, deadline=None)
def test_a_row_comes_back_within_the_precision_of_its_format(layout, seed, exponent, page_size, data):
    token = data.draw(st.integers(0, 3 * page_size - 1))
    row = (torch.randn(DIMS[layout], generator=torch.Generator().manual_seed(seed)) * 2.0**exponent).bfloat16()
    cache = written(layout, page_size, token, row)
    back = CACHE.read_rows(cache, layout, torch.tensor([token]))[0, 0]
    if layout == "bf16":
        assert torch.equal(back, row.double())
        return
    nope, run = CACHE.FP8_LAYOUTS[layout].nope, CACHE.FP8_LAYOUTS[layout].run
    assert torch.equal(back[nope:], row[nope:].double())
    error = (back[:nope] - row[:nope].double()).abs().view(-1, run)
    scales = CACHE.block_scales(row[None, :nope], run)[0].double()[:, None]
    # e4m3 has three mantissa bits (half a unit is 2^-4 of the value) and steps of 2^-9 below 2^-6.
    assert (error <= (row[:nope].double().abs().view(-1, run) * 2**-4).maximum(scales * 2**-10)).all()


@given(amax=st.floats(0, 1e6, width=32))
@settings(deadline=None)
def test_scales_are_the_power_of_two_at_or_above_amax_over_448(amax):
    scale = float(CACHE.block_scales(torch.tensor([[amax] * 64]), 64))
    assert scale == 2.0 ** round(torch.tensor(scale).log2().item())
    assert scale >= max(amax / 448, 1e-4) * (1 - 1e-6)
    assert scale / 2 < max(amax / 448, 1e-4) * (1 + 1e-6)


def test_v32_bytes():
    row = torch.cat((torch.full((128,), 448.0), torch.full((128,), 1.0), torch.zeros(256), torch.full((64,), -2.0)))
    cache = written("v32", 4, 5, row)
    assert tuple(cache.shape) == (3, 4, 1, 656)
    assert cache.stride(0) == 5 * 656
    token = cache.view(torch.uint8)[1, 1, 0]
    assert token[0] == 0x7E  # 448, the largest e4m3fn
    assert token[512:528].view(torch.float32).tolist() == [1.0, 2.0**-8, 2.0**-13, 2.0**-13]
    assert token[528:].view(torch.bfloat16).tolist() == [-2.0] * 64


@pytest.mark.parametrize("page_size", [1, 2, 64, 256])
def test_model1_bytes(page_size):
    row = torch.cat((torch.full((64,), 448.0), torch.zeros(384), torch.full((64,), 3.0)))
    cache = written("model1", page_size, page_size + page_size // 2, row)
    assert tuple(cache.shape) == (3, page_size, 1, 584)
    assert cache.stride(0) % 576 == 0
    assert 0 <= cache.stride(0) - page_size * 584 < 576
    page = torch.empty(0, dtype=torch.uint8).set_(cache.untyped_storage())[cache.stride(0) : 2 * cache.stride(0)]
    slot = page_size // 2
    assert page[slot * 576] == 0x7E
    assert page[slot * 576 + 448 : slot * 576 + 576].view(torch.bfloat16).tolist() == [3.0] * 64
    scales = page[page_size * 576 + slot * 8 :][:8].tolist()
    assert scales == [127, *[127 - 13] * 6, 0xFF]


@pytest.mark.parametrize("layout", DIMS)
def test_what_is_not_written_is_nan(layout):
    cache = written(layout, 4, 5, torch.ones(DIMS[layout]))
    others = torch.tensor([token for token in range(12) if token != 5])
    assert CACHE.read_rows(cache, layout, others).isnan().all()
    assert not CACHE.read_rows(cache, layout, torch.tensor([5])).isnan().any()
