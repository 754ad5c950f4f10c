"""The MXFP4 codec against a scalar implementation of the bit rules of AITER's dynamic_mxfp4_quant."""

import math
import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import mxfp4_decode, mxfp4_encode

GRID = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def bf16_value(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def scalar_scale(block_bits: list[int]) -> int:
    """E8M0 byte of a block of bf16 patterns: the rule on fp32 bits."""
    amax_bits = max(bits & 0x7FFF for bits in block_bits) << 16
    rounded_bits = (amax_bits + 0x200000) & 0xFF800000
    exponent_field = rounded_bits >> 23
    floor_log2 = exponent_field - 127 if exponent_field else -math.inf  # 255 is 2^128 here
    return max(-127, min(127, floor_log2 - 2)) + 127 if exponent_field else 0


def scalar_code(bits: int, scale: int) -> int:
    """E2M1 code of a bf16 pattern: to nearest on GRID, ties to the even code, saturating."""
    magnitude = math.ldexp(abs(bf16_value(bits)), 127 - scale)  # exact in fp64
    nearest = min(range(8), key=lambda code: (abs(GRID[code] - magnitude), code % 2))
    return nearest | (8 if bits & 0x8000 else 0)


def encode_block(block_bits: list[int]) -> tuple[list[int], int]:
    """Codes and scale byte of 32 bf16 patterns, as the vectorised encoder has them in the fourth block of a row."""
    row = torch.zeros(1, 576, dtype=torch.bfloat16)
    row[0, 96:128] = torch.tensor(block_bits, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    packed, scales = mxfp4_encode(row)
    assert packed.shape == (1, 288)
    assert scales.shape == (1, 18)
    codes = [code for byte in packed[0, 48:64].tolist() for code in (byte & 15, byte >> 4)]
    return codes, scales[0, 3].item()


FINITE_BF16 = st.integers(0, 0xFFFF).filter(lambda bits: bits & 0x7F80 != 0x7F80)
NEIGHBOURS = st.integers(0x3C00, 0x4200) | st.integers(0xBC00, 0xC200)  # a few binades around 1, where rounding matters
BLOCKS = st.lists(FINITE_BF16, min_size=32, max_size=32) | st.lists(NEIGHBOURS, min_size=32, max_size=32)


@settings(deadline=None, max_examples=150)
@given(BLOCKS)
def test_encoding_follows_the_scalar_rules(block_bits):
    codes, scale = encode_block(block_bits)
    assert scale == scalar_scale(block_bits)
    assert codes == [scalar_code(bits, scale) for bits in block_bits]


@pytest.mark.parametrize(
    "amax_bits", [0x0000, 0x0001, 0x007F, 0x0080, 0x00FF, 0x0100, 0x0180, 0x3F5F, 0x3F60, 0x7F5F, 0x7F60, 0x7F7F]
)
def test_scales_at_the_edges_of_the_exponent_range(amax_bits):
    block_bits = [amax_bits] + [amax_bits // 2] * 31
    codes, scale = encode_block(block_bits)
    assert scale == scalar_scale(block_bits)
    assert codes == [scalar_code(bits, scale) for bits in block_bits]


@pytest.mark.parametrize("exponent", [1, 60, 127, 200, 254])
def test_every_number_below_the_block_maximum(exponent):
    """All numbers of the four binades below the largest number of a block."""
    top = exponent << 7 | 0x7F
    patterns = list(range(max(0, top - 0x200), top + 1))
    for first in range(0, len(patterns), 31):
        numbers = patterns[first : first + 31]
        block_bits = [*numbers, *[0] * (31 - len(numbers)), top | 0x8000]
        codes, scale = encode_block(block_bits)
        assert codes == [scalar_code(bits, scale) for bits in block_bits]


def test_decoding_every_code_and_scale():
    codes = torch.arange(576) % 16
    packed = (codes[0::2] | codes[1::2] << 4).to(torch.uint8).expand(256, 288)
    scales = torch.arange(256, dtype=torch.uint8)[:, None].expand(256, 18)
    values = mxfp4_decode(packed, scales)
    assert values.dtype == torch.float64
    assert values[255].isnan().all()
    for byte in (0, 1, 126, 127, 128, 254):
        expected = [math.ldexp((-1) ** (c >> 3) * GRID[c & 7], byte - 127) for c in codes.tolist()]
        assert values[byte].tolist() == expected


def test_decoding_takes_the_row_stride_from_the_scale_tensor():
    packed, scales = mxfp4_encode(torch.randn(5, 576, generator=torch.Generator().manual_seed(1)).bfloat16())
    padded = torch.full((256, 24), 0xFF, dtype=torch.uint8)
    padded[:5, :18] = scales
    assert torch.equal(mxfp4_decode(packed, padded[:5]), mxfp4_decode(packed, scales))


def test_decoding_takes_the_native_dtypes_and_bytes_alike():
    packed, scales = mxfp4_encode(torch.randn(5, 576, generator=torch.Generator().manual_seed(1)).bfloat16())
    native = mxfp4_decode(packed.view(torch.float4_e2m1fn_x2), scales.view(torch.float8_e8m0fnu))
    assert torch.equal(native, mxfp4_decode(packed, scales))


def test_representable_numbers_survive_the_round_trip():
    row = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, -6.0] * 72, dtype=torch.bfloat16)[None]
    for power in (2.0**-100, 0.25, 1.0, 2.0**90):
        assert torch.equal(mxfp4_decode(*mxfp4_encode(row * power)), row.double() * power)
