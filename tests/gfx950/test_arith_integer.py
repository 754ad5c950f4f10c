"""Integer operations against Python's unbounded integers."""

from __future__ import annotations

from collections.abc import Callable

import arith_samples as samples
import numpy as np
import pytest
from arith_call import LANES, compare, describe, run, run64, run_with_mask

M32, M64 = 0xFFFFFFFF, (1 << 64) - 1


def signed(x: int, bits: int = 32) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def field(x: int, i: int, bits: int) -> int:
    return x >> (i * bits) & ((1 << bits) - 1)


def median(*values: int) -> int:
    return sorted(values)[1]


def bfe_i32(a: int, offset: int, width: int) -> int:
    width &= 31
    return signed(signed(a) >> (offset & 31), width) if width else 0


def perm(a: int, b: int, select: int) -> int:
    pool = [field(a << 32 | b, i, 8) for i in range(8)]
    signs = {8: pool[1], 9: pool[3], 10: pool[5], 11: pool[7]}
    out = 0
    for i in range(4):
        s = field(select, i, 8)
        byte = pool[s] if s < 8 else (0xFF if signs[s] >> 7 else 0) if s < 12 else 0 if s == 12 else 0xFF
        out |= byte << 8 * i
    return out


def sad(a: int, b: int, c: int, bits: int, masked: bool = False) -> int:
    terms = [(field(a, i, bits), field(b, i, bits)) for i in range(32 // bits)]
    return sum(abs(x - y) for x, y in terms if y or not masked) + c


def lerp(a: int, b: int, c: int) -> int:
    return sum((field(a, i, 8) + field(b, i, 8) + (c >> 8 * i & 1) >> 1) << 8 * i for i in range(4))


def clz(a: int) -> int:
    return 32 - a.bit_length() if a else M32


def ffbh_i32(a: int) -> int:
    return next((i for i in range(1, 32) if a >> (31 - i) & 1 != a >> 31), M32)


FORMULAS: dict[str, Callable[..., int]] = {
    "v_mov_b32": lambda a: a,
    "v_not_b32": lambda a: ~a,
    "v_bfrev_b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "v_ffbh_u32": clz,
    "v_ffbl_b32": lambda a: (a & -a).bit_length() - 1,
    "v_ffbh_i32": ffbh_i32,
    "v_prng_b32": lambda a: a << 1 ^ (197 if a >> 31 else 0),
    "v_and_b32": lambda a, b: a & b,
    "v_or_b32": lambda a, b: a | b,
    "v_xor_b32": lambda a, b: a ^ b,
    "v_xnor_b32": lambda a, b: ~(a ^ b),
    "v_and_or_b32": lambda a, b, c: a & b | c,
    "v_or3_b32": lambda a, b, c: a | b | c,
    "v_bfi_b32": lambda a, b, c: a & b | ~a & c,
    "v_lshlrev_b32": lambda n, a: a << (n & 31),
    "v_lshrrev_b32": lambda n, a: a >> (n & 31),
    "v_ashrrev_i32": lambda n, a: signed(a) >> (n & 31),
    "v_lshl_or_b32": lambda a, n, c: a << (n & 31) | c,
    "v_lshl_add_u32": lambda a, n, c: (a << (n & 31)) + c,
    "v_add_lshl_u32": lambda a, b, n: (a + b) << (n & 31),
    "v_add3_u32": lambda a, b, c: a + b + c,
    "v_xad_u32": lambda a, b, c: (a ^ b) + c,
    "v_add_u32": lambda a, b: a + b,
    "v_sub_u32": lambda a, b: a - b,
    "v_subrev_u32": lambda a, b: b - a,
    "v_add_i32": lambda a, b: a + b,
    "v_sub_i32": lambda a, b: a - b,
    "v_mul_lo_u32": lambda a, b: a * b,
    "v_mul_hi_u32": lambda a, b: a * b >> 32,
    "v_mul_hi_i32": lambda a, b: signed(a) * signed(b) >> 32,
    "v_mul_u32_u24": lambda a, b: field(a, 0, 24) * field(b, 0, 24),
    "v_mul_hi_u32_u24": lambda a, b: field(a, 0, 24) * field(b, 0, 24) >> 32,
    "v_mul_i32_i24": lambda a, b: signed(a, 24) * signed(b, 24),
    "v_mul_hi_i32_i24": lambda a, b: signed(a, 24) * signed(b, 24) >> 32,
    "v_mad_u32_u24": lambda a, b, c: field(a, 0, 24) * field(b, 0, 24) + c,
    "v_mad_i32_i24": lambda a, b, c: signed(a, 24) * signed(b, 24) + c,
    "v_mad_u32_u16": lambda a, b, c: (a & 0xFFFF) * (b & 0xFFFF) + c,
    "v_mad_i32_i16": lambda a, b, c: signed(a, 16) * signed(b, 16) + c,
    "v_min_u32": min,
    "v_max_u32": max,
    "v_min_i32": lambda a, b: min(signed(a), signed(b)),
    "v_max_i32": lambda a, b: max(signed(a), signed(b)),
    "v_min3_u32": min,
    "v_max3_u32": max,
    "v_med3_u32": median,
    "v_min3_i32": lambda *x: min(map(signed, x)),
    "v_max3_i32": lambda *x: max(map(signed, x)),
    "v_med3_i32": lambda *x: median(*map(signed, x)),
    "v_bfe_u32": lambda a, o, w: a >> (o & 31) & ((1 << (w & 31)) - 1),
    "v_bfe_i32": bfe_i32,
    "v_bfm_b32": lambda w, o: ((1 << (w & 31)) - 1) << (o & 31),
    "v_alignbit_b32": lambda a, b, n: (a << 32 | b) >> (n & 31),
    "v_alignbyte_b32": lambda a, b, n: (a << 32 | b) >> 8 * (n & 3),
    "v_perm_b32": perm,
    "v_bcnt_u32_b32": lambda a, b: a.bit_count() + b,
    "v_sad_u8": lambda a, b, c: sad(a, b, c, 8),
    "v_sad_hi_u8": lambda a, b, c: (sad(a, b, 0, 8) << 16) + c,
    "v_sad_u16": lambda a, b, c: sad(a, b, c, 16),
    "v_sad_u32": lambda a, b, c: sad(a, b, c, 32),
    "v_msad_u8": lambda a, b, c: sad(a, b, c, 8, masked=True),
    "v_lerp_u8": lerp,
    "v_dot4_u32_u8": lambda a, b, c: sum(field(a, i, 8) * field(b, i, 8) for i in range(4)) + c,
    "v_dot4_i32_i8": lambda a, b, c: sum(signed(field(a, i, 8), 8) * signed(field(b, i, 8), 8) for i in range(4)) + c,
    "v_dot8_u32_u4": lambda a, b, c: sum(field(a, i, 4) * field(b, i, 4) for i in range(8)) + c,
    "v_dot8_i32_i4": lambda a, b, c: sum(signed(field(a, i, 4), 4) * signed(field(b, i, 4), 4) for i in range(8)) + c,
    "v_cvt_pk_u16_u32": lambda a, b: min(a, 0xFFFF) | min(b, 0xFFFF) << 16,
    "v_cvt_pk_i16_i32": lambda a, b: sum((clip(signed(x), 16) & 0xFFFF) << s for x, s in ((a, 0), (b, 16))),
    "v_sat_pk_u8_i16": lambda a: sum(max(0, min(255, signed(field(a, i, 16), 16))) << 8 * i for i in range(2)),
}

# 16-bit results in the low half, zeros above.
FORMULAS_16: dict[str, Callable[..., int]] = {
    "v_add_u16": lambda a, b: a + b,
    "v_sub_u16": lambda a, b: a - b,
    "v_subrev_u16": lambda a, b: b - a,
    "v_mul_lo_u16": lambda a, b: a * b,
    "v_lshlrev_b16": lambda n, a: a << (n & 15),
    "v_lshrrev_b16": lambda n, a: a >> (n & 15),
    "v_ashrrev_i16": lambda n, a: signed(a, 16) >> (n & 15),
    "v_min_u16": min,
    "v_max_u16": max,
    "v_min_i16": lambda *x: min(signed(v, 16) for v in x),
    "v_max_i16": lambda *x: max(signed(v, 16) for v in x),
    "v_mad_legacy_u16": lambda a, b, c: a * b + c,
    "v_mad_legacy_i16": lambda a, b, c: a * b + c,
}
# 16-bit results that op_sel places.
PLACED_16: dict[str, Callable[..., int]] = {
    "v_add_i16": lambda a, b: a + b,
    "v_sub_i16": lambda a, b: a - b,
    "v_mad_u16": lambda a, b, c: a * b + c,
    "v_mad_i16": lambda a, b, c: a * b + c,
    "v_min3_u16": min,
    "v_max3_u16": max,
    "v_med3_u16": median,
    "v_min3_i16": lambda *x: min(signed(v, 16) for v in x),
    "v_max3_i16": lambda *x: max(signed(v, 16) for v in x),
    "v_med3_i16": lambda *x: median(*(signed(v, 16) for v in x)),
}


def clip(x: int, bits: int) -> int:
    return max(-(1 << (bits - 1)), min((1 << (bits - 1)) - 1, x))


def sources(name: str, rng: np.random.Generator) -> list[np.ndarray]:
    op = describe(name)
    assert op is not None
    return [samples.u32(rng) for _ in op.src_words]


@pytest.mark.parametrize("name", FORMULAS)
def test_32_bit_formula(name: str) -> None:
    rng = np.random.default_rng(len(name))
    for _ in range(8):
        s = sources(name, rng)
        want = [FORMULAS[name](*map(int, lane)) & M32 for lane in zip(*s, strict=True)]
        assert run(name, *s).tolist() == want


@pytest.mark.parametrize("name", FORMULAS_16)
def test_16_bit_formula_clears_the_high_half(name: str) -> None:
    rng = np.random.default_rng(len(name))
    for _ in range(8):
        s = sources(name, rng)
        want = [FORMULAS_16[name](*(int(x) & 0xFFFF for x in lane)) & 0xFFFF for lane in zip(*s, strict=True)]
        assert run(name, *s).tolist() == want


@pytest.mark.parametrize("op_sel", range(16))
@pytest.mark.parametrize("name", PLACED_16)
def test_16_bit_formula_with_op_sel(name: str, op_sel: int) -> None:
    rng = np.random.default_rng(op_sel)
    s, old = sources(name, rng), samples.u32(rng)
    chosen = [[int(x) >> 16 * (op_sel >> i & 1) & 0xFFFF for i, x in enumerate(lane)] for lane in zip(*s, strict=True)]
    results = [PLACED_16[name](*lane) & 0xFFFF for lane in chosen]
    want = [(r << 16 | o & 0xFFFF) if op_sel & 8 else (o & 0xFFFF0000 | r) for r, o in zip(results, old.tolist(), strict=True)]
    assert run(name, *s, dst=old, op_sel=op_sel).tolist() == want


SATURATING = {
    "v_add_u32": (lambda a, b: a + b, 0, M32),
    "v_sub_u32": (lambda a, b: a - b, 0, M32),
    "v_subrev_u32": (lambda a, b: b - a, 0, M32),
    "v_add_i32": (lambda a, b: signed(a) + signed(b), -(1 << 31), (1 << 31) - 1),
    "v_sub_i32": (lambda a, b: signed(a) - signed(b), -(1 << 31), (1 << 31) - 1),
    "v_mad_u32_u24": (FORMULAS["v_mad_u32_u24"], 0, M32),
    "v_mad_i32_i24": (lambda a, b, c: signed(a, 24) * signed(b, 24) + signed(c), -(1 << 31), (1 << 31) - 1),
    "v_mad_u32_u16": (FORMULAS["v_mad_u32_u16"], 0, M32),
    "v_mad_i32_i16": (lambda a, b, c: signed(a, 16) * signed(b, 16) + signed(c), -(1 << 31), (1 << 31) - 1),
    "v_mul_u32_u24": (FORMULAS["v_mul_u32_u24"], 0, M32),
    "v_mul_i32_i24": (FORMULAS["v_mul_i32_i24"], -(1 << 31), (1 << 31) - 1),
    "v_sad_u32": (FORMULAS["v_sad_u32"], 0, M32),
    "v_dot4_u32_u8": (FORMULAS["v_dot4_u32_u8"], 0, M32),
}


@pytest.mark.parametrize("name", SATURATING)
def test_clamp_saturates_integers(name: str) -> None:
    formula, low, high = SATURATING[name]
    rng = np.random.default_rng(7)
    s = sources(name, rng)
    want = [max(low, min(high, formula(*map(int, lane)))) & M32 for lane in zip(*s, strict=True)]
    assert run(name, *s, clamp=1).tolist() == want


CARRIES = {
    "v_add_co_u32": lambda a, b, c: a + b,
    "v_sub_co_u32": lambda a, b, c: a - b,
    "v_subrev_co_u32": lambda a, b, c: b - a,
    "v_addc_co_u32": lambda a, b, c: a + b + c,
    "v_subb_co_u32": lambda a, b, c: a - b - c,
    "v_subbrev_co_u32": lambda a, b, c: b - a - c,
}


@pytest.mark.parametrize("name", CARRIES)
def test_carries(name: str) -> None:
    rng = np.random.default_rng(3)
    for _ in range(8):
        a, b = samples.u32(rng), samples.u32(rng)
        mask = int(rng.integers(0, 1 << 62))
        carry_in = [mask >> lane & 1 for lane in range(LANES)]
        exact = [CARRIES[name](int(x), int(y), c) for x, y, c in zip(a, b, carry_in, strict=True)]
        result, out = run_with_mask(name, a, b, mask=mask)
        assert result[0].tolist() == [x & M32 for x in exact]
        assert [out >> lane & 1 for lane in range(LANES)] == [int(not 0 <= x <= M32) for x in exact]


WIDE = {
    "v_lshlrev_b64": lambda n, a: a << (n & 63),
    "v_lshrrev_b64": lambda n, a: a >> (n & 63),
    "v_ashrrev_i64": lambda n, a: signed(a, 64) >> (n & 63),
    "v_lshl_add_u64": lambda a, n, c: (a << (n & 7 if n & 7 <= 4 else 0)) + c,  # other amounts count as 0
    "v_mad_u64_u32": lambda a, b, c: a * b + c,
    "v_mad_i64_i32": lambda a, b, c: signed(a) * signed(b) + c,
    "v_mov_b64": lambda a: a,
}


@pytest.mark.parametrize("name", WIDE)
def test_64_bit_formula(name: str) -> None:
    op = describe(name)
    assert op is not None
    rng = np.random.default_rng(5)
    for _ in range(8):
        s = [samples.u64(rng) if words == 2 else samples.u32(rng) for words in op.src_words]
        want = [WIDE[name](*map(int, lane)) & M64 for lane in zip(*s, strict=True)]
        assert run64(name, *s).tolist() == want


def test_mad_64_carry_out_is_bit_64() -> None:
    rng = np.random.default_rng(9)
    a, b, c = samples.u32(rng), samples.u32(rng), samples.u64(rng)
    lanes = [tuple(map(int, lane)) for lane in zip(a, b, c, strict=True)]
    assert compare("v_mad_u64_u32", a, b, c).tolist() == [x * y + z > M64 for x, y, z in lanes]
    want = [(signed(x) * signed(y) + signed(z, 64)) >> 64 & 1 == 1 for x, y, z in lanes]
    assert compare("v_mad_i64_i32", a, b, c).tolist() == want


def test_mad_64_saturates() -> None:
    rng = np.random.default_rng(9)
    a, b, c = samples.u32(rng), samples.u32(rng), samples.u64(rng)
    lanes = [tuple(map(int, lane)) for lane in zip(a, b, c, strict=True)]
    assert run64("v_mad_u64_u32", a, b, c, clamp=1).tolist() == [min(x * y + z, M64) for x, y, z in lanes]
    exact = [signed(x) * signed(y) + signed(z, 64) for x, y, z in lanes]
    assert run64("v_mad_i64_i32", a, b, c, clamp=1).tolist() == [clip(x, 64) & M64 for x in exact]


def test_mbcnt_counts_lanes_below() -> None:
    ones = np.full(LANES, M32, np.uint32)
    low = run("v_mbcnt_lo_u32_b32", ones, np.zeros(LANES, np.uint32))
    assert run("v_mbcnt_hi_u32_b32", ones, low).tolist() == list(range(LANES))
    pattern = np.full(LANES, 0xA5A5F00F, np.uint32)
    want = [(0xA5A5F00F & (1 << min(lane, 32)) - 1).bit_count() + 3 for lane in range(LANES)]
    assert run("v_mbcnt_lo_u32_b32", pattern, np.full(LANES, 3, np.uint32)).tolist() == want


@pytest.mark.parametrize("table", range(256))
def test_bitop3_is_its_truth_table(table: int) -> None:
    rng = np.random.default_rng(table)
    a, b, c = (samples.u32(rng) for _ in range(3))
    want = np.zeros(LANES, np.uint32)
    for bit in range(32):
        index = (a >> bit & 1) * 4 + (b >> bit & 1) * 2 + (c >> bit & 1)
        want |= (table >> index & 1).astype(np.uint32) << np.uint32(bit)
    assert run("v_bitop3_b32", a, b, c, bitop3=table).tolist() == want.tolist()
    half = run("v_bitop3_b16", a, b, c, bitop3=table, dst=c)
    assert half.tolist() == (want & 0xFFFF | c & 0xFFFF0000).tolist()


@pytest.mark.parametrize(("name", "low", "high"), [("v_ashr_pk_i8_i32", -128, 127), ("v_ashr_pk_u8_i32", 0, 255)])
@pytest.mark.parametrize("op_sel", [0, 8])
def test_shift_and_pack_bytes(name: str, low: int, high: int, op_sel: int) -> None:
    rng = np.random.default_rng(1)
    a, b, n, old = (samples.u32(rng) for _ in range(4))

    def byte(x: int, amount: int) -> int:
        return max(low, min(high, signed(x) >> (amount & 31))) & 0xFF

    packed = [byte(int(x), int(k)) | byte(int(y), int(k)) << 8 for x, y, k in zip(a, b, n, strict=True)]
    want = [p << 16 | o & 0xFFFF if op_sel else o & 0xFFFF0000 | p for p, o in zip(packed, old.tolist(), strict=True)]
    assert run(name, a, b, n, dst=old, op_sel=op_sel).tolist() == want


@pytest.mark.parametrize("masked", [False, True])
def test_quad_sad(masked: bool) -> None:
    rng = np.random.default_rng(2)
    a, b, c = samples.u64(rng), samples.u32(rng), samples.u64(rng)
    name = "v_mqsad_pk_u16_u8" if masked else "v_qsad_pk_u16_u8"
    got = run64(name, a, b, c)
    for lane in range(LANES):
        sums = [sad(int(a[lane]) >> 8 * i & M32, int(b[lane]), field(int(c[lane]), i, 16), 8, masked) for i in range(4)]
        assert int(got[lane]) == sum((s & 0xFFFF) << 16 * i for i, s in enumerate(sums))


def test_quad_sad_32() -> None:
    rng = np.random.default_rng(2)
    a, b, c = samples.u64(rng), samples.u32(rng), np.stack([samples.u32(rng) for _ in range(4)])
    got = run("v_mqsad_u32_u8", a, b, c)
    for i in range(4):
        want = [sad(int(x) >> 8 * i & M32, int(y), int(z), 8, True) & M32 for x, y, z in zip(a, b, c[i], strict=True)]
        assert got[i].tolist() == want


PACKED = {
    "v_pk_add_u16": lambda a, b: a + b,
    "v_pk_sub_u16": lambda a, b: a - b,
    "v_pk_add_i16": lambda a, b: a + b,
    "v_pk_sub_i16": lambda a, b: a - b,
    "v_pk_mul_lo_u16": lambda a, b: a * b,
    "v_pk_mad_u16": lambda a, b, c: a * b + c,
    "v_pk_mad_i16": lambda a, b, c: a * b + c,
    "v_pk_min_u16": min,
    "v_pk_max_u16": max,
    "v_pk_min_i16": FORMULAS_16["v_min_i16"],
    "v_pk_max_i16": FORMULAS_16["v_max_i16"],
    "v_pk_lshlrev_b16": FORMULAS_16["v_lshlrev_b16"],
    "v_pk_lshrrev_b16": FORMULAS_16["v_lshrrev_b16"],
    "v_pk_ashrrev_i16": FORMULAS_16["v_ashrrev_i16"],
}


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize(("op_sel", "op_sel_hi"), [(0, 7), (1, 6), (2, 0), (7, 7), (4, 3), (5, 5)])
def test_packed_integers(name: str, op_sel: int, op_sel_hi: int) -> None:
    rng = np.random.default_rng(op_sel)
    s = sources(name, rng)

    def half(lane: tuple, select: int) -> int:
        return PACKED[name](*(int(x) >> 16 * (select >> i & 1) & 0xFFFF for i, x in enumerate(lane))) & 0xFFFF

    want = [half(lane, op_sel) | half(lane, op_sel_hi) << 16 for lane in zip(*s, strict=True)]
    assert run(name, *s, op_sel=op_sel, op_sel_hi=op_sel_hi).tolist() == want


@pytest.mark.parametrize("name", ["v_pk_add_i16", "v_pk_sub_i16", "v_pk_add_u16", "v_pk_sub_u16"])
def test_packed_clamp_saturates(name: str) -> None:
    rng = np.random.default_rng(4)
    a, b = samples.u32(rng), samples.u32(rng)
    is_signed, sign = "i16" in name, 1 if "add" in name else -1

    def half(x: int, y: int) -> int:
        if not is_signed:
            return max(0, min(0xFFFF, x + sign * y))
        return clip(signed(x, 16) + sign * signed(y, 16), 16) & 0xFFFF

    want = [
        sum(half(field(int(x), i, 16), field(int(y), i, 16)) << 16 * i for i in range(2)) for x, y in zip(a, b, strict=True)
    ]
    assert run(name, a, b, clamp=1).tolist() == want


@pytest.mark.parametrize("accumulate", [False, True])
def test_dot2_integers(accumulate: bool) -> None:
    rng = np.random.default_rng(6)
    a, b, c = (samples.u32(rng) for _ in range(3))

    def dot(x: int, y: int, z: int) -> int:
        return sum(signed(field(x, i, 16), 16) * signed(field(y, i, 16), 16) for i in range(2)) + z & M32

    want = [dot(int(x), int(y), int(z)) for x, y, z in zip(a, b, c, strict=True)]
    got = run("v_dot2c_i32_i16", a, b, dst=c) if accumulate else run("v_dot2_i32_i16", a, b, c)
    assert got.tolist() == want


@pytest.mark.parametrize(("name", "full"), [("v_dot4c_i32_i8", "v_dot4_i32_i8"), ("v_dot8c_i32_i4", "v_dot8_i32_i4")])
def test_accumulating_dots(name: str, full: str) -> None:
    rng = np.random.default_rng(6)
    a, b, c = (samples.u32(rng) for _ in range(3))
    assert run(name, a, b, dst=c).tolist() == run(full, a, b, c).tolist()


def test_dot2_u32() -> None:
    rng = np.random.default_rng(6)
    a, b, c = (samples.u32(rng) for _ in range(3))
    lanes = zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    want = [sum(field(x, i, 16) * field(y, i, 16) for i in range(2)) + z & M32 for x, y, z in lanes]
    assert run("v_dot2_u32_u16", a, b, c).tolist() == want


def test_cndmask_selects_by_lane_and_takes_signs() -> None:
    rng = np.random.default_rng(8)
    a, b = samples.u32(rng), samples.u32(rng)
    mask = 0xDEADBEEF12345678
    chosen = np.array([mask >> lane & 1 for lane in range(LANES)], bool)
    assert run("v_cndmask_b32", a, b, mask=mask).tolist() == np.where(chosen, b, a).tolist()
    want = np.where(chosen, b & 0x7FFFFFFF, a ^ 0x80000000)
    assert run("v_cndmask_b32", a, b, mask=mask, neg=1, abs=2).tolist() == want.tolist()
