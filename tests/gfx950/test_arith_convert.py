"""Conversions against numpy and ml_dtypes, exhaustively where the domain is small."""

from __future__ import annotations

import arith_samples as samples
import ml_dtypes
import numpy as np
import pytest
from arith_call import LANES, ZERO, Mode, describe, run, run64
from arith_samples import same_floats

FP8 = {"fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2}
F32_ROUNDS = [samples.f32, samples.nearby_f32]


def f32_samples(seed: int) -> np.ndarray:
    """(64,) float32, adversarial or of moderate size."""
    return F32_ROUNDS[seed % 2](np.random.default_rng(seed)).view(np.float32)


def halves(*pairs: np.ndarray) -> np.ndarray:
    """Two arrays of 16-bit items as the halves of uint32."""
    low, high = (p.view(np.uint16).astype(np.uint32) for p in pairs)
    return low | high << np.uint32(16)


def f16(codes: np.ndarray) -> np.ndarray:
    """The f16 in the low halves of uint32."""
    return codes.astype(np.uint16).view(np.float16)


def snorm(x: np.ndarray) -> np.ndarray:
    clean = np.nan_to_num(x.astype(np.float32), nan=0, posinf=1, neginf=-1)
    return np.rint(np.clip(clean, -1, 1) * np.float32(32767)).astype(np.int16)


def unorm(x: np.ndarray) -> np.ndarray:
    clean = np.nan_to_num(x.astype(np.float32), nan=0, posinf=1, neginf=-1)
    return np.rint(np.clip(clean, 0, 1) * np.float32(65535)).astype(np.uint16)


def all_codes(bits: int) -> np.ndarray:
    """Every code of a 16-bit or narrower format, in rows of 64 uint32."""
    codes = np.arange(1 << bits, dtype=np.uint32)
    return np.resize(codes, (max(1, len(codes) // LANES), LANES))


@pytest.mark.parametrize(("name", "dtype"), [("v_cvt_i32_f32", np.int32), ("v_cvt_u32_f32", np.uint32)])
def test_f32_to_integer_truncates_and_saturates(name: str, dtype: type) -> None:
    info = np.iinfo(dtype)
    for seed in range(16):
        with np.errstate(all="ignore"):
            x = f32_samples(seed) * np.float32(1e6 if seed % 4 == 1 else 1)
        want = np.clip(np.trunc(np.nan_to_num(x.astype(np.float64), nan=0, posinf=1e300, neginf=-1e300)), info.min, info.max)
        assert run(name, x).view(dtype).tolist() == want.astype(np.int64).tolist()


@pytest.mark.parametrize(("name", "dtype"), [("v_cvt_i32_f64", np.int32), ("v_cvt_u32_f64", np.uint32)])
def test_f64_to_integer_truncates_and_saturates(name: str, dtype: type) -> None:
    info = np.iinfo(dtype)
    for seed in range(8):
        x = samples.f64(np.random.default_rng(seed)).view(np.float64)
        want = np.clip(np.trunc(np.nan_to_num(x, nan=0, posinf=1e300, neginf=-1e300)), info.min, info.max)
        assert run(name, x).view(dtype).tolist() == want.astype(np.int64).tolist()


@pytest.mark.parametrize(("name", "dtype"), [("v_cvt_i16_f16", np.int16), ("v_cvt_u16_f16", np.uint16)])
def test_every_f16_to_integer(name: str, dtype: type) -> None:
    info = np.iinfo(dtype)
    for codes in all_codes(16):
        x = codes.astype(np.uint16).view(np.float16).astype(np.float64)
        want = np.clip(np.trunc(np.nan_to_num(x, nan=0, posinf=1e9, neginf=-1e9)), info.min, info.max)
        assert run(name, codes).astype(np.uint16).view(dtype).tolist() == want.astype(int).tolist()


def test_floor_and_nearest_to_i32() -> None:
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.4, 2.6, -2.6] * 8, np.float32)
    assert run("v_cvt_flr_i32_f32", x).view(np.int32).tolist() == np.floor(x).astype(int).tolist()
    assert run("v_cvt_rpi_i32_f32", x).view(np.int32).tolist() == np.floor(x + 0.5).astype(int).tolist()


def test_integers_to_floats() -> None:
    for seed in range(8):
        x = samples.u32(np.random.default_rng(seed))
        assert same_floats(run("v_cvt_f32_u32", x), x.astype(np.float32))
        assert same_floats(run("v_cvt_f32_i32", x), x.view(np.int32).astype(np.float32))
        assert same_floats(run64("v_cvt_f64_u32", x), x.astype(np.float64))
        assert same_floats(run64("v_cvt_f64_i32", x), x.view(np.int32).astype(np.float64))
        for byte in range(4):
            want = (x >> np.uint32(8 * byte) & 255).astype(np.float32)
            assert same_floats(run(f"v_cvt_f32_ubyte{byte}", x), want)
    codes = np.arange(LANES, dtype=np.uint32) % 16
    signed = (codes.astype(np.int32) ^ 8) - 8
    assert same_floats(run("v_cvt_off_f32_i4", codes | 0xABCDEF0 & ~np.uint32(15)), (signed / 16).astype(np.float32))


def test_16_bit_integers_to_f16() -> None:
    for codes in all_codes(16):
        x = codes.astype(np.uint16)
        with np.errstate(over="ignore"):
            unsigned, signed = (v.astype(np.float32).astype(np.float16) for v in (x, x.view(np.int16)))
        assert same_floats(run("v_cvt_f16_u16", codes).astype(np.uint16), unsigned)
        assert same_floats(run("v_cvt_f16_i16", codes).astype(np.uint16), signed)


def test_between_float_widths() -> None:
    for seed in range(16):
        x = f32_samples(seed)
        with np.errstate(all="ignore"):
            assert same_floats(run("v_cvt_f16_f32", x).astype(np.uint16), x.astype(np.float16))
            assert same_floats(run64("v_cvt_f64_f32", x), x.astype(np.float64))
            wide = samples.f64(np.random.default_rng(seed)).view(np.float64)
            assert same_floats(run("v_cvt_f32_f64", wide), wide.astype(np.float32))


def test_every_f16_and_bf16_widens_exactly() -> None:
    for codes in all_codes(16):
        assert same_floats(run("v_cvt_f32_f16", codes), codes.astype(np.uint16).view(np.float16).astype(np.float32))
        bf16 = codes.astype(np.uint16).view(ml_dtypes.bfloat16).astype(np.float32)
        assert same_floats(run("v_cvt_f32_bf16", codes), bf16)


@pytest.mark.parametrize("seed", range(16))
def test_packing_two_f32(seed: int) -> None:
    x, y = f32_samples(seed), f32_samples(seed + 100)
    with np.errstate(all="ignore"):
        nearest = run("v_cvt_pk_f16_f32", x, y)
        assert same_floats(nearest.astype(np.uint16), x.astype(np.float16))
        assert same_floats((nearest >> 16).astype(np.uint16), y.astype(np.float16))
        bf16 = run("v_cvt_pk_bf16_f32", x, y)
        for half, want in ((bf16 & 0xFFFF, x), (bf16 >> 16, y)):
            assert same_floats((half << np.uint32(16)), want.astype(ml_dtypes.bfloat16).astype(np.float32))
        assert np.array_equal(run("v_cvt_pk_f16_f32", x, y, mode=Mode(round16_64=ZERO)), nearest)  # rounding is fixed


@pytest.mark.parametrize("seed", range(8))
def test_pkrtz_rounds_towards_zero(seed: int) -> None:
    x, y = f32_samples(seed), f32_samples(seed + 100)
    got = run("v_cvt_pkrtz_f16_f32", x, y)
    for half, source in ((got & 0xFFFF, x), (got >> 16, y)):
        value = half.astype(np.uint16).view(np.float16).astype(np.float64)
        finite = np.isfinite(source)
        assert np.array_equal(np.isnan(value), np.isnan(source))
        assert (np.isinf(value) == np.isinf(source)).all()  # overflow stops at the largest finite number
        assert (np.abs(value[finite]) <= np.abs(source[finite].astype(np.float64))).all()
        with np.errstate(all="ignore"):
            above = (half + 1).astype(np.uint16).view(np.float16).astype(np.float64)
        inside = finite & (np.abs(source) < 65504)
        assert (np.abs(above[inside]) > np.abs(source[inside].astype(np.float64))).all()


@pytest.mark.parametrize("name", FP8)
def test_every_fp8_widens_exactly(name: str) -> None:
    codes = np.arange(256, dtype=np.uint8)
    want = codes.view(FP8[name]).astype(np.float32)
    for start in range(0, 256, LANES):
        chunk = codes[start : start + LANES].astype(np.uint32)
        assert same_floats(run(f"v_cvt_f32_{name}", chunk | 0x55AA00), want[start : start + LANES])
        pair = run(f"v_cvt_pk_f32_{name}", chunk << np.uint32(8) | 0x12340038)
        assert same_floats(pair[1], want[start : start + LANES])
        assert same_floats(pair[0], np.full(LANES, np.uint8(0x38).view(FP8[name]).astype(np.float32)))


def fp8_inputs(seed: int) -> np.ndarray:
    """f32 around the range of fp8, ties included."""
    rng = np.random.default_rng(seed)
    if seed % 3 == 0:
        return samples.f32(rng).view(np.float32)
    if seed % 3 == 1:
        return samples.nearby_f32(rng, 18)
    grid = np.arange(256, dtype=np.uint8).view(FP8["fp8" if seed % 2 else "bf8"]).astype(np.float32)
    grid = np.sort(grid[np.isfinite(grid)])
    ties = (grid[:-1] + grid[1:]) / 2
    limits = np.array([448, 464, 465, 480, 61440, 61441], np.float32)
    return rng.choice(np.concatenate([grid, ties, np.nextafter(ties, np.float32(np.inf)), limits]), LANES)


@pytest.mark.parametrize("op_sel", [0, 8])
@pytest.mark.parametrize("name", FP8)
def test_f32_to_fp8_rounds_to_nearest_even(name: str, op_sel: int) -> None:
    for seed in range(30):
        x, y, old = fp8_inputs(seed), fp8_inputs(seed + 50), samples.u32(np.random.default_rng(seed))
        with np.errstate(all="ignore"):
            want = [v.astype(FP8[name]).astype(np.float32) for v in (x, y)]
        got = run(f"v_cvt_pk_{name}_f32", x, y, dst=old, op_sel=op_sel)
        packed = (got >> 16 if op_sel else got).astype(np.uint16)
        kept = got & 0xFFFF if op_sel else got & 0xFFFF0000
        assert np.array_equal(kept, old & 0xFFFF if op_sel else old & 0xFFFF0000)
        for code, expected in ((packed & 255, want[0]), (packed >> 8, want[1])):
            assert same_floats(code.astype(np.uint8).view(FP8[name]).astype(np.float32).view(np.uint32), expected)


@pytest.mark.parametrize(("name", "dtype", "dropped"), [("fp8", FP8["fp8"], 20), ("bf8", FP8["bf8"], 21)])
def test_stochastic_fp8_adds_the_top_random_bits_and_truncates(name: str, dtype: type, dropped: int) -> None:
    grid = np.sort(np.arange(128, dtype=np.uint8).view(dtype).astype(np.float64))
    grid = grid[np.isfinite(grid)]
    for seed in range(12):
        rng = np.random.default_rng(seed)
        x = np.abs(samples.nearby_f32(rng, 10)).astype(np.float64)
        x = np.minimum(x, grid[-2])
        random = rng.integers(0, 1 << 32, LANES, dtype=np.uint32)
        below = grid[np.searchsorted(grid, x, side="right") - 1]
        above = grid[np.searchsorted(grid, x, side="right")]
        up = np.floor((x - below) / (above - below) + (random >> np.uint32(32 - dropped)) / 2.0**dropped) >= 1
        want = np.where(up, above, below)
        old = np.full(LANES, 0xA5A5A5A5, np.uint32)
        for byte in range(4):
            got = run(f"v_cvt_sr_{name}_f32", -x.astype(np.float32), random, dst=old, op_sel=byte << 2)
            code = (got >> np.uint32(8 * byte) & 255).astype(np.uint8)
            assert np.array_equal(code.view(dtype).astype(np.float64), -want)
            others = ~np.uint32(255 << 8 * byte)
            assert np.array_equal(got & others, old & others)


def test_stochastic_rounding_is_unbiased() -> None:
    rng = np.random.default_rng(0)
    x = np.full(LANES, 1.03, np.float32)  # between 1 and 1.125 of fp8
    draws = [rng.integers(0, 1 << 32, LANES, dtype=np.uint32) for _ in range(64)]
    ups = sum(int((run("v_cvt_sr_fp8_f32", x, random) == 0x39).sum()) for random in draws)
    assert abs(ups / (64 * LANES) - 0.03 / 0.125) < 0.03  # five standard deviations of 4096 draws


@pytest.mark.parametrize(("name", "keep"), [("v_cvt_sr_bf16_f32", 16), ("v_cvt_sr_f16_f32", 13)])
@pytest.mark.parametrize("op_sel", [0, 8])
def test_stochastic_16_bit(name: str, keep: int, op_sel: int) -> None:
    rng = np.random.default_rng(1)
    x = samples.nearby_f32(rng)
    zero, ones = np.zeros(LANES, np.uint32), np.full(LANES, 0xFFFFFFFF, np.uint32)
    old = samples.u32(rng)
    down, up = (run(name, x, r, dst=old, op_sel=op_sel) for r in (zero, ones))
    shift = np.uint32(16 if op_sel else 0)
    other = np.uint32(0xFFFF if op_sel else 0xFFFF0000)
    assert np.array_equal(down & other, old & other)
    low, high = (down >> shift) & 0xFFFF, (up >> shift) & 0xFFFF
    exact = (x.view(np.uint32) & ((1 << keep) - 1)) == 0
    assert np.array_equal(high - low, np.where(exact, 0, 1))
    value = (low << np.uint32(16)).view(np.float32) if "bf16" in name else f16(low).astype(np.float32)
    assert (np.abs(value) <= np.abs(x)).all()


def test_normalised_integers() -> None:
    x = np.array([-np.inf, -2, -1, -0.5, -1e-5, 0, 1e-5, 0.25, 0.5, 0.99999, 1, 2, np.inf, np.nan, 0.1, -0.1] * 4, np.float32)
    assert np.array_equal(run("v_cvt_pknorm_i16_f32", x, x), halves(snorm(x), snorm(x)))
    assert np.array_equal(run("v_cvt_pknorm_u16_f32", x, -x), halves(unorm(x), unorm(-x)))
    half = x.astype(np.float16)
    codes = half.view(np.uint16).astype(np.uint32)
    signed, unsigned = snorm(half), unorm(half)
    assert run("v_cvt_norm_i16_f16", codes).astype(np.uint16).view(np.int16).tolist() == signed.tolist()
    assert run("v_cvt_norm_u16_f16", codes).tolist() == unsigned.tolist()
    assert np.array_equal(run("v_cvt_pknorm_i16_f16", codes << np.uint32(16), codes, op_sel=1), halves(signed, signed))
    assert np.array_equal(run("v_cvt_pknorm_u16_f16", codes, codes), halves(unsigned, unsigned))


def test_f32_into_one_byte() -> None:
    cases = [-5, 0, 0.5, 1.5, 2.5, 254.6, 255.4, 300, np.nan, np.inf, -np.inf, 127.5, 128.5, 3.49, 3.51, 7]
    x = np.array(cases * 4, np.float32)
    clean = np.nan_to_num(x, nan=0, posinf=1e9, neginf=-1e9)
    byte = np.clip(np.rint(clean), 0, 255).astype(np.uint32)
    index, rest = np.arange(LANES, dtype=np.uint32) % 7, np.full(LANES, 0x11223344, np.uint32)
    shift = 8 * (index & np.uint32(3))
    want = rest & ~(np.uint32(255) << shift) | byte << shift
    assert np.array_equal(run("v_cvt_pk_u8_f32", x, index, rest), want)
    assert np.array_equal(run("v_cvt_pkaccum_u8_f32", x, index, dst=rest), want)
    truncated = run("v_cvt_pk_u8_f32", x, np.zeros(LANES, np.uint32), rest * 0, mode=Mode(round32=ZERO))
    assert truncated.tolist() == np.clip(np.trunc(clean), 0, 255).tolist()


def test_pack_b32_f16_moves_bits() -> None:
    rng = np.random.default_rng(0)
    a, b = samples.u32(rng), samples.u32(rng)
    assert np.array_equal(run("v_pack_b32_f16", a, b), a & 0xFFFF | b << np.uint32(16))
    assert np.array_equal(run("v_pack_b32_f16", a, b, op_sel=3), a >> np.uint32(16) | b & 0xFFFF0000)
    assert np.array_equal(run("v_pack_b32_f16", a, b, neg=1, abs=2), (a & 0xFFFF ^ 0x8000) | (b & 0x7FFF) << np.uint32(16))


def test_every_narrow_write_says_that_it_keeps_the_rest() -> None:
    for name in ("v_cvt_pk_fp8_f32", "v_cvt_sr_bf8_f32", "v_cvt_sr_f16_f32", "v_mad_f16", "v_cvt_scalef32_pk_fp4_f32"):
        op = describe(name)
        assert op is not None
        assert op.reads_dst
