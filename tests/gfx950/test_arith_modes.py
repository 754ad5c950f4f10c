"""Source and result modifiers, rounding directions, denormal modes."""

from __future__ import annotations

from fractions import Fraction

import arith_samples as samples
import numpy as np
import pytest
from arith_call import DOWN, LANES, NEAREST, UP, ZERO, Mode, run, run64

F32 = np.float32


def test_neg_and_abs_apply_to_each_source() -> None:
    rng = np.random.default_rng(0)
    a, b, c = (samples.nearby_f32(rng) for _ in range(3))
    assert np.array_equal(run("v_add_f32", a, b, neg=2).view(F32), a - b)
    assert np.array_equal(run("v_add_f32", a, b, abs=1).view(F32), np.abs(a) + b)
    assert np.array_equal(run("v_mul_f32", a, b, abs=3, neg=1).view(F32), -np.abs(a) * np.abs(b))
    assert np.array_equal(run("v_fma_f32", a, b, c, neg=4).view(F32), run("v_fma_f32", a, b, -c).view(F32))
    assert np.array_equal(run64("v_add_f64", a.astype(float), b.astype(float), neg=3).view(float), -a.astype(float) - b)


def test_neg_flips_nan_and_zero_too() -> None:
    zero = np.zeros(LANES, np.uint32)
    assert run("v_max_f32", zero, zero, neg=3).tolist() == [0x80000000] * LANES
    nan = np.full(LANES, 0x7FC12345, np.uint32)
    assert run("v_max_f32", nan, nan, neg=3).tolist() == [0xFFC12345] * LANES


def test_f16_modifiers() -> None:
    one, two = np.full(LANES, 0x3C00, np.uint32), np.full(LANES, 0xC000, np.uint32)
    assert run("v_add_f16", one, two, abs=2).tolist() == [0x4200] * LANES
    assert run("v_add_f16", one, two, neg=1).tolist() == [0xC200] * LANES


def test_fp16_overflow_mode_stops_at_the_largest_number() -> None:
    mode = Mode(fp16_overflow=True)
    big, inf = np.full(LANES, 0x7BFF, np.uint32), np.full(LANES, 0x7C00, np.uint32)
    assert run("v_add_f16", big, big).tolist() == [0x7C00] * LANES
    assert run("v_add_f16", big, big, mode=mode).tolist() == [0x7BFF] * LANES
    assert run("v_add_f16", big, big, neg=3, mode=mode).tolist() == [0xFBFF] * LANES
    assert run("v_add_f16", inf, big, mode=mode).tolist() == [0x7C00] * LANES  # a true infinity stays
    assert run("v_pk_mul_f16", big * 0x10001, big * 0x10001, mode=mode).tolist() == [0x7BFF7BFF] * LANES
    x, nan = np.full(LANES, -1e9, F32), np.full(LANES, np.nan, F32)
    assert run("v_cvt_f16_f32", x, mode=mode).tolist() == [0xFBFF] * LANES
    assert run("v_cvt_pk_f16_f32", x, nan, mode=mode)[0] & 0xFFFF == 0xFBFF
    assert run("v_cvt_pk_fp8_f32", x, nan, mode=mode).tolist() == [0x7FFE] * LANES
    assert run("v_cvt_pk_fp8_f32", x, nan).tolist() == [0x7FFF] * LANES
    assert run("v_cvt_pk_bf8_f32", x, -x, mode=mode).tolist() == [0x7BFB] * LANES
    assert run("v_cvt_pk_bf8_f32", x, -x).tolist() == [0x7CFC] * LANES
    one = np.full(LANES, 127 << 23, np.uint32)
    assert run("v_cvt_scalef32_pk_fp8_f32", x, -x, one, mode=mode).tolist() == [0x7EFE] * LANES


def test_clamp_limits_to_zero_and_one() -> None:
    x = np.array([-np.inf, -1, -0.0, 0, 0.25, 1, 1.5, np.inf] * 8, F32)
    assert run("v_max_f32", x, x, clamp=1).view(F32).tolist() == np.clip(x, 0, 1).tolist()
    nan = np.full(LANES, np.nan, F32)
    assert run("v_add_f32", nan, nan, clamp=1).tolist() == [0] * LANES
    assert np.isnan(run("v_add_f32", nan, nan, clamp=1, mode=Mode(dx10_clamp=False)).view(F32)).all()
    assert run("v_cvt_pk_bf16_f32", x + 1, -nan, clamp=1)[6] == 0x00003F80
    half = np.full(LANES, 0x4000, np.uint32)
    assert run("v_add_f16", half, half, clamp=1).tolist() == [0x3C00] * LANES
    assert run64("v_add_f64", np.full(LANES, 3.0), np.full(LANES, 4.0), clamp=1).view(float).tolist() == [1.0] * LANES


@pytest.mark.parametrize(("omod", "factor"), [(1, 2), (2, 4), (3, 0.5)])
def test_omod_needs_flushed_denormals_and_no_ieee_mode(omod: int, factor: float) -> None:
    x = samples.nearby_f32(np.random.default_rng(1))
    flush = Mode(fp32_denorm=0, ieee=False)
    assert np.array_equal(run("v_add_f32", x, x, omod=omod, mode=flush).view(F32), 2 * x * F32(factor))
    for mode in (Mode(), Mode(ieee=False), Mode(fp32_denorm=0)):
        assert np.array_equal(run("v_add_f32", x, x, omod=omod, mode=mode).view(F32), 2 * x)


@pytest.mark.parametrize("denorm", range(4))
def test_denormal_mode(denorm: int) -> None:
    tiny, half = np.full(LANES, 2.0**-127, F32), np.full(LANES, 0.5, F32)
    small = np.full(LANES, 2.0**-126, F32)
    mode = Mode(fp32_denorm=denorm)
    assert (run("v_mul_f32", tiny, half + half, mode=mode).view(F32) != 0).all() == (denorm == 3)
    assert (run("v_add_f32", tiny, tiny, mode=mode).view(F32) != 0).all() == bool(denorm & 1)  # result is normal
    assert (run("v_mul_f32", small, half, mode=mode).view(F32) != 0).all() == bool(denorm & 2)
    assert run("v_mul_f32", -small, half, mode=Mode(fp32_denorm=0)).tolist() == [0x80000000] * LANES
    mode16 = Mode(fp16_64_denorm=denorm)
    denormal = np.full(LANES, 0x0200, np.uint32)
    assert (run("v_add_f16", denormal, denormal, mode=mode16) != 0).all() == bool(denorm & 1)
    tiny64 = np.full(LANES, 2.0**-1023)
    assert (run64("v_add_f64", tiny64, tiny64, mode=mode16) != 0).all() == bool(denorm & 1)


def directed(x: Fraction, mode: int) -> np.float32:
    """x rounded to f32 in the given direction."""
    near = np.float32(float(x))
    exact = Fraction(float(near))
    if exact == x or mode == NEAREST:
        return near
    below, above = (near, np.nextafter(near, F32(np.inf))) if exact < x else (np.nextafter(near, F32(-np.inf)), near)
    return {UP: above, DOWN: below, ZERO: below if x > 0 else above}[mode]


@pytest.mark.parametrize("mode", [UP, DOWN, ZERO])
@pytest.mark.parametrize("name", ["v_add_f32", "v_mul_f32", "v_fma_f32"])
def test_rounding_direction_of_f32(name: str, mode: int) -> None:
    rng = np.random.default_rng(mode)
    a, b, c = (samples.nearby_f32(rng) for _ in range(3))
    x, y, z = ([Fraction(float(v)) for v in s] for s in (a, b, c))
    exact = {
        "v_add_f32": [p + q for p, q in zip(x, y, strict=True)],
        "v_mul_f32": [p * q for p, q in zip(x, y, strict=True)],
        "v_fma_f32": [p * q + r for p, q, r in zip(x, y, z, strict=True)],
    }[name]
    s = (a, b, c) if name == "v_fma_f32" else (a, b)
    got = run(name, *s, mode=Mode(round32=mode)).view(F32)
    assert got.tolist() == [directed(e, mode) for e in exact]
    assert np.array_equal(run(name, *s, mode=Mode(round16_64=mode)), run(name, *s))  # the other field does not matter


@pytest.mark.parametrize("mode", [UP, DOWN, ZERO])
def test_rounding_direction_of_f16(mode: int) -> None:
    rng = np.random.default_rng(mode)
    x = samples.nearby_f32(rng)
    got = run("v_cvt_f16_f32", x, mode=Mode(round16_64=mode)).astype(np.uint16).view(np.float16).astype(np.float64)
    error = got - x.astype(np.float64)
    if mode == UP:
        assert (error >= 0).all()
    if mode == DOWN:
        assert (error <= 0).all()
    if mode == ZERO:
        assert (np.abs(got) <= np.abs(x.astype(np.float64))).all()
    assert (error != 0).any()


@pytest.mark.parametrize("mode", [UP, DOWN, ZERO])
def test_rounding_direction_of_fused_f16(mode: int) -> None:
    rng = np.random.default_rng(mode)
    for _ in range(16):
        a, b, c = (rng.integers(0x3000, 0x4800, LANES, dtype=np.uint32) for _ in range(3))
        x, y, z = (v.astype(np.uint16).view(np.float16).astype(np.float64) for v in (a, b, c))
        exact = x * y + z  # fits a double
        got = run("v_fma_f16", a, b, c, dst=a, mode=Mode(round16_64=mode)).astype(np.uint16).view(np.float16).astype(float)
        near = exact.astype(np.float16)
        step = np.where((near < exact) == (mode == UP), 1, 0) if mode == UP else np.where(near > exact, -1, 0)
        want = np.where(near.astype(float) == exact, near, (near.view(np.uint16) + step.astype(np.uint16)).view(np.float16))
        assert got.tolist() == want.astype(float).tolist()
