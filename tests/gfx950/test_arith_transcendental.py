"""exp2, log2, reciprocals, roots, sine and cosine: within half an ulp (and a hair) of the exact value."""

from __future__ import annotations

from collections.abc import Callable

import arith_samples as samples
import numpy as np
import pytest
from arith_call import LANES, Mode, run, run64

LongDouble = np.longdouble
TWO_PI = LongDouble(2) * LongDouble("3.14159265358979323846264338327950288")

EXACT: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp2,
    "log": np.log2,
    "rcp": lambda x: 1 / x,
    "rsq": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt,
    "sin": lambda x: np.sin((x - np.rint(x)) * TWO_PI),
    "cos": lambda x: np.cos((x - np.rint(x)) * TWO_PI),
}
FLUSHES = {"exp", "log", "rcp", "rsq", "sqrt"}  # f32 forms without denormals
ALIASES = {"v_exp_legacy_f32": "exp", "v_log_legacy_f32": "log", "v_rcp_iflag_f32": "rcp"}


def exact(name: str, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return EXACT[name](x.astype(LongDouble))


def flush(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < np.finfo(np.float32).smallest_normal, np.copysign(0, x), x).astype(np.float32)


def close(got: np.ndarray, want: np.ndarray, slack: float) -> bool:
    """`got` within half a unit in the last place plus `slack` units of `want`; infinities and NaNs the same."""
    info = np.finfo(got.dtype)
    special = ~np.isfinite(got)
    if not np.array_equal(np.isnan(got), np.isnan(want)):
        return False
    limit = LongDouble(info.max) * (1 + LongDouble(info.eps) / 2)
    if not np.array_equal(got[special & ~np.isnan(got)] > 0, want[special & ~np.isnan(got)] > limit / 2):
        return False
    x, y = got[~special].astype(LongDouble), want[~special]
    ulp = np.ldexp(LongDouble(1), np.maximum(np.frexp(np.where(y == 0, 1, y))[1] - 1, info.minexp) - info.nmant)
    return bool((np.abs(x - y) <= (0.5 + slack) * ulp).all())


def domain(name: str, rng: np.random.Generator) -> np.ndarray:
    """(64,) f32: arguments spread over where the function does something."""
    kind = int(rng.integers(3))
    if kind == 0:
        return samples.f32(rng).view(np.float32)
    if name in ("exp", "sin", "cos"):
        return (rng.standard_normal(LANES) * (40 if name == "exp" else 30)).astype(np.float32)
    return np.ldexp(rng.random(LANES) + 0.5, rng.integers(-126, 127, LANES)).astype(np.float32)


@pytest.mark.parametrize("name", [*(f"v_{n}_f32" for n in EXACT), *ALIASES])
def test_f32(name: str) -> None:
    function = ALIASES.get(name, name[2:-4])
    rng = np.random.default_rng(len(name))
    for _ in range(60):
        x = domain(function, rng)
        want = exact(function, flush(x) if function in FLUSHES else x)
        if function in ("sin", "cos"):
            outside = (np.abs(x) > 256) & np.isfinite(x)  # defined to give sin 0 and cos 0
            want = np.where(outside, LongDouble(function == "cos"), want)
        if function in ("exp", "rcp", "rsq"):
            want = np.where(np.abs(want) < np.finfo(np.float32).smallest_normal, 0, want)
        with np.errstate(all="ignore"):
            slack = 1e-3 if function in ("sin", "cos") else 1e-6
            got = run(name, x).view(np.float32)
            if function in ("sin", "cos"):
                near_zero = np.abs(want) < 1e-12
                assert (np.abs(got[near_zero]) < 1e-12).all()
                got, want = got[~near_zero], want[~near_zero]
            assert close(got, want, slack)


@pytest.mark.parametrize("name", EXACT)
def test_every_f16(name: str) -> None:
    for codes in np.arange(1 << 16, dtype=np.uint16).reshape(-1, LANES):
        x = codes.view(np.float16)
        want = exact(name, x)
        if name in ("sin", "cos"):
            outside = (np.abs(x.astype(np.float32)) > 256) & np.isfinite(x)
            want = np.where(outside, LongDouble(name == "cos"), want)
        got = run(f"v_{name}_f16", codes.astype(np.uint32)).astype(np.uint16).view(np.float16)
        assert close(got, want, 1e-4), codes


@pytest.mark.parametrize("name", ["rcp", "rsq", "sqrt"])
def test_f64(name: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        x = samples.f64(rng).view(np.float64)
        assert close(run64(f"v_{name}_f64", x).view(np.float64), exact(name, x), 0.51)


def test_signs_and_special_values() -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0**-140] * 8, np.float32)
    inf = np.inf
    expected = {
        "v_rcp_f32": [inf, -inf, 0.0, -0.0, np.nan, 1, -1, inf],
        "v_rsq_f32": [inf, -inf, 0.0, np.nan, np.nan, 1, np.nan, inf],
        "v_sqrt_f32": [0.0, -0.0, inf, np.nan, np.nan, 1, np.nan, 0.0],
        "v_log_f32": [-inf, -inf, inf, np.nan, np.nan, 0, np.nan, -inf],
        "v_exp_f32": [1, 1, inf, 0, np.nan, 2, 0.5, 1],
        "v_sin_f32": [0.0, -0.0, np.nan, np.nan, np.nan, 0, 0, 2.0**-140 * float(TWO_PI)],
        "v_cos_f32": [1, 1, np.nan, np.nan, np.nan, 1, 1, 1],
    }
    for name, values in expected.items():
        got, want = run(name, x).view(np.float32)[:8], np.array(values, np.float32)
        assert np.array_equal(got, want, equal_nan=True), name
        zeros = (want == 0) & (name != "v_sin_f32")
        assert np.array_equal(np.signbit(got[zeros]), np.signbit(want[zeros])), name


def test_exact_quarters_of_a_turn() -> None:
    x = np.array([0, 0.25, 0.5, 0.75, 1, -0.25, 255.75, -0.75] * 8, np.float32)
    assert run("v_sin_f32", x).view(np.float32)[:8].tolist() == [0, 1, 0, -1, 0, -1, -1, 1]
    assert run("v_cos_f32", x).view(np.float32)[:8].tolist() == [1, 0, -1, 0, 1, 0, 0, 0]


def test_denormals_do_not_survive_even_when_the_mode_keeps_them() -> None:
    assert run("v_exp_f32", np.full(LANES, -127, np.float32), mode=Mode(fp32_denorm=3)).tolist() == [0] * LANES
    assert run("v_exp_f32", np.full(LANES, -126, np.float32)).tolist() == [0x00800000] * LANES
    big = np.full(LANES, 2.0**127, np.float32)
    assert run("v_rcp_f32", big).tolist() == [0] * LANES
    assert run("v_exp_f16", np.full(LANES, 0xCB80, np.uint32)).tolist() == [0x0200] * LANES  # 2^-15: f16 keeps them
