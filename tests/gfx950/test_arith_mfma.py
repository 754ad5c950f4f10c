"""Matrix operations against matrix products in float64, through the published register layouts."""

from __future__ import annotations

from typing import Any

import matrix_layout as layout
import numpy as np
import pytest
from arith_call import LANES, Mode, op_names, run_with_mask
from matrix_layout import FORMAT_BITS, FORMATS, TYPES, Shape

DENSE = [n for n in op_names() if n.startswith("v_mfma") and "f8f6f4" not in n]
SPARSE = [n for n in op_names() if n.startswith("v_smfmac")]
SCALED = ["v_mfma_scale_f32_16x16x128_f8f6f4", "v_mfma_scale_f32_32x32x64_f8f6f4"]
MIXES = [(a, b) for a in FORMATS for b in FORMATS]


def values(rng: np.random.Generator, size: tuple[int, ...], kind: str) -> np.ndarray:
    if kind == "i8":
        return rng.integers(-128, 128, size).astype(np.int8)
    return rng.standard_normal(size).astype(np.float32).astype(TYPES[kind])


def accumulator(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    size = (shape.blocks, shape.m, shape.m)
    if shape.result is np.int32:
        return rng.integers(-(1 << 31), 1 << 31, size).astype(np.int32)
    return rng.standard_normal(size).astype(shape.result)


def product(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a (blocks, m, k) times b (blocks, m, k: columns first) plus c, in float64 or wrapping integers."""
    if c.dtype == np.int32:
        return (a.astype(np.int64) @ b.astype(np.int64).transpose(0, 2, 1) + c).astype(np.int32)
    return a.astype(np.float64) @ b.astype(np.float64).transpose(0, 2, 1) + c.astype(np.float64)


def call(shape: Shape, a: np.ndarray, b: np.ndarray, c: np.ndarray, mode: Mode | None = None, **modifiers: Any) -> np.ndarray:
    """D of the dense instruction, (blocks, m, m)."""
    places = layout.input_places(shape.m, shape.k, shape.blocks)
    sources = [layout.pack_elements(x, *places) for x in (a, b)] + [layout.pack_result(c, shape)]
    return layout.unpack_result(run_with_mask(shape.name, *sources, mode=mode or Mode(), **modifiers)[0], shape)


def assert_close(got: np.ndarray, want: np.ndarray) -> None:
    """Exact for integers; floats may differ by the rounding of their own sums."""
    if got.dtype == np.int32:
        assert np.array_equal(got, want)
    else:
        tolerance = 4 * np.finfo(got.dtype).eps
        assert np.allclose(got, want, rtol=tolerance, atol=tolerance * np.abs(want).max())


@pytest.mark.parametrize("name", DENSE)
def test_dense_product(name: str) -> None:
    shape = layout.parse(name)
    rng = np.random.default_rng(len(name))
    size = (shape.blocks, shape.m, shape.k)
    a, b, c = values(rng, size, shape.a), values(rng, size, shape.b), accumulator(rng, shape)
    assert_close(call(shape, a, b, c), product(a, b, c))


@pytest.mark.parametrize("name", [n for n in DENSE if layout.parse(n).a in ("f16", "bf16", "fp8", "bf8")])
def test_narrow_products_round_once(name: str) -> None:
    shape = layout.parse(name)
    rng = np.random.default_rng(1)
    size = (shape.blocks, shape.m, shape.k)
    a, b, c = values(rng, size, shape.a), values(rng, size, shape.b), accumulator(rng, shape)
    got = call(shape, a, b, c)
    assert np.array_equal(got, product(a, b, c).astype(np.float32))


def test_each_element_is_where_the_layout_says() -> None:
    """One-hot operands: D[i][j] = 1 exactly where A's row and B's column meet."""
    for name in ("v_mfma_f32_32x32x8_f16", "v_mfma_f32_16x16x32_bf16", "v_mfma_f32_4x4x4_16b_f16", "v_mfma_i32_16x16x64_i8"):
        shape = layout.parse(name)
        rng = np.random.default_rng(2)
        for _ in range(20):
            size = (shape.blocks, shape.m, shape.k)
            a, b = np.zeros(size, TYPES[shape.a]), np.zeros(size, TYPES[shape.b])
            block, i, j, k = (int(rng.integers(n)) for n in (shape.blocks, shape.m, shape.m, shape.k))
            a[block, i, k], b[block, j, k] = 1, 1
            want = np.zeros((shape.blocks, shape.m, shape.m), shape.result)
            want[block, i, j] = 1
            assert np.array_equal(call(shape, a, b, 0 * want), want)


@pytest.mark.parametrize("name", [n for n in DENSE if "b_" in n and "f64" not in n])
def test_cbsz_and_abid_broadcast_blocks_of_a(name: str) -> None:
    shape = layout.parse(name)
    rng = np.random.default_rng(3)
    size = (shape.blocks, shape.m, shape.k)
    a, b, c = values(rng, size, shape.a), values(rng, size, shape.b), accumulator(rng, shape)
    for cbsz in range(1, shape.blocks.bit_length()):
        for abid in range(1 << cbsz):
            source = [block // (1 << cbsz) * (1 << cbsz) + abid for block in range(shape.blocks)]
            assert_close(call(shape, a, b, c, cbsz=cbsz, abid=abid), product(a[source], b, c))


BLGP_LANES = {
    1: lambda lane: lane % 32,
    2: lambda lane: lane % 32 + 32,
    3: lambda lane: (lane + 16) % 64,
    4: lambda lane: lane % 16,
    5: lambda lane: lane % 16 + 16,
    6: lambda lane: lane % 16 + 32,
    7: lambda lane: lane % 16 + 48,
}


@pytest.mark.parametrize("blgp", BLGP_LANES)
def test_blgp_permutes_the_lanes_of_b(blgp: int) -> None:
    rng = np.random.default_rng(blgp)
    for name in (
        "v_mfma_f32_32x32x1_2b_f32",
        "v_mfma_f32_16x16x4_4b_f16",
        "v_mfma_f32_16x16x32_bf16",
        "v_mfma_i32_4x4x4_16b_i8",
    ):
        shape = layout.parse(name)
        size = (shape.blocks, shape.m, shape.k)
        places = layout.input_places(*size[1:], shape.blocks)
        a, b = (layout.pack_elements(values(rng, size, shape.a), *places) for _ in range(2))
        c = layout.pack_result(accumulator(rng, shape), shape)
        moved = b[:, [BLGP_LANES[blgp](lane) for lane in range(LANES)]]
        got, want = run_with_mask(name, a, b, c, blgp=blgp)[0], run_with_mask(name, a, moved, c)[0]
        assert np.array_equal(got, want)


@pytest.mark.parametrize("name", [n for n in DENSE if "f64" in n])
def test_blgp_negates_f64_operands(name: str) -> None:
    shape = layout.parse(name)
    rng = np.random.default_rng(4)
    size = (shape.blocks, shape.m, shape.k)
    a, b, c = values(rng, size, "f64"), values(rng, size, "f64"), accumulator(rng, shape)
    for neg in range(8):
        signs = [-1.0 if neg >> i & 1 else 1.0 for i in range(3)]
        assert_close(call(shape, a, b, c, blgp=neg), product(signs[0] * a, signs[1] * b, signs[2] * c))


def test_denormals() -> None:
    shape = layout.parse("v_mfma_f32_16x16x4_f32")
    a, b = np.full((1, 16, 4), 2.0**-130, np.float32), np.ones((1, 16, 4), np.float32)
    c = np.full((1, 16, 16), 2.0**-128, np.float32)
    assert (call(shape, a, b, c) == np.float32(2.0**-127)).all()
    assert (call(shape, a, b, c, mode=Mode(fp32_denorm=0)) == np.float32(2.0**-128)).all()  # A flushed, C and D kept
    half = layout.parse("v_mfma_f32_16x16x16_f16")
    tiny = np.full((1, 16, 16), 2.0**-24, np.float16)
    got = call(half, tiny, tiny, np.zeros((1, 16, 16), np.float32), mode=Mode(fp16_64_denorm=0, fp32_denorm=0))
    assert (got == np.float32(2.0**-44)).all()


def test_infinities_and_nans() -> None:
    shape = layout.parse("v_mfma_f32_16x16x32_bf16")
    a, b = np.ones((1, 16, 32), TYPES["bf16"]), np.ones((1, 16, 32), TYPES["bf16"])
    a[0, 3, 5], a[0, 4, 6], a[0, 5, 7], a[0, 5, 8] = np.inf, np.nan, np.inf, -np.inf
    b[0, 7, 5] = 0
    got = call(shape, a, b, np.zeros((1, 16, 16), np.float32))[0]
    assert np.isposinf(np.delete(got[3], 7)).all()
    assert np.isnan(got[3, 7])  # inf * 0
    assert np.isnan(got[4]).all()
    assert np.isnan(got[5]).all()
    assert np.isfinite(np.delete(got, [3, 4, 5], axis=0)).all()


# --- F8F6F4 ---------------------------------------------------------------------------------------------------------------


def random_codes(rng: np.random.Generator, size: tuple[int, int], fmt: int) -> np.ndarray:
    """Finite values of a format."""
    codes = rng.integers(0, 1 << FORMAT_BITS[fmt], size).astype(np.uint8)
    array = codes.view(FORMATS[fmt])
    return np.where(np.isfinite(array.astype(np.float32)), codes, 0).astype(np.uint8).view(FORMATS[fmt])


def scale_registers(scale: np.ndarray, byte: int, rng: np.random.Generator) -> np.ndarray:
    """(64,) uint32: the E8M0 code of (row, k block) in lane m * block + row, in the given byte, junk in the others."""
    lanes = scale.T.reshape(-1).astype(np.uint32)  # (m, blocks) -> block-major
    junk = rng.integers(0, 1 << 32, LANES, dtype=np.uint32)
    return junk & ~np.uint32(255 << 8 * byte) | lanes << np.uint32(8 * byte)


@pytest.mark.parametrize(("fmt_a", "fmt_b"), MIXES)
@pytest.mark.parametrize("name", SCALED)
def test_scaled_product_in_every_mix_of_formats(name: str, fmt_a: int, fmt_b: int) -> None:
    shape = layout.parse(name)
    rng = np.random.default_rng(10 * fmt_a + fmt_b)
    m, k, blocks = shape.m, shape.k, shape.k // 32
    a, b = random_codes(rng, (m, k), fmt_a), random_codes(rng, (m, k), fmt_b)
    scale_a, scale_b = (rng.integers(120, 134, (m, blocks)) for _ in range(2))
    byte_a, byte_b = (int(rng.integers(4)) for _ in range(2))
    c = rng.standard_normal((1, m, m)).astype(np.float32)
    registers = [
        layout.pack_elements(x, *layout.f8f6f4_places(m, k, f), bits=FORMAT_BITS[f]) for x, f in ((a, fmt_a), (b, fmt_b))
    ]
    extras = (scale_registers(scale_a, byte_a, rng), scale_registers(scale_b, byte_b, rng))
    formats: dict[str, Any] = {"cbsz": fmt_a, "blgp": fmt_b}
    bytes_chosen: dict[str, Any] = {"op_sel": byte_a & 1 | (byte_b & 1) << 1, "op_sel_hi": byte_a >> 1 | byte_b >> 1 << 1}
    registers.append(layout.pack_result(c, shape))
    d, _ = run_with_mask(name, *registers, extras=extras, **formats, **bytes_chosen)
    wide = [np.repeat(2.0 ** (s - 127.0), 32, axis=1) * x.astype(np.float64) for x, s in ((a, scale_a), (b, scale_b))]
    want = wide[0] @ wide[1].T + c[0].astype(np.float64)
    assert np.array_equal(layout.unpack_result(d, shape)[0], want.astype(np.float32))
    plain, _ = run_with_mask(name.replace("scale_", ""), *registers, **formats)
    unscaled = a.astype(np.float64) @ b.astype(np.float64).T + c[0]
    assert np.array_equal(layout.unpack_result(plain, shape)[0], unscaled.astype(np.float32))


@pytest.mark.parametrize("name", SCALED)
def test_scale_of_255_is_nan_and_0_is_tiny(name: str) -> None:
    shape = layout.parse(name)
    ones = np.full((8, LANES), 0x38383838, np.uint32)  # fp8 1.0
    c = np.zeros((shape.m * shape.m // 64, LANES), np.uint32)
    scales = np.full(LANES, 127, np.uint32)
    scales[3] = 255
    scales[4] = 0
    d, _ = run_with_mask(name, ones, ones, c, extras=(scales, np.full(LANES, 127, np.uint32)), op_sel_hi=0)
    got = layout.unpack_result(d, shape)[0]
    assert np.isnan(got[3]).all()
    assert (got[4] == np.float32(shape.k - 32 + 2.0**-127 * 32)).all()
    assert (np.delete(got, [3, 4], axis=0) == shape.k).all()


# --- sparse ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_product(name: str) -> None:
    shape = layout.parse(name)
    m, k = shape.m, shape.k
    groups = 64 // m
    dense_per_lane = k // groups
    stored = dense_per_lane // 2
    sets = 16 // stored
    for chosen in range(sets):
        rng = np.random.default_rng(chosen)
        a, b = values(rng, (m, k // 2), shape.a), values(rng, (m, k), shape.b)
        c = accumulator(rng, shape)
        index = np.zeros((LANES,), np.uint32)
        dense = np.zeros((m, k), a.dtype)
        for row in range(m):
            for group in range(groups):
                lane, bits = m * group + row, 0
                for pair in range(stored // 2):
                    low, high = sorted(rng.choice(4, 2, replace=False).tolist())
                    bits |= (low | high << 2) << 4 * pair
                    base, source = group * dense_per_lane + 4 * pair, group * stored + 2 * pair
                    dense[row, base + low], dense[row, base + high] = a[row, source], a[row, source + 1]
                index[lane] = bits << (chosen * 2 * stored)
        sources = [layout.pack_elements(a[None], *layout.input_places(m, k // 2, 1))]
        sources.append(layout.pack_elements(b[None], *layout.input_places(m, k, 1)))
        sources.append(layout.pack_result(c, shape))
        d, _ = run_with_mask(name, *sources, extras=(index,), abid=chosen)
        assert_close(layout.unpack_result(d, shape), product(dense[None], b[None], c))


def test_sparse_product_ignores_what_a_leaves_out() -> None:
    shape = layout.parse("v_smfmac_f32_16x16x32_f16")
    a = np.ones((1, 16, 16), np.float16)
    b = np.ones((1, 16, 32), np.float16)
    b[:, :, 2::4] = np.nan  # positions 2 and 3 of every four are never selected
    b[:, :, 3::4] = np.inf
    sources = [
        layout.pack_elements(a, *layout.input_places(16, 16, 1)),
        layout.pack_elements(b, *layout.input_places(16, 32, 1)),
    ]
    index = np.full(LANES, 0b0100_0100, np.uint32)
    d, _ = run_with_mask(shape.name, *sources, np.zeros((4, LANES), np.uint32), extras=(index,))
    assert (layout.unpack_result(d, shape) == 16).all()
