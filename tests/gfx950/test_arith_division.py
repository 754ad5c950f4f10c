"""Division by the sequence that LLVM emits (scale, reciprocal, Newton steps, fmas, fixup) must round correctly."""

from __future__ import annotations

import arith_samples as samples
import numpy as np
import pytest
from arith_call import LANES, Mode, run, run64, run_with_mask
from arith_samples import same_floats


def divide_f32(n: np.ndarray, d: np.ndarray) -> np.ndarray:
    """n / d, f32, step by step as AMDGPU's lowering of a precise fdiv."""
    scaled_d = run("v_div_scale_f32", d, d, n)
    scaled_n, flag = run_with_mask("v_div_scale_f32", n, d, n)
    x = run("v_rcp_f32", scaled_d)
    e = run("v_fma_f32", scaled_d, x, np.float32(1), neg=1)
    x = run("v_fma_f32", e, x, x)
    q = run("v_mul_f32", scaled_n[0], x)
    r = run("v_fma_f32", scaled_d, q, scaled_n[0], neg=1)
    q = run("v_fma_f32", r, x, q)
    r = run("v_fma_f32", scaled_d, q, scaled_n[0], neg=1)
    q = run("v_div_fmas_f32", r, x, q, mask=flag)
    return run("v_div_fixup_f32", q, d, n)


def divide_f64(n: np.ndarray, d: np.ndarray) -> np.ndarray:
    scaled_d = run64("v_div_scale_f64", d, d, n)
    pair, flag = run_with_mask("v_div_scale_f64", n, d, n)
    scaled_n = pair[0] | pair[1].astype(np.uint64) << np.uint64(32)
    one = np.ones(LANES)
    x = run64("v_rcp_f64", scaled_d)
    for _ in range(2):
        e = run64("v_fma_f64", scaled_d, x, one, neg=1)
        x = run64("v_fma_f64", x, e, x)
    q = run64("v_mul_f64", scaled_n, x)
    r = run64("v_fma_f64", scaled_d, q, scaled_n, neg=1)
    q = run64("v_div_fmas_f64", r, x, q, mask=flag)
    return run64("v_div_fixup_f64", q, d, n)


def spread_f32(rng: np.random.Generator) -> np.ndarray:
    """All exponents, denormals included."""
    return rng.integers(0, 0x7F800000, LANES, dtype=np.uint32).view(np.float32) * rng.choice([-1, 1], LANES).astype(np.float32)


def spread_f64(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 0x7FF << 52, LANES, dtype=np.uint64).view(np.float64) * rng.choice([-1.0, 1.0], LANES)


@pytest.mark.parametrize("seed", range(40))
def test_f32_division_is_correctly_rounded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = [spread_f32, samples.nearby_f32, lambda r: samples.f32(r).view(np.float32)]
    n, d = kinds[seed % 3](rng), kinds[seed // 3 % 3](rng)
    with np.errstate(all="ignore"):
        assert same_floats(divide_f32(n, d), n / d)


@pytest.mark.parametrize("seed", range(40))
def test_f64_division_is_correctly_rounded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = [spread_f64, lambda r: r.standard_normal(LANES), lambda r: samples.f64(r).view(np.float64)]
    n, d = kinds[seed % 3](rng), kinds[seed // 3 % 3](rng)
    with np.errstate(all="ignore"):
        assert same_floats(divide_f64(n, d), n / d)


def test_the_largest_over_the_smallest_and_back() -> None:
    big, small = np.full(LANES, 3.0e38, np.float32), np.full(LANES, 2.0e-45, np.float32)
    one = np.ones(LANES, np.float32)
    with np.errstate(all="ignore"):
        for n, d in ((big, small), (small, big), (one, big), (one, small), (big, big), (small, small), (small, one)):
            assert same_floats(divide_f32(n, d), n / d)


def test_fixup_puts_in_the_special_cases() -> None:
    inf, nan = np.float32(np.inf), np.float32(np.nan)
    cases = [  # denominator, numerator, quotient
        (0.0, 0.0, nan), (inf, inf, nan), (nan, 1.0, nan), (1.0, nan, nan), (0.0, 1.0, inf),
        (-0.0, 1.0, -inf), (2.0, -inf, -inf), (inf, 2.0, 0.0), (-inf, 2.0, -0.0), (3.0, -0.0, -0.0),
    ]  # fmt: skip
    for d, n, want in cases:
        for junk in (0x12345678, 0xFFFFFFFF):
            s = (np.full(LANES, junk, np.uint32), np.full(LANES, d, np.float32), np.full(LANES, n, np.float32))
            assert same_floats(run("v_div_fixup_f32", *s), np.full(LANES, want, np.float32)), (d, n)
        half = [np.full(LANES, np.float16(v).view(np.uint16), np.uint32) for v in (1.5, d, n)]
        for name in ("v_div_fixup_f16", "v_div_fixup_legacy_f16"):
            got = run(name, *half, dst=np.zeros(LANES, np.uint32)).astype(np.uint16)
            assert same_floats(got, np.full(LANES, want, np.float16)), (d, n)


def test_fixup_gives_the_quotient_its_sign() -> None:
    q = np.full(LANES, -1.5, np.float32)
    for d, n in ((2.0, 3.0), (-2.0, 3.0), (2.0, -3.0), (-2.0, -3.0)):
        got = run("v_div_fixup_f32", q, np.full(LANES, d, np.float32), np.full(LANES, n, np.float32)).view(np.float32)
        assert (got == np.copysign(1.5, d * n)).all()


def test_zero_denominator_scales_to_nan_and_flags_nothing() -> None:
    zero, one = np.zeros(LANES, np.float32), np.ones(LANES, np.float32)
    result, flag = run_with_mask("v_div_scale_f32", one, zero, one, mode=Mode())
    assert np.isnan(result[0].view(np.float32)).all()
    assert flag == 0
