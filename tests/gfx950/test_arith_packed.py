"""Packed f16 and f32, mixed-precision fused multiply-add, floating dot products."""

from __future__ import annotations

import arith_samples as samples
import ml_dtypes
import numpy as np
import pytest
from arith_call import LANES, Mode, describe, run
from arith_samples import same_floats

SINGLE = {"add": "v_add_f16", "mul": "v_mul_f16", "fma": "v_fma_f16", "min": "v_min_f16", "max": "v_max_f16"}
SELECTIONS = [(0, 7), (1, 6), (2, 0), (7, 7), (4, 3), (5, 2)]


def select(word: np.ndarray, high: int) -> np.ndarray:
    return word >> np.uint32(16) if high else word & 0xFFFF


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize(("op_sel", "op_sel_hi"), SELECTIONS)
def test_packed_f16_is_two_single_operations(name: str, op_sel: int, op_sel_hi: int) -> None:
    rng = np.random.default_rng(op_sel)
    op = describe(f"v_pk_{name}_f16")
    assert op is not None
    s = [samples.pairs_f16(rng) for _ in op.src_words]
    neg, neg_hi = 5, 3
    low = run(SINGLE[name], *(select(x, op_sel >> i & 1) for i, x in enumerate(s)), neg=neg)
    high = run(SINGLE[name], *(select(x, op_sel_hi >> i & 1) for i, x in enumerate(s)), neg=neg_hi)
    got = run(f"v_pk_{name}_f16", *s, op_sel=op_sel, op_sel_hi=op_sel_hi, neg=neg, neg_hi=neg_hi)
    assert same_floats(got.astype(np.uint16), low.astype(np.uint16).view(np.float16))
    assert same_floats((got >> np.uint32(16)).astype(np.uint16), high.astype(np.uint16).view(np.float16))


def test_packed_fmac_accumulates_half_by_half() -> None:
    rng = np.random.default_rng(0)
    a, b, c = (samples.pairs_f16(rng) for _ in range(3))
    assert np.array_equal(run("v_pk_fmac_f16", a, b, dst=c), run("v_pk_fma_f16", a, b, c))


@pytest.mark.parametrize(("name", "pick"), [("v_pk_minimum3_f16", min), ("v_pk_maximum3_f16", max)])
def test_packed_three_way(name: str, pick) -> None:
    rng = np.random.default_rng(0)
    s = [samples.pairs_f16(rng) for _ in range(3)]
    got = run(name, *s)
    for shift in (0, 16):
        halves = [(x >> np.uint32(shift) & 0xFFFF).astype(np.uint16).view(np.float16) for x in s]
        want = [
            np.nan if any(map(np.isnan, lane)) else pick(lane, key=lambda v: (v, not np.signbit(v)))
            for lane in zip(*halves, strict=True)
        ]
        assert same_floats((got >> np.uint32(shift) & 0xFFFF).astype(np.uint16), np.array(want, np.float16))


def test_packed_f16_clamp() -> None:
    a = np.full(LANES, 0x4200B800, np.uint32)  # 3.0, -0.5
    assert run("v_pk_add_f16", a, a, clamp=1).tolist() == [0x3C000000] * LANES


F32_OPS = {"v_pk_add_f32": "v_add_f32", "v_pk_mul_f32": "v_mul_f32", "v_pk_fma_f32": "v_fma_f32"}


@pytest.mark.parametrize("name", F32_OPS)
@pytest.mark.parametrize(("op_sel", "op_sel_hi"), SELECTIONS)
def test_packed_f32_is_two_single_operations(name: str, op_sel: int, op_sel_hi: int) -> None:
    rng = np.random.default_rng(op_sel)
    op = describe(name)
    assert op is not None
    s = [np.stack([samples.f32(rng), samples.f32(rng)]) for _ in op.src_words]
    got = run(name, *s, op_sel=op_sel, op_sel_hi=op_sel_hi, neg=1, neg_hi=2)
    low = run(F32_OPS[name], *(x[op_sel >> i & 1] for i, x in enumerate(s)), neg=1)
    high = run(F32_OPS[name], *(x[op_sel_hi >> i & 1] for i, x in enumerate(s)), neg=2)
    assert same_floats(got[0], low.view(np.float32))
    assert same_floats(got[1], high.view(np.float32))


@pytest.mark.parametrize("op_sel", range(4))
def test_packed_mov_picks_a_word_of_each_source(op_sel: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (np.stack([samples.u32(rng), samples.u32(rng)]) for _ in range(2))
    got = run("v_pk_mov_b32", a, b, op_sel=op_sel)
    assert np.array_equal(got, np.stack([a[op_sel & 1], b[op_sel >> 1]]))


@pytest.mark.parametrize("op_sel_hi", range(8))
@pytest.mark.parametrize("op_sel", [0, 5, 7])
def test_fma_mix_reads_f16_or_f32(op_sel: int, op_sel_hi: int) -> None:
    rng = np.random.default_rng(op_sel)
    raw = [samples.nearby_f32(rng).view(np.uint32) for _ in range(3)]
    sources = []
    for i, word in enumerate(raw):
        half = select(word, op_sel >> i & 1).astype(np.uint16).view(np.float16).astype(np.float32)
        sources.append(half if op_sel_hi >> i & 1 else word.view(np.float32))
    want = run("v_fma_f32", -np.abs(sources[0]), sources[1], -sources[2])
    modifiers = {"op_sel": op_sel, "op_sel_hi": op_sel_hi, "neg": 5, "neg_hi": 1}
    assert same_floats(run("v_fma_mix_f32", *raw, **modifiers), want.view(np.float32))
    old = samples.u32(rng)
    with np.errstate(over="ignore"):
        half = want.view(np.float32).astype(np.float16)
    low, high = (run(f"v_fma_mix{part}_f16", *raw, dst=old, **modifiers) for part in ("lo", "hi"))
    assert same_floats(low.astype(np.uint16), half)
    assert same_floats((high >> np.uint32(16)).astype(np.uint16), half)
    assert np.array_equal(low & 0xFFFF0000, old & 0xFFFF0000)
    assert np.array_equal(high & 0xFFFF, old & 0xFFFF)


DOTS = {
    "v_dot2_f32_f16": np.float16,
    "v_dot2c_f32_f16": np.float16,
    "v_dot2_f32_bf16": ml_dtypes.bfloat16,
    "v_dot2c_f32_bf16": ml_dtypes.bfloat16,
}


@pytest.mark.parametrize("name", DOTS)
def test_floating_dot_products(name: str) -> None:
    dtype = DOTS[name]
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x, y = (rng.standard_normal((2, LANES)).astype(dtype) for _ in range(2))
        c = samples.nearby_f32(rng)
        a, b = (
            v.view(np.uint16)[0].astype(np.uint32) | v.view(np.uint16)[1].astype(np.uint32) << np.uint32(16) for v in (x, y)
        )
        got = (run(name, a, b, dst=c) if "2c" in name else run(name, a, b, c)).view(np.float32)
        exact = (x.astype(np.float64) * y.astype(np.float64)).sum(axis=0) + c
        scale = np.abs(x.astype(np.float64) * y.astype(np.float64)).sum(axis=0) + np.abs(c)
        assert (np.abs(got - exact) <= scale * np.finfo(np.float32).eps).all()  # two roundings


def test_dot_products_flush_f32_denormals_whatever_the_mode() -> None:
    zero, tiny = np.zeros(LANES, np.uint32), np.full(LANES, 2.0**-127, np.float32)
    assert run("v_dot2_f32_f16", zero, zero, tiny, mode=Mode(fp32_denorm=3)).tolist() == [0] * LANES


def test_dot_product_selects_and_negates_halves() -> None:
    a = np.full(LANES, 0x40003C00, np.uint32)  # (1, 2)
    b = np.full(LANES, 0x44004200, np.uint32)  # (3, 4)
    zero = np.zeros(LANES, np.uint32)
    assert run("v_dot2_f32_f16", a, b, zero).view(np.float32)[0] == 1 * 3 + 2 * 4
    assert run("v_dot2_f32_f16", a, b, zero, op_sel=1, op_sel_hi=6).view(np.float32)[0] == 2 * 3 + 1 * 4
    assert run("v_dot2_f32_f16", a, b, zero, neg=1, neg_hi=2).view(np.float32)[0] == -1 * 3 + 2 * -4
    # The accumulating forms are VOP2: no op_sel, and abs stands for neg_hi.
    assert run("v_dot2c_f32_f16", a, b, dst=zero, neg=1, abs=2).view(np.float32)[0] == -1 * 3 + 2 * -4


def test_accumulator_of_a_bf16_dot_has_no_modifiers() -> None:
    zero, one = np.zeros(LANES, np.uint32), np.ones(LANES, np.float32)
    assert (run("v_dot2_f32_bf16", zero, zero, one, neg=4).view(np.float32) == 1).all()
    assert (run("v_dot2_f32_f16", zero, zero, one, neg=4).view(np.float32) == -1).all()
