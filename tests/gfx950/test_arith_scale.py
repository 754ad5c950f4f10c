"""v_cvt_scalef32_*: narrow formats with block scales, against ml_dtypes on exactly scaled numbers."""

from __future__ import annotations

import arith_samples as samples
import ml_dtypes
import numpy as np
import pytest
from arith_call import LANES, Mode, describe, run, run_with_mask
from arith_samples import same_floats
from matrix_layout import pack_codes

FORMATS = {
    "fp8": (ml_dtypes.float8_e4m3fn, 8),
    "bf8": (ml_dtypes.float8_e5m2, 8),
    "fp6": (ml_dtypes.float6_e2m3fn, 6),
    "bf6": (ml_dtypes.float6_e3m2fn, 6),
    "fp4": (ml_dtypes.float4_e2m1fn, 4),
}
WIDE = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
MANTISSA = {"fp8": 3, "bf8": 2, "fp6": 3, "bf6": 2, "fp4": 1}


def scale_register(rng: np.random.Generator, low: int = 120, high: int = 134) -> tuple[np.ndarray, np.ndarray]:
    """(64,) f32 patterns whose exponents are the scales (mantissa and sign are junk), and the scales as numbers."""
    exponent = rng.integers(low, high, LANES)
    junk = rng.integers(0, 1 << 23, LANES) | rng.integers(0, 2, LANES) << 31
    return (exponent << 23 | junk).astype(np.uint32), 2.0 ** (exponent - 127.0)


def decode(codes: np.ndarray, fmt: str) -> np.ndarray:
    return codes.astype(np.uint8).view(FORMATS[fmt][0]).astype(np.float64)


def grid(fmt: str) -> np.ndarray:
    """Non-negative finite numbers of a format, ascending."""
    values = decode(np.arange(1 << (FORMATS[fmt][1] - 1)), fmt)
    return values[np.isfinite(values)]


def narrow(x: np.ndarray, fmt: str) -> np.ndarray:
    """x rounded to the format, as numbers: nearest even; fp6, bf6 and fp4 stop at their largest number, NaN becomes it."""
    limit = grid(fmt)[-1]
    if fmt in ("fp8", "bf8"):
        with np.errstate(all="ignore"):
            return x.astype(FORMATS[fmt][0]).astype(np.float64)
    clipped = np.where(np.isnan(x), np.copysign(limit, x), np.clip(x, -limit, limit))
    return clipped.astype(FORMATS[fmt][0]).astype(np.float64)


def stochastic(x: np.ndarray, random: np.ndarray, fmt: str) -> np.ndarray:
    """|x| in units of the last place plus the random number's top bits as a fraction, rounded down; numbers within range."""
    g = grid(fmt)
    magnitude = np.minimum(np.abs(x), g[-2])
    below = np.searchsorted(g, magnitude, side="right") - 1
    dropped = 23 - MANTISSA[fmt]
    fraction = (magnitude - g[below]) / (g[below + 1] - g[below])
    up = fraction + (random >> np.uint32(32 - dropped)) / 2.0**dropped >= 1
    return np.copysign(g[below + up], x)


def next_random(x: np.ndarray) -> np.ndarray:
    return (x << np.uint32(1)) ^ np.where(x >> np.uint32(31), 197, 0).astype(np.uint32)


def unpack(words: np.ndarray, bits: int, count: int) -> np.ndarray:
    """(count, 64) codes from (words, 64)."""
    out = np.zeros((count, LANES), np.uint32)
    for lane in range(LANES):
        bitstring = sum(int(w[lane]) << 32 * i for i, w in enumerate(words))
        out[:, lane] = [bitstring >> bits * i & ((1 << bits) - 1) for i in range(count)]
    return out


def wide_values(kind: str, rng: np.random.Generator, count: int) -> np.ndarray:
    """(count, 64) numbers of a wide type around the narrow ranges."""
    x = rng.standard_normal((count, LANES)) * 2.0 ** rng.integers(-6, 6, (count, LANES))
    return x.astype(np.float32).astype(WIDE[kind])


def pack_wide(x: np.ndarray) -> np.ndarray:
    """(count, 64) numbers to registers."""
    if x.dtype.itemsize == 4:
        return x.view(np.uint32)
    halves = x.view(np.uint16).astype(np.uint32)
    if len(halves) == 1:
        return halves | np.uint32(0xDEAD0000)
    return halves[0::2] | halves[1::2] << np.uint32(16)


def unpack_wide(words: np.ndarray, kind: str) -> np.ndarray:
    words = np.atleast_2d(words)
    if kind == "f32":
        return words.view(np.float32)
    halves = np.stack([words & 0xFFFF, words >> np.uint32(16)], axis=1).reshape(-1, LANES)
    return halves.astype(np.uint16).view(WIDE[kind])


# --- widening -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("fmt", ["fp8", "bf8", "fp4"])
def test_widening_a_pair(fmt: str, kind: str) -> None:
    bits = FORMATS[fmt][1]
    for seed in range(8):
        rng = np.random.default_rng(seed)
        word = rng.integers(0, 1 << 32, LANES, dtype=np.uint32)
        scale, factor = scale_register(rng)
        field, positions = 2 * bits, 32 // (2 * bits)
        for position in range(positions):
            got = unpack_wide(run(f"v_cvt_scalef32_pk_{kind}_{fmt}", word, scale, op_sel=position), kind)
            for i in range(2):
                codes = word >> np.uint32(position * field + i * bits) & np.uint32((1 << bits) - 1)
                with np.errstate(all="ignore"):
                    want = (decode(codes, fmt) * factor).astype(WIDE[kind])
                assert np.array_equal(got[i].astype(np.float64), want.astype(np.float64), equal_nan=True)


@pytest.mark.parametrize("fmt", ["fp8", "bf8"])
def test_widening_one_byte(fmt: str) -> None:
    rng = np.random.default_rng(0)
    word, old = (rng.integers(0, 1 << 32, LANES, dtype=np.uint32) for _ in range(2))
    scale, factor = scale_register(rng)
    for byte in range(4):
        want = decode(word >> np.uint32(8 * byte) & 255, fmt) * factor
        assert same_floats(run(f"v_cvt_scalef32_f32_{fmt}", word, scale, op_sel=byte), want.astype(np.float32))
        with np.errstate(all="ignore"):
            half = want.astype(np.float16)
        for high in (0, 8):
            got = run(f"v_cvt_scalef32_f16_{fmt}", word, scale, dst=old, op_sel=byte | high)
            assert same_floats((got >> np.uint32(2 * high)).astype(np.uint16), half)
            kept = np.uint32(0xFFFF if high else 0xFFFF0000)
            assert np.array_equal(got & kept, old & kept)


@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("fmt", ["fp6", "bf6"])
def test_widening_32_values(fmt: str, kind: str) -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 64, (LANES, 32))
    codes[:2] = np.arange(64).reshape(2, 32)  # every code at least once
    scale, factor = scale_register(rng)
    got = unpack_wide(run(f"v_cvt_scalef32_pk32_{kind}_{fmt}", pack_codes(codes, 6), scale), kind)
    want = (decode(codes.T, fmt) * factor).astype(WIDE[kind])
    assert np.array_equal(got.astype(np.float64), want.astype(np.float64))


def test_extreme_scales() -> None:
    one = np.full(LANES, 0x38383838, np.uint32)
    for exponent, want in ((0, 2.0**-127), (254, 2.0**127), (255, np.nan)):
        scale = np.full(LANES, exponent << 23, np.uint32)
        got = run("v_cvt_scalef32_f32_fp8", one, scale).view(np.float32)
        assert np.array_equal(got, np.full(LANES, want, np.float32), equal_nan=True)
    big = np.full(LANES, 200 << 23, np.uint32)
    assert np.isposinf(run("v_cvt_scalef32_pk_f16_fp8", one, big).astype(np.uint16).view(np.float16)).all()
    assert run("v_cvt_scalef32_pk_fp8_f32", np.ones(LANES, np.float32), np.ones(LANES, np.float32), big).tolist() == [0] * LANES


def test_f32_denormals_follow_the_mode() -> None:
    one, tiny_scale = np.full(LANES, 0x38, np.uint32), np.zeros(LANES, np.uint32)  # 2^-127
    assert run("v_cvt_scalef32_f32_fp8", one, tiny_scale).view(np.float32)[0] == 2.0**-127
    assert run("v_cvt_scalef32_f32_fp8", one, tiny_scale, mode=Mode(fp32_denorm=0))[0] == 0
    x = np.full(LANES, 2.0**-127, np.float32)
    assert run("v_cvt_scalef32_sr_fp8_f32", x, tiny_scale, tiny_scale)[0] == 0x38
    assert run("v_cvt_scalef32_sr_fp8_f32", x, tiny_scale, tiny_scale, mode=Mode(fp32_denorm=0))[0] == 0


# --- narrowing ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("fmt", ["fp8", "bf8", "fp4"])
def test_narrowing_a_pair(fmt: str, kind: str) -> None:
    bits = FORMATS[fmt][1]
    field = 2 * bits
    for seed in range(12):
        rng = np.random.default_rng(seed)
        x = wide_values(kind, rng, 2)
        if kind == "f32" and seed % 2:
            x = np.stack([samples.f32(rng).view(np.float32) for _ in range(2)])
        scale, factor = scale_register(rng)
        old = rng.integers(0, 1 << 32, LANES, dtype=np.uint32)
        sources = list(x) if kind == "f32" else [pack_wide(x)]
        with np.errstate(all="ignore"):
            want = narrow(x.astype(np.float64) / factor, fmt)
        for position in range(32 // field):
            op_sel = position << 2 if field == 8 else position << 3
            got = run(f"v_cvt_scalef32_pk_{fmt}_{kind}", *sources, scale, dst=old, op_sel=op_sel)
            mask = np.uint32(((1 << field) - 1) << position * field)
            assert np.array_equal(got & ~mask, old & ~mask)
            codes = unpack(got[None] >> np.uint32(position * field), bits, 2)
            assert np.array_equal(decode(codes, fmt), want, equal_nan=True)


@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("fmt", ["fp8", "bf8"])
def test_stochastic_narrowing_of_one_value(fmt: str, kind: str) -> None:
    rng = np.random.default_rng(1)
    for byte in range(4):
        x = wide_values(kind, rng, 1)
        scale, factor = scale_register(rng)
        x = (np.clip(x.astype(np.float64) / factor, -grid(fmt)[-2], grid(fmt)[-2]) * factor).astype(WIDE[kind])
        random, old = (rng.integers(0, 1 << 32, LANES, dtype=np.uint32) for _ in range(2))
        got = run(f"v_cvt_scalef32_sr_{fmt}_{kind}", pack_wide(x), random, scale, dst=old, op_sel=byte << 2)
        want = stochastic(x[0].astype(np.float64) / factor, random, fmt)
        assert np.array_equal(decode(got >> np.uint32(8 * byte) & 255, fmt), want)
        mask = np.uint32(255 << 8 * byte)
        assert np.array_equal(got & ~mask, old & ~mask)


@pytest.mark.parametrize("kind", WIDE)
def test_stochastic_narrowing_of_an_fp4_pair_advances_the_random_number(kind: str) -> None:
    rng = np.random.default_rng(2)
    x = wide_values(kind, rng, 2)
    scale, factor = scale_register(rng)
    x = (np.clip(x.astype(np.float64) / factor, -4, 4) * factor).astype(WIDE[kind])
    random = rng.integers(0, 1 << 32, LANES, dtype=np.uint32)
    source = x.view(np.uint32) if kind == "f32" else pack_wide(x)
    for byte in range(4):
        got = run(f"v_cvt_scalef32_sr_pk_fp4_{kind}", source, random, scale, op_sel=byte << 2)
        codes = unpack(got[None] >> np.uint32(8 * byte), 4, 2)
        assert np.array_equal(decode(codes[0], "fp4"), stochastic(x[0].astype(np.float64) / factor, random, "fp4"))
        second = stochastic(x[1].astype(np.float64) / factor, next_random(random), "fp4")
        assert np.array_equal(decode(codes[1], "fp4"), second)


@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("fmt", ["fp6", "bf6"])
def test_narrowing_32_values(fmt: str, kind: str) -> None:
    rng = np.random.default_rng(3)
    x = wide_values(kind, rng, 32)
    scale, factor = scale_register(rng)
    if kind == "f32":  # sixteen from each of two sources, interleaved
        got, _ = run_with_mask(f"v_cvt_scalef32_2xpk16_{fmt}_f32", pack_wide(x[0::2]), pack_wide(x[1::2]), scale)
    else:
        got, _ = run_with_mask(f"v_cvt_scalef32_pk32_{fmt}_{kind}", pack_wide(x), scale)
    want = narrow(x.astype(np.float64) / factor, fmt)
    assert np.array_equal(decode(unpack(got, 6, 32), fmt), want)


@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("fmt", ["fp6", "bf6"])
def test_stochastic_narrowing_of_32_values(fmt: str, kind: str) -> None:
    rng = np.random.default_rng(4)
    x = wide_values(kind, rng, 32)
    scale, factor = scale_register(rng)
    limit = grid(fmt)[-2]
    x = (np.clip(x.astype(np.float64) / factor, -limit, limit) * factor).astype(WIDE[kind])
    random = rng.integers(0, 1 << 32, LANES, dtype=np.uint32)
    got, _ = run_with_mask(f"v_cvt_scalef32_sr_pk32_{fmt}_{kind}", pack_wide(x), random, scale)
    codes = unpack(got, 6, 32)
    for i in range(32):
        assert np.array_equal(decode(codes[i], fmt), stochastic(x[i].astype(np.float64) / factor, random, fmt))
        random = next_random(random)


def test_operand_widths_match_the_assembler() -> None:
    widths = {
        "v_cvt_scalef32_pk32_f32_fp6": (32, (6, 1)),
        "v_cvt_scalef32_2xpk16_bf6_f32": (6, (16, 16, 1)),
        "v_cvt_scalef32_sr_pk32_fp6_f32": (6, (32, 1, 1)),
        "v_cvt_scalef32_sr_pk_fp4_f32": (1, (2, 1, 1)),
    }
    for name, want in widths.items():
        op = describe(name)
        assert op is not None
        assert (op.dst_words, op.src_words) == want
