"""f32, f64 and f16 arithmetic: numpy for one-rounding operations, exact fractions for fused ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import arith_samples as samples
import numpy as np
import pytest
from arith_call import LANES, Mode, describe, run, run64
from arith_samples import same_floats

QUIET = {np.float16: 0x200, np.float32: 1 << 22, np.float64: 1 << 51}


def round_fraction(x: Fraction, dtype: type) -> float:
    """Nearest even, as a float of the given type; x is not zero and does not overflow."""
    info = np.finfo(dtype)
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    exponent = exponent if abs(x) >= Fraction(2) ** exponent else exponent - 1
    ulp = Fraction(2) ** (max(exponent, info.minexp) - info.nmant)
    return math.copysign(round(x / ulp) * ulp, x)  # Python rounds fractions half to even


def fma(a: float, b: float, c: float, dtype: type) -> float:
    """a * b + c with one rounding."""
    a, b, c = float(a), float(b), float(c)
    if not all(map(math.isfinite, (a, b, c))):
        with np.errstate(all="ignore"):
            return float(np.float64(a) * np.float64(b) + np.float64(c))
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return 0.0 if c else a * b + c  # exact cancellation gives +0
    info = np.finfo(dtype)
    if abs(exact) >= (2 - Fraction(1, 2 ** (info.nmant + 1))) * Fraction(2) ** (info.maxexp - 1):
        return math.copysign(math.inf, exact)
    return round_fraction(exact, dtype)


def operands(name: str, sample: Callable, seed: int) -> list[np.ndarray]:
    op = describe(name)
    assert op is not None
    count = len(op.src_words) + (op.reads_dst and "fmac" in name)
    rng = np.random.default_rng(seed)
    return [sample(rng) for _ in range(count)]


BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "subrev": lambda a, b: b - a,
    "mul": lambda a, b: a * b,
}
UNARY = {"trunc": np.trunc, "floor": np.floor, "ceil": np.ceil, "rndne": np.rint}


@pytest.mark.parametrize("name", BINARY)
def test_f32_binary(name: str) -> None:
    for seed in range(16):
        a, b = operands(f"v_{name}_f32", samples.f32, seed)
        with np.errstate(all="ignore"):
            want = BINARY[name](a.view(np.float32), b.view(np.float32))
        assert same_floats(run(f"v_{name}_f32", a, b), want)


@pytest.mark.parametrize("name", ["add", "mul"])
def test_f64_binary(name: str) -> None:
    for seed in range(16):
        a, b = operands(f"v_{name}_f64", samples.f64, seed)
        with np.errstate(all="ignore"):
            want = BINARY[name](a.view(np.float64), b.view(np.float64))
        assert same_floats(run64(f"v_{name}_f64", a, b), want)


@pytest.mark.parametrize("name", BINARY)
def test_f16_binary(name: str) -> None:
    for seed in range(32):
        a, b = operands(f"v_{name}_f16", samples.f16, seed)
        x, y = (v.astype(np.uint16).view(np.float16).astype(np.float64) for v in (a, b))
        with np.errstate(all="ignore"):
            want = BINARY[name](x, y).astype(np.float16)  # f64 holds sums and products of f16 exactly
        assert same_floats(run(f"v_{name}_f16", a, b).astype(np.uint16), want)


@pytest.mark.parametrize("name", UNARY)
def test_f32_rounding_to_integers(name: str) -> None:
    for seed in range(16):
        (a,) = operands(f"v_{name}_f32", samples.f32, seed)
        with np.errstate(all="ignore"):
            assert same_floats(run(f"v_{name}_f32", a), UNARY[name](a.view(np.float32)))
            wide = operands(f"v_{name}_f64", samples.f64, seed)[0]
            assert same_floats(run64(f"v_{name}_f64", wide), UNARY[name](wide.view(np.float64)))


@pytest.mark.parametrize("name", UNARY)
def test_every_f16_rounds_to_an_integer(name: str) -> None:
    for codes in np.arange(1 << 16, dtype=np.uint16).reshape(-1, LANES):
        with np.errstate(all="ignore"):
            want = UNARY[name](codes.view(np.float16).astype(np.float32)).astype(np.float16)
        assert same_floats(run(f"v_{name}_f16", codes.astype(np.uint32)).astype(np.uint16), want)


def test_fract_stays_below_one() -> None:
    tiny = np.full(LANES, -1e-10, np.float32)
    assert run("v_fract_f32", tiny).tolist() == [0x3F7FFFFF] * LANES
    assert run64("v_fract_f64", np.full(LANES, -1e-30)).tolist() == [0x3FEFFFFFFFFFFFFF] * LANES
    assert run("v_fract_f16", np.full(LANES, 0x8001, np.uint32)).tolist() == [0x3BFF] * LANES
    x = samples.nearby_f32(np.random.default_rng(0), 8)
    assert np.allclose(run("v_fract_f32", x).view(np.float32), x - np.floor(x), rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", ["v_fma_f32", "v_fmac_f32", "v_fmaak_f32", "v_fmamk_f32"])
def test_f32_fused_multiply_add(name: str) -> None:
    for seed in range(8):
        a, b, c = operands(name, samples.f32 if seed % 2 else samples.nearby_f32, seed)
        a, b, c = (v.view(np.float32) for v in (a, b, c))
        want = np.array([fma(*lane, np.float32) for lane in zip(a, b, c, strict=True)], np.float32)
        got = run(name, a, b, dst=c) if name == "v_fmac_f32" else run(name, a, b, c)
        assert same_floats(got, want)


@pytest.mark.parametrize("name", ["v_fma_f64", "v_fmac_f64"])
def test_f64_fused_multiply_add(name: str) -> None:
    for seed in range(8):
        rng = np.random.default_rng(seed)
        a, b, c = (rng.standard_normal(LANES) * 2.0 ** rng.integers(-30, 30, LANES) for _ in range(3))
        want = np.array([fma(*lane, np.float64) for lane in zip(a, b, c, strict=True)])
        got = run64(name, a, b, dst=c.view(np.uint64)) if name == "v_fmac_f64" else run64(name, a, b, c)
        assert same_floats(got, want)


@pytest.mark.parametrize("name", ["v_fma_f16", "v_fma_legacy_f16"])
def test_f16_fused_multiply_add(name: str) -> None:
    for seed in range(64):
        a, b, c = operands("v_fma_f16", samples.f16, seed)
        x, y, z = (v.astype(np.uint16).view(np.float16) for v in (a, b, c))
        want = np.array([fma(*lane, np.float16) for lane in zip(x, y, z, strict=True)], np.float64)
        with np.errstate(all="ignore"):
            got = run(name, a, b, c, dst=np.zeros(LANES, np.uint32))
            assert same_floats(got.astype(np.uint16), want.astype(np.float16))


@pytest.mark.parametrize("name", ["v_mad_f16", "v_mad_legacy_f16", "v_mac_f16", "v_madak_f16", "v_madmk_f16"])
def test_f16_multiply_then_add_rounds_twice(name: str) -> None:
    for seed in range(16):
        a, b, c = operands("v_fma_f16", samples.f16, seed)
        x, y, z = (v.astype(np.uint16).view(np.float16) for v in (a, b, c))
        with np.errstate(all="ignore"):
            product = (x.astype(np.float64) * y).astype(np.float16)
            want = (product.astype(np.float64) + z).astype(np.float16)
        got = run(name, a, b, dst=c) if name == "v_mac_f16" else run(name, a, b, c, dst=np.zeros(LANES, np.uint32))
        assert same_floats(got.astype(np.uint16), want)


def min_max(a: np.floating, b: np.floating, sign: int, ieee: bool) -> np.floating:
    """The ISA's V_MIN / V_MAX, case by case."""
    dtype = type(a)
    uint = np.dtype(f"u{a.itemsize}").type

    def signalling(x: np.floating) -> bool:
        return bool(np.isnan(x)) and not int(x.view(uint)) & QUIET[dtype]

    for x in (a, b):
        if ieee and signalling(x):
            return uint(int(x.view(uint)) | QUIET[dtype]).view(dtype)
    if np.isnan(a) or np.isnan(b):
        return b if np.isnan(a) else a
    if a == 0 and b == 0:
        negative = a if np.signbit(a) else b
        positive = b if np.signbit(a) else a
        return negative if sign < 0 else positive
    return min(a, b) if sign < 0 else max(a, b)


@pytest.mark.parametrize("ieee", [True, False])
@pytest.mark.parametrize(("name", "sign"), [("min", -1), ("max", 1)])
@pytest.mark.parametrize(("width", "sample"), [("f32", samples.f32), ("f64", samples.f64)])
def test_min_and_max_follow_the_isa_bit_for_bit(name: str, sign: int, width: str, sample: Callable, ieee: bool) -> None:
    dtype = np.float32 if width == "f32" else np.float64
    for seed in range(16):
        a, b = operands(f"v_{name}_{width}", sample, seed)
        want = [min_max(x, y, sign, ieee) for x, y in zip(a.view(dtype), b.view(dtype), strict=True)]
        got = (run if width == "f32" else run64)(f"v_{name}_{width}", a, b, mode=Mode(ieee=ieee))
        assert got.tolist() == np.array(want, dtype).view(got.dtype).tolist()


@pytest.mark.parametrize("name", ["min3", "max3", "med3"])
def test_three_way(name: str) -> None:
    def two_way(x: np.float32, y: np.float32) -> np.floating:
        return min_max(x, y, -1 if name == "min3" else 1, True)

    def med3(x: np.float32, y: np.float32, z: np.float32) -> np.floating:
        if np.isnan(x) or np.isnan(y) or np.isnan(z):
            return min_max(min_max(x, y, -1, True), z, -1, True)
        return sorted((x, y, z), key=lambda v: (v, not np.signbit(v)))[1]

    for seed in range(16):
        s = operands(f"v_{name}_f32", samples.f32, seed)
        lanes = list(zip(*(v.view(np.float32) for v in s), strict=True))
        want = [med3(*lane) if name == "med3" else two_way(two_way(lane[0], lane[1]), lane[2]) for lane in lanes]
        got, expected = run(f"v_{name}_f32", *s).view(np.float32), np.array(want, np.float32)
        assert np.array_equal(got, expected, equal_nan=True)  # the sign of a zero median is not specified


@pytest.mark.parametrize(("name", "pick"), [("minimum3", min), ("maximum3", max)])
def test_minimum3_and_maximum3_propagate_nan(name: str, pick: Callable) -> None:
    for seed in range(16):
        s = operands(f"v_{name}_f32", samples.f32, seed)
        lanes = zip(*(v.view(np.float32) for v in s), strict=True)
        want = [np.nan if any(map(np.isnan, lane)) else pick(lane, key=lambda v: (v, not np.signbit(v))) for lane in lanes]
        assert same_floats(run(f"v_{name}_f32", *s), np.array(want, np.float32))


def test_mul_legacy_makes_zero_of_zero_times_anything() -> None:
    a, b = np.array([0.0, -0.0, np.inf, np.nan] * 16, np.float32), np.repeat(np.array([np.inf, np.nan, 0, 0], np.float32), 16)
    with np.errstate(all="ignore"):
        want = np.where((a == 0) | (b == 0), 0, a * b).astype(np.float32)
    assert same_floats(run("v_mul_legacy_f32", a, b), want)


def test_ldexp_rounds_once() -> None:
    rng = np.random.default_rng(0)
    for _ in range(8):
        x = samples.f32(rng).view(np.float32)
        e = rng.integers(-300, 300, LANES).astype(np.int32)
        with np.errstate(all="ignore"):
            want = np.ldexp(x.astype(np.float64), e).astype(np.float32)
            assert same_floats(run("v_ldexp_f32", x, e), want)
            wide = samples.f64(rng).view(np.float64)
            assert same_floats(run64("v_ldexp_f64", wide, e), np.ldexp(wide, e))
            half = samples.f16(rng)
            want16 = np.ldexp(half.astype(np.uint16).view(np.float16).astype(np.float64), e).astype(np.float16)
            assert same_floats(run("v_ldexp_f16", half, e.astype(np.uint32)).astype(np.uint16), want16)


def test_frexp_takes_numbers_apart() -> None:
    rng = np.random.default_rng(0)
    for _ in range(8):
        x = samples.f32(rng).view(np.float32)
        finite = np.isfinite(x)
        mantissa, exponent = np.frexp(x)
        assert same_floats(run("v_frexp_mant_f32", x), np.where(finite, mantissa, x))
        assert run("v_frexp_exp_i32_f32", x).view(np.int32).tolist() == np.where(finite, exponent, 0).tolist()
        wide = samples.f64(rng).view(np.float64)
        mantissa64, exponent64 = np.frexp(wide)
        assert same_floats(run64("v_frexp_mant_f64", wide), np.where(np.isfinite(wide), mantissa64, wide))
        want = np.where(np.isfinite(wide), exponent64, 0)
        assert run("v_frexp_exp_i32_f64", wide).view(np.int32).tolist() == want.tolist()


def test_every_f16_comes_apart() -> None:
    for codes in np.arange(1 << 16, dtype=np.uint16).reshape(-1, LANES):
        x = codes.view(np.float16)
        finite = np.isfinite(x)
        mantissa, exponent = np.frexp(x.astype(np.float32))
        got_mantissa = run("v_frexp_mant_f16", codes.astype(np.uint32)).astype(np.uint16)
        assert same_floats(got_mantissa, np.where(finite, mantissa.astype(np.float16), x))
        got = run("v_frexp_exp_i16_f16", codes.astype(np.uint32)).astype(np.uint16).view(np.int16)
        assert got.tolist() == np.where(finite, exponent, 0).tolist()


def cube(x: float, y: float, z: float) -> tuple[float, float, float, float]:
    """Face, s, t and twice the major axis, written as the table in the ISA's text."""
    if abs(z) >= abs(x) and abs(z) >= abs(y):
        return (5, -x, -y, 2 * z) if z < 0 else (4, x, -y, 2 * z)
    if abs(y) >= abs(x):
        return (3, x, -z, 2 * y) if y < 0 else (2, x, z, 2 * y)
    return (1, z, -y, 2 * x) if x < 0 else (0, -z, -y, 2 * x)


def test_cube_map_coordinates() -> None:
    rng = np.random.default_rng(0)
    s = [samples.nearby_f32(rng, 1) for _ in range(3)]
    want = np.array([cube(*lane) for lane in zip(*s, strict=True)], np.float32)
    for column, name in enumerate(("v_cubeid_f32", "v_cubesc_f32", "v_cubetc_f32", "v_cubema_f32")):
        assert same_floats(run(name, *s), np.ascontiguousarray(want[:, column]))


def test_trig_preop_gives_segments_of_two_over_pi() -> None:
    digits = 1300
    # pi to 1300 bits by Machin's formula, in integers
    one = 1 << digits

    def arctan_inverse(n: int) -> int:
        total, term, k = 0, one // n, 0
        while term:
            total += (-1) ** k * (term // (2 * k + 1))
            term //= n * n
            k += 1
        return total

    pi = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))
    two_over_pi = 2 * one * one // pi  # fraction of `digits` bits
    for exponent in (0, 1023, 1077, 1078, 1500, 2046):
        x = np.full(LANES, exponent << 52, np.uint64)
        segment = np.arange(LANES, dtype=np.uint32) % 32
        got = run64("v_trig_preop_f64", x, segment).view(np.float64)
        for lane in range(21):
            shift = lane * 53 + max(0, exponent - 1077)
            if shift + 53 > 1201:
                continue
            bits = two_over_pi >> (digits - shift - 53) & ((1 << 53) - 1)
            assert got[lane] == math.ldexp(bits, -53 - shift + (128 if exponent >= 1968 else 0))
