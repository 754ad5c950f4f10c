"""v_cmp* and v_cmpx* against Python's comparisons, and the class tests against numpy's classification."""

from __future__ import annotations

import operator
from collections.abc import Callable

import arith_samples as samples
import numpy as np
import pytest
from arith_call import LANES, Mode, compare, op_names

ORDERED = {
    "f": lambda a, b: False,
    "lt": operator.lt,
    "eq": operator.eq,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
INTEGER = ORDERED | {"ne": operator.ne, "t": lambda a, b: True}
FLOAT = ORDERED | {
    "lg": lambda a, b: a < b or a > b,
    "o": lambda a, b: not (np.isnan(a) or np.isnan(b)),
    "u": lambda a, b: bool(np.isnan(a) or np.isnan(b)),
    "nge": lambda a, b: not a >= b,
    "nlg": lambda a, b: not (a < b or a > b),
    "ngt": lambda a, b: not a > b,
    "nle": lambda a, b: not a <= b,
    "neq": operator.ne,
    "nlt": lambda a, b: not a < b,
    "tru": lambda a, b: True,
}
INTEGER_TYPES = {"i16": np.int16, "u16": np.uint16, "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64}
FLOAT_TYPES = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
SAMPLES: dict[str, Callable] = {"f16": samples.f16, "f32": samples.f32, "f64": samples.f64}


def typed(registers: np.ndarray, dtype: type) -> np.ndarray:
    """The low part of each lane, as numbers."""
    size = np.dtype(dtype).itemsize
    return registers.astype(f"u{size}").view(dtype)


@pytest.mark.parametrize("prefix", ["v_cmp_", "v_cmpx_"])
@pytest.mark.parametrize("kind", INTEGER_TYPES)
def test_integers(prefix: str, kind: str) -> None:
    sample = samples.u64 if "64" in kind else samples.u32
    for relation, formula in INTEGER.items():
        for seed in range(4):
            rng = np.random.default_rng(seed)
            a = sample(rng)
            b = np.where(rng.random(LANES) < 0.3, a, sample(rng))
            x, y = typed(a, INTEGER_TYPES[kind]), typed(b, INTEGER_TYPES[kind])
            want = [bool(formula(p, q)) for p, q in zip(x, y, strict=True)]
            assert compare(f"{prefix}{relation}_{kind}", a, b).tolist() == want, relation


@pytest.mark.parametrize("prefix", ["v_cmp_", "v_cmpx_"])
@pytest.mark.parametrize("kind", FLOAT_TYPES)
def test_floats(prefix: str, kind: str) -> None:
    for relation, formula in FLOAT.items():
        for seed in range(4):
            rng = np.random.default_rng(seed)
            a = SAMPLES[kind](rng)
            b = np.where(rng.random(LANES) < 0.3, a, SAMPLES[kind](rng))
            x, y = typed(a, FLOAT_TYPES[kind]), typed(b, FLOAT_TYPES[kind])
            want = [bool(formula(p, q)) for p, q in zip(x, y, strict=True)]
            assert compare(f"{prefix}{relation}_{kind}", a, b).tolist() == want, relation
            negated = [bool(formula(-p, abs(q))) for p, q in zip(x, y, strict=True)]
            assert compare(f"{prefix}{relation}_{kind}", a, b, neg=1, abs=2).tolist() == negated, relation


def test_flushed_denormals_compare_as_zero() -> None:
    tiny, zero = np.full(LANES, 1, np.uint32), np.zeros(LANES, np.uint32)
    assert compare("v_cmp_gt_f32", tiny, zero).all()
    assert compare("v_cmp_eq_f32", tiny, zero, mode=Mode(fp32_denorm=0)).all()
    assert compare("v_cmp_class_f32", tiny, np.full(LANES, 1 << 7, np.uint32), mode=Mode(fp32_denorm=0)).all()


def number_class(x: np.floating, quiet_bit: int) -> int:
    """Bit of the v_cmp_class mask: signalling and quiet NaN, then -inf ... +inf by magnitude."""
    bits = int(x.view(f"u{x.itemsize}"))
    if np.isnan(x):
        return 1 if bits & quiet_bit else 0
    if np.isinf(x):
        return 2 if x < 0 else 9
    normal, denormal, zero = (3, 4, 5) if np.signbit(x) else (8, 7, 6)
    return zero if x == 0 else normal if abs(x) >= np.finfo(x.dtype).smallest_normal else denormal


@pytest.mark.parametrize(("kind", "quiet_bit"), [("f16", 1 << 9), ("f32", 1 << 22), ("f64", 1 << 51)])
def test_class(kind: str, quiet_bit: int) -> None:
    for seed in range(20):
        a = SAMPLES[kind](np.random.default_rng(seed))
        classes = [number_class(x, quiet_bit) for x in typed(a, FLOAT_TYPES[kind])]
        for bit in range(10):
            for prefix in ("v_cmp_class_", "v_cmpx_class_"):
                got = compare(prefix + kind, a, np.full(LANES, 1 << bit, np.uint32))
                assert got.tolist() == [c == bit for c in classes]


def test_nothing_is_left_out() -> None:
    compares = [n for n in op_names() if n.startswith("v_cmp")]
    relations = len(INTEGER) * len(INTEGER_TYPES) + len(FLOAT) * len(FLOAT_TYPES) + len(FLOAT_TYPES)
    assert len(compares) == 2 * relations
