"""Poison rules. Sound for every operation: no poisoned bit can change a result bit that is called clean. Exact where stated."""

from __future__ import annotations

import arith_samples as samples
import numpy as np
import pytest
from arith_call import LANES, Poison, describe, op_names, run_with_mask, shadow, shadow_with_mask

ALL = 0xFFFFFFFF


def random_words(rng: np.random.Generator, words: int) -> np.ndarray:
    return np.stack([samples.u32(rng) for _ in range(words)])


def sparse_bits(rng: np.random.Generator, words: int) -> np.ndarray:
    """Shadows of which a third of the lanes have a few poisoned bits, a byte or a half."""
    mask = np.zeros((words, LANES), np.uint32)
    for w in range(words):
        for lane in np.flatnonzero(rng.random(LANES) < 0.3):
            width = int(rng.choice([1, 3, 8, 16]))
            mask[w, lane] = ((1 << width) - 1) << int(rng.integers(0, 33 - width))
    return mask


def source_words(name: str) -> list[int]:
    op = describe(name)
    assert op is not None
    if op.kind == "mfma" and "smfmac" in name:
        return [*op.src_words[:2], op.dst_words]
    return list(op.src_words)


def extras_count(name: str) -> int:
    return 2 if "mfma_scale" in name else 1 if "smfmac" in name else 0


def random_modifiers(name: str, rng: np.random.Generator) -> dict[str, int]:
    if "f8f6f4" in name:
        return {"cbsz": int(rng.integers(5)), "blgp": int(rng.integers(5)), "op_sel": int(rng.integers(4))}
    if "mfma" in name:
        return {"blgp": int(rng.integers(8)) if "f64" not in name else 0}
    chosen = {"neg": int(rng.integers(8)), "abs": int(rng.integers(8)), "bitop3": int(rng.integers(256))}
    if name.startswith(("v_pk_", "v_dot2_")) or "_mix" in name:
        return chosen | {"op_sel": int(rng.integers(8)), "op_sel_hi": int(rng.integers(8)), "neg_hi": int(rng.integers(8))}
    return chosen | {"op_sel": int(rng.integers(16)), "clamp": int(rng.integers(2))}


def flip(rng: np.random.Generator, value: np.ndarray, poison: np.ndarray) -> np.ndarray:
    return value ^ (rng.integers(0, 1 << 32, value.shape, dtype=np.uint32) & poison)


@pytest.mark.parametrize("name", op_names())
def test_poison_cannot_change_what_is_called_clean(name: str) -> None:
    op = describe(name)
    assert op is not None
    rng = np.random.default_rng(len(name))
    for _ in range(3 if op.kind == "mfma" else 6):
        modifiers = random_modifiers(name, rng)
        widths = source_words(name)
        sources = [random_words(rng, w) for w in widths]
        poisons = [sparse_bits(rng, w) if rng.random() < 0.7 else np.zeros((w, LANES), np.uint32) for w in widths]
        extras = [random_words(rng, 1) for _ in range(extras_count(name))]
        extra_poisons = [sparse_bits(rng, 1) for _ in extras]
        old, old_poison = random_words(rng, max(op.dst_words, 1)), sparse_bits(rng, max(op.dst_words, 1))
        if not op.reads_dst:
            old_poison = 0 * old_poison
        mask = int(rng.integers(0, 1 << 62))
        mask_poison = int(rng.integers(0, 1 << 62)) & int(rng.integers(0, 1 << 62)) if op.mask_in else 0
        poison = Poison(tuple(poisons), old_poison, mask_poison, tuple(extra_poisons))
        found, mask_found = shadow_with_mask(name, *sources, poison=poison, mask=mask, **modifiers)
        options = {"extras": tuple(extras), **modifiers}
        result, out = run_with_mask(name, *sources, dst=old, mask=mask, **options)
        for _ in range(4):
            changed = [flip(rng, s, q) for s, q in zip(sources, poisons, strict=True)]
            options["extras"] = tuple(flip(rng, s, q) for s, q in zip(extras, extra_poisons, strict=True))
            new_mask = mask ^ (int(rng.integers(0, 1 << 62)) & mask_poison)
            other, other_out = run_with_mask(name, *changed, dst=flip(rng, old, old_poison), mask=new_mask, **options)
            if op.dst_words:
                assert not ((result ^ other) & ~found).any()
            if op.kind == "compare" or op.mask_out:
                assert not (out ^ other_out) & ~mask_found


@pytest.mark.parametrize("name", op_names())
def test_clean_sources_give_clean_results(name: str) -> None:
    op = describe(name)
    assert op is not None
    rng = np.random.default_rng(0)
    widths = source_words(name)
    clean = [np.zeros((w, LANES), np.uint32) for w in widths]
    dst = np.zeros((max(op.dst_words, 1), LANES), np.uint32)
    sources = [random_words(rng, w) for w in widths]
    found, mask = shadow_with_mask(name, *sources, poison=Poison(tuple(clean), dst))
    assert not found.any()
    assert mask == 0


BITWISE = {
    "v_not_b32": lambda a: ~a,
    "v_and_b32": lambda a, b: a & b,
    "v_or_b32": lambda a, b: a | b,
    "v_xor_b32": lambda a, b: a ^ b,
    "v_xnor_b32": lambda a, b: ~(a ^ b),
    "v_and_or_b32": lambda a, b, c: a & b | c,
    "v_or3_b32": lambda a, b, c: a | b | c,
    "v_bfi_b32": lambda a, b, c: a & b | ~a & c,
}


@pytest.mark.parametrize("name", BITWISE)
def test_bitwise_poison_is_exact(name: str) -> None:
    rng = np.random.default_rng(1)
    op = describe(name)
    assert op is not None
    count = len(op.src_words)
    sources, poisons = ([random_words(rng, 1)[0] for _ in range(count)] for _ in range(2))
    base = BITWISE[name](*sources)
    want = np.zeros(LANES, np.uint32)
    for subset in range(1 << count):  # bits are independent: flipping all poisoned bits of each subset of sources suffices
        flipped = [s ^ q if subset >> i & 1 else s for i, (s, q) in enumerate(zip(sources, poisons, strict=True))]
        want |= base ^ BITWISE[name](*flipped)
    assert np.array_equal(shadow(name, *sources, poison=Poison(tuple(poisons))), want)


def test_moved_bits_take_their_poison_along() -> None:
    value, poison = np.full(LANES, 0x12345678, np.uint32), np.full(LANES, 0x0000FF00, np.uint32)
    clean = np.zeros(LANES, np.uint32)

    def of(name: str, *sources: np.ndarray, q: tuple) -> int:
        return int(shadow(name, *sources, poison=Poison(q))[0])

    def full(x: int) -> np.ndarray:
        return np.full(LANES, x, np.uint32)

    assert of("v_mov_b32", value, q=(poison,)) == 0xFF00
    assert of("v_lshlrev_b32", full(8), value, q=(clean, poison)) == 0xFF0000
    assert of("v_lshrrev_b32", full(12), value, q=(clean, poison)) == 0xF
    assert of("v_ashrrev_i32", full(4), value, q=(clean, full(0x80000000))) == 0xF8000000
    assert of("v_lshlrev_b32", full(8), value, q=(full(1), clean)) == ALL
    assert of("v_lshlrev_b32", full(8), value, q=(full(0x100), clean)) == 0  # only five bits of the amount are read
    assert of("v_bfe_u32", value, full(8), full(4), q=(poison, clean, clean)) == 0xF
    assert of("v_bfe_u32", value, full(16), full(8), q=(poison, clean, clean)) == 0
    assert of("v_perm_b32", value, value, full(0x0C0D0501), q=(poison, clean, clean)) == 0xFF00
    assert of("v_perm_b32", value, value, full(0x0C0D0501), q=(clean, poison, clean)) == 0xFF
    assert of("v_alignbit_b32", value, value, full(16), q=(poison, clean, clean)) == 0xFF000000
    assert of("v_lshl_or_b32", value, full(4), full(0xF0000), q=(poison, clean, clean)) == 0xF000  # or with ones hides poison
    assert of("v_pack_b32_f16", value, value, q=(poison, clean)) == 0xFF00
    assert of("v_bfrev_b32", value, q=(full(1),)) == 0x80000000


def test_sums_are_clean_below_the_lowest_poisoned_bit() -> None:
    a, q, clean = np.full(LANES, 5, np.uint32), np.full(LANES, 0x00010000, np.uint32), np.zeros(LANES, np.uint32)
    assert shadow("v_add_u32", a, a, poison=Poison((q, clean)))[0] == 0xFFFF0000
    assert shadow("v_mul_lo_u32", a, a, poison=Poison((q, clean)))[0] == 0xFFFF0000
    assert shadow("v_lshl_add_u32", a, np.full(LANES, 4, np.uint32), a, poison=Poison((q, clean, clean)))[0] == 0xFFF00000
    assert shadow("v_mul_u32_u24", a, a, poison=Poison((np.full(LANES, 0xFF000000, np.uint32), clean)))[0] == 0


def test_halves_are_apart() -> None:
    a, low, clean = np.full(LANES, 0x3C003C00, np.uint32), np.full(LANES, 0xFFFF, np.uint32), np.zeros(LANES, np.uint32)
    assert shadow("v_pk_add_f16", a, a, poison=Poison((low, clean)))[0] == 0xFFFF
    assert shadow("v_pk_add_f16", a, a, poison=Poison((low, clean)), op_sel_hi=0)[0] == ALL
    assert shadow("v_add_f16", a, a, poison=Poison((~low, clean)))[0] == 0
    assert shadow("v_fma_f16", a, a, a, poison=Poison((~low, clean, clean), ~low))[0] == 0xFFFF0000  # the old high half stays
    assert shadow("v_cvt_pk_bf16_f32", a, a, poison=Poison((low, clean)))[0] == 0xFFFF
    assert shadow("v_cvt_f32_ubyte1", a, poison=Poison((np.full(LANES, 0xFFFF00FF, np.uint32),)))[0] == 0
    assert shadow("v_cvt_pk_fp8_f32", a, a, poison=Poison((low, clean), clean), op_sel=8)[0] == 0xFFFF0000
    words = shadow(
        "v_pk_mul_f32", np.stack([a, a]), np.stack([a, a]), poison=Poison((np.stack([low, clean]), np.stack([clean] * 2)))
    )
    assert words[:, 0].tolist() == [ALL, 0]


def test_select_takes_the_poison_of_the_chosen_source() -> None:
    a, q = np.zeros(LANES, np.uint32), np.full(LANES, 0xFF, np.uint32)
    got = shadow("v_cndmask_b32", a, a, poison=Poison((q, 2 * q), mask=1 << 5), mask=0x2)
    assert got[:6].tolist() == [0xFF, 0x1FE, 0xFF, 0xFF, 0xFF, ALL]


def test_matrix_poison_spreads_along_rows_and_columns_only() -> None:
    zero = {w: np.zeros((w, LANES), np.uint32) for w in (4, 8)}
    a, b, c = zero[8].copy(), zero[8].copy(), zero[4].copy()
    a[2, 16 + 3], b[0, 32 + 5], c[1, 16 * 2 + 7] = 1, 0x80, 1  # row 3, column 5, element (9, 7)
    scales = np.zeros((1, LANES), np.uint32)
    scales[0, 48 + 11] = 0xFF00  # row 11, byte 1
    name = "v_mfma_scale_f32_16x16x128_f8f6f4"
    poison = Poison((a, b, c), extras=(scales, 0 * scales))
    for op_sel, rows in ((0, {3}), (1, {3, 11})):
        found = shadow(name, zero[8], zero[8], zero[4], poison=poison, op_sel=op_sel, op_sel_hi=0)
        for lane in range(LANES):
            for register in range(4):
                i, j = 4 * (lane // 16) + register, lane % 16
                assert bool(found[register, lane]) == (i in rows or j == 5 or (i, j) == (9, 7))


def test_unused_words_of_narrow_matrix_operands_are_not_read() -> None:
    a = np.zeros((8, LANES), np.uint32)
    a[4:] = ALL
    zero = np.zeros((8, LANES), np.uint32)
    c = np.zeros((4, LANES), np.uint32)
    assert not shadow("v_mfma_f32_16x16x128_f8f6f4", zero, zero, c, poison=Poison((a, zero, c)), cbsz=4, blgp=0).any()
    assert shadow("v_mfma_f32_16x16x128_f8f6f4", zero, zero, c, poison=Poison((a, zero, c)), cbsz=0, blgp=0).all()
