"""NVFP4 pages, byte for byte: the writer, the reader, and numbers against ml_dtypes."""

import itertools

import hypothesis.extra.numpy as hnp
import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from problems.nvfp4_msa import pages
from problems.nvfp4_msa.pages import Heads, PageError

ORDERS = st.sampled_from(pages.V_SCALES)
SIZES = st.tuples(st.integers(1, 3), st.integers(1, 5))  # pages, KV heads


def random_bytes(shape, seed):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8))


def random_heads(count, num_kv_heads, seed=0):
    return Heads(*(random_bytes((count, *s.shape), (seed, i)) for i, s in enumerate(pages.sections(num_kv_heads))))


@given(SIZES, st.integers(0, 2**32 - 1), ORDERS)
def test_what_is_written_is_read(size, seed, order):
    heads = random_heads(*size, seed)
    again = pages.read_pages(pages.write_pages(heads, order), order)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(heads, again, strict=True))


@given(SIZES, st.integers(0, 2**32 - 1), ORDERS)
def test_any_bytes_are_a_page(size, seed, order):
    cache = random_bytes(pages.cache_shape(*size), seed)
    assert torch.equal(pages.write_pages(pages.read_pages(cache, order), order), cache)


@pytest.mark.parametrize("order", pages.V_SCALES)
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_every_byte_lies_where_the_format_says(kv_heads, order):
    """The format's own words, in a loop: it shares nothing with the writer."""
    heads = random_heads(2, kv_heads)
    flat = pages.write_pages(heads, order).reshape(2, -1)
    assert flat.shape[1] == kv_heads * 18432
    for head, token in itertools.product(range(kv_heads), (0, 1, 2, 3, 4, 63, 64, 126, 127)):
        row = head * 128 + token
        k_data, v_data = row * 64, kv_heads * 9216 + row * 64
        assert torch.equal(flat[:, k_data : k_data + 64], heads.k_data[:, head, token])
        assert torch.equal(flat[:, v_data : v_data + 64], heads.v_data[:, head, token])
        for group in range(8):
            assert torch.equal(flat[:, kv_heads * 8192 + row * 8 + group], heads.k_scales[:, head, token, group])
            within = token // 4 * 32 + 4 * group + token % 4 if order == "swizzled" else token * 8 + group
            place = kv_heads * 17408 + head * 1024 + within
            assert torch.equal(flat[:, place], heads.v_scales[:, head, token, group])
            assert pages.v_scale_offset(token, group, order) == within


def test_swizzling_is_no_involution():
    """So a reader that swizzles where it should unswizzle is noticed."""
    scales = torch.arange(1024).view(128, 8)
    assert torch.equal(pages.unswizzle(pages.swizzle(scales)), scales)
    assert torch.equal(pages.swizzle(pages.unswizzle(scales)), scales)
    assert not torch.equal(pages.swizzle(pages.swizzle(scales)), scales)


FLOATS = hnp.arrays(np.float32, 128, elements=st.floats(-8, 8, width=32))


@given(FLOATS)
def test_codes_are_those_of_ml_dtypes(x):
    wanted = x.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    np.testing.assert_array_equal(pages.e2m1_codes(torch.from_numpy(x)).numpy(), wanted)


def test_codes_at_every_tie_and_next_to_it():
    middles = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], dtype=np.float32)
    below, above = np.nextafter(middles, np.float32(0)), np.nextafter(middles, np.float32(9))
    x = np.concatenate([middles, below, above, [0.0, 6.0, 7.0, 1e30]])
    x = np.concatenate([x, -x]).astype(np.float32)
    wanted = np.clip(x, -6, 6).astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    np.testing.assert_array_equal(pages.e2m1_codes(torch.from_numpy(x)).numpy(), wanted)


def test_every_pair_of_a_code_and_a_scale_decodes_exactly():
    data = torch.arange(256, dtype=torch.uint8).repeat(64 * 127 // 256 + 1)[: 64 * 127].view(127, 64)
    scales = torch.arange(127, dtype=torch.uint8)[:, None].expand(127, 8)
    codes = np.stack([data.numpy() & 15, data.numpy() >> 4], axis=-1).reshape(127, 128).astype(np.uint8)
    wanted = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    wanted *= np.repeat(scales.numpy().copy().view(ml_dtypes.float8_e4m3fn).astype(np.float64), 16, axis=1) * 0.5
    decoded = pages.decode(data, scales, 0.5)
    np.testing.assert_array_equal(decoded.numpy(), wanted)
    # ... and in f16 and bf16, which is what kernels build on.
    assert torch.equal((2 * decoded).half().double(), 2 * decoded)
    assert torch.equal((2 * decoded).bfloat16().double(), 2 * decoded)


@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3), st.booleans())
def test_a_number_is_off_by_half_a_step_at_most(seed, size, outliers):
    x = torch.randn(4, 128, generator=torch.Generator().manual_seed(seed)) * size
    if outliers:
        x[:, ::16] *= 30
    scale = pages.global_scale(x)
    data, scales = pages.encode(x, scale)
    wanted = (x.view(4, 8, 16).abs().amax(-1) / (6 * scale)).clamp(max=448).to(torch.float8_e4m3fn)
    assert torch.equal(scales, wanted.view(torch.uint8))
    step = (wanted.double() * scale.double())[..., None]
    error = (pages.decode(data, scales, scale.double()).view(4, 8, 16) - x.view(4, 8, 16)).abs()
    # Steps are 0.5 up to 2, 1 up to 4, 2 up to 6; a rounded scale lets 6 * scale end 1/16 below the largest element.
    assert bool((error <= torch.where(x.view(4, 8, 16).abs() > 4 * step, 1.0, 0.5) * step * 1.001 + 1e-30).all())


def test_blocks_of_zeros_and_of_vanishing_numbers():
    x = torch.zeros(1, 128)
    x[0, 0], x[0, 16] = 6 * 448.0, 1e-6
    data, scales = pages.encode(x, pages.global_scale(x))
    assert scales[0].tolist() == [0x7E, *[0] * 7]
    assert not data[0, 8:].any()
    assert pages.global_scale(torch.zeros(4)) == 1


@pytest.mark.parametrize(
    ("cache", "words"),
    [
        (torch.zeros(2, 2, 128, 64, dtype=torch.uint8), r"\[2, 128, 64\] bytes.*18432 bytes for a KV head"),
        (torch.zeros(2, 3, 128, 72, dtype=torch.uint8), "2 \\* num_kv_heads"),
        (torch.zeros(2, 0, 128, 72, dtype=torch.uint8), "2 \\* num_kv_heads"),
        (torch.zeros(2, 2, 128, 72, dtype=torch.int8), "torch.int8"),
        (torch.zeros(2, 2 * 128 * 72, dtype=torch.uint8), "2 dimensions"),
    ],
)
def test_what_is_no_cache_is_named(cache, words):
    with pytest.raises(PageError, match=words):
        pages.read_pages(cache)


def test_what_fills_no_page_is_named():
    heads = random_heads(1, 2)
    with pytest.raises(PageError, match=r"v_data is .*63.*takes torch.uint8.*64"):
        pages.write_pages(heads._replace(v_data=heads.v_data[..., :63]))
    with pytest.raises(PageError, match=r"'Linear' is unknown; use swizzled or linear"):
        pages.write_pages(heads, "Linear")
