"""Scalar ALU against formulas on Python integers."""

import random

import numpy as np
import pytest
from snippets import assemble_kernels, run_code

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
OUT_WORDS = 3


def signed(x: int, bits: int = 32) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def overflow(x: int) -> bool:
    return not -(1 << 31) <= x < 1 << 31


def bfe(x: int, spec: int, bits: int, sign: bool) -> int:
    offset, width = spec & (bits - 1), spec >> 16 & 127
    width = min(width, bits - offset)
    field = (x >> offset) & ((1 << width) - 1)
    return signed(field, width) if sign and width else field


def find_first(x: int, bits: int) -> int:
    return (x & -x).bit_length() - 1 if x else -1


def leading(x: int, bits: int) -> int:
    return bits - x.bit_length() if x else -1


def leading_sign(x: int, bits: int) -> int:
    value = signed(x, bits)
    return leading(~value & ((1 << bits) - 1) if value < 0 else value, bits)


def reverse(x: int, bits: int) -> int:
    return int(f"{x:0{bits}b}"[::-1], 2)


def quads(x: int, bits: int) -> list[bool]:
    return [bool(x >> q & 15) for q in range(0, bits, 4)]


KEEP = None  # SCC is not touched
NZ = "result is not zero"

# name -> (bits of a, bits of b, bits of result, f(a, b, scc) -> (result, scc)). b is None for one-source operations.
BINARY = {
    "s_add_u32": (32, 32, 32, lambda a, b, c: (a + b, a + b > M32)),
    "s_sub_u32": (32, 32, 32, lambda a, b, c: (a - b, a < b)),
    "s_add_i32": (32, 32, 32, lambda a, b, c: (a + b, overflow(signed(a) + signed(b)))),
    "s_sub_i32": (32, 32, 32, lambda a, b, c: (a - b, overflow(signed(a) - signed(b)))),
    "s_addc_u32": (32, 32, 32, lambda a, b, c: (a + b + c, a + b + c > M32)),
    "s_subb_u32": (32, 32, 32, lambda a, b, c: (a - b - c, a < b + c)),
    "s_min_i32": (32, 32, 32, lambda a, b, c: (min(signed(a), signed(b)), signed(a) < signed(b))),
    "s_max_i32": (32, 32, 32, lambda a, b, c: (max(signed(a), signed(b)), signed(a) > signed(b))),
    "s_min_u32": (32, 32, 32, lambda a, b, c: (min(a, b), a < b)),
    "s_max_u32": (32, 32, 32, lambda a, b, c: (max(a, b), a > b)),
    "s_cselect_b32": (32, 32, 32, lambda a, b, c: (a if c else b, KEEP)),
    "s_cselect_b64": (64, 64, 64, lambda a, b, c: (a if c else b, KEEP)),
    "s_mul_i32": (32, 32, 32, lambda a, b, c: (a * b, KEEP)),
    "s_mul_hi_u32": (32, 32, 32, lambda a, b, c: (a * b >> 32, KEEP)),
    "s_mul_hi_i32": (32, 32, 32, lambda a, b, c: (signed(a) * signed(b) >> 32, KEEP)),
    "s_lshl1_add_u32": (32, 32, 32, lambda a, b, c: (2 * a + b, 2 * a + b > M32)),
    "s_lshl2_add_u32": (32, 32, 32, lambda a, b, c: (4 * a + b, 4 * a + b > M32)),
    "s_lshl3_add_u32": (32, 32, 32, lambda a, b, c: (8 * a + b, 8 * a + b > M32)),
    "s_lshl4_add_u32": (32, 32, 32, lambda a, b, c: (16 * a + b, 16 * a + b > M32)),
    "s_absdiff_i32": (32, 32, 32, lambda a, b, c: (abs(signed(a - b)), NZ)),
    "s_pack_ll_b32_b16": (32, 32, 32, lambda a, b, c: (a & 0xFFFF | b << 16, KEEP)),
    "s_pack_lh_b32_b16": (32, 32, 32, lambda a, b, c: (a & 0xFFFF | b >> 16 << 16, KEEP)),
    "s_pack_hh_b32_b16": (32, 32, 32, lambda a, b, c: (a >> 16 | b >> 16 << 16, KEEP)),
    "s_lshl_b32": (32, 32, 32, lambda a, b, c: (a << (b & 31), NZ)),
    "s_lshr_b32": (32, 32, 32, lambda a, b, c: (a >> (b & 31), NZ)),
    "s_ashr_i32": (32, 32, 32, lambda a, b, c: (signed(a) >> (b & 31), NZ)),
    "s_lshl_b64": (64, 32, 64, lambda a, b, c: (a << (b & 63), NZ)),
    "s_lshr_b64": (64, 32, 64, lambda a, b, c: (a >> (b & 63), NZ)),
    "s_ashr_i64": (64, 32, 64, lambda a, b, c: (signed(a, 64) >> (b & 63), NZ)),
    "s_bfm_b32": (32, 32, 32, lambda a, b, c: (((1 << (a & 31)) - 1) << (b & 31), KEEP)),
    "s_bfm_b64": (32, 32, 64, lambda a, b, c: (((1 << (a & 63)) - 1) << (b & 63), KEEP)),
    "s_bfe_u32": (32, 32, 32, lambda a, b, c: (bfe(a, b, 32, False), NZ)),
    "s_bfe_i32": (32, 32, 32, lambda a, b, c: (bfe(a, b, 32, True), NZ)),
    "s_bfe_u64": (64, 32, 64, lambda a, b, c: (bfe(a, b, 64, False), NZ)),
    "s_bfe_i64": (64, 32, 64, lambda a, b, c: (bfe(a, b, 64, True), NZ)),
}
for _bits in (32, 64):
    _logic = {
        "and": lambda a, b, c: (a & b, NZ), "or": lambda a, b, c: (a | b, NZ), "xor": lambda a, b, c: (a ^ b, NZ),
        "andn2": lambda a, b, c: (a & ~b, NZ), "orn2": lambda a, b, c: (a | ~b, NZ), "nand": lambda a, b, c: (~(a & b), NZ),
        "nor": lambda a, b, c: (~(a | b), NZ), "xnor": lambda a, b, c: (~(a ^ b), NZ),
    }  # fmt: skip
    BINARY |= {f"s_{name}_b{_bits}": (_bits, _bits, _bits, f) for name, f in _logic.items()}

UNARY = {
    "s_abs_i32": (32, 32, lambda a: (abs(signed(a)), NZ)),
    "s_sext_i32_i8": (32, 32, lambda a: (signed(a, 8), KEEP)),
    "s_sext_i32_i16": (32, 32, lambda a: (signed(a, 16), KEEP)),
    "s_flbit_i32": (32, 32, lambda a: (leading_sign(a, 32), KEEP)),
    "s_flbit_i32_i64": (64, 32, lambda a: (leading_sign(a, 64), KEEP)),
    "s_bitreplicate_b64_b32": (32, 64, lambda a: (sum((a >> k & 1) * 3 << 2 * k for k in range(32)), KEEP)),
}
for _bits in (32, 64):
    _mask = (1 << _bits) - 1
    UNARY |= {
        f"s_mov_b{_bits}": (_bits, _bits, lambda a: (a, KEEP)),
        f"s_not_b{_bits}": (_bits, _bits, lambda a: (~a, NZ)),
        f"s_brev_b{_bits}": (_bits, _bits, lambda a, n=_bits: (reverse(a, n), KEEP)),
        f"s_wqm_b{_bits}": (_bits, _bits, lambda a, n=_bits: (sum(15 << 4 * k for k, q in enumerate(quads(a, n)) if q), NZ)),
        f"s_quadmask_b{_bits}": (_bits, _bits, lambda a, n=_bits: (sum(1 << k for k, q in enumerate(quads(a, n)) if q), NZ)),
        f"s_bcnt0_i32_b{_bits}": (_bits, 32, lambda a, m=_mask: ((~a & m).bit_count(), NZ)),
        f"s_bcnt1_i32_b{_bits}": (_bits, 32, lambda a: (a.bit_count(), NZ)),
        f"s_ff0_i32_b{_bits}": (_bits, 32, lambda a, m=_mask, n=_bits: (find_first(~a & m, n), KEEP)),
        f"s_ff1_i32_b{_bits}": (_bits, 32, lambda a, n=_bits: (find_first(a, n), KEEP)),
        f"s_flbit_i32_b{_bits}": (_bits, 32, lambda a, n=_bits: (leading(a, n), KEEP)),
    }

COMPARE = {}
for _name, _f in {
    "eq": lambda a, b: a == b, "lg": lambda a, b: a != b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
}.items():  # fmt: skip
    COMPARE[f"s_cmp_{_name}_u32"] = (32, lambda a, b, f=_f: f(a, b))
    COMPARE[f"s_cmp_{_name}_i32"] = (32, lambda a, b, f=_f: f(signed(a), signed(b)))
    if _name in ("eq", "lg"):
        COMPARE[f"s_cmp_{_name}_u64"] = (64, lambda a, b, f=_f: f(a, b))
for _bits in (32, 64):
    COMPARE[f"s_bitcmp0_b{_bits}"] = (_bits, lambda a, b, n=_bits: not a >> (b & (n - 1)) & 1)
    COMPARE[f"s_bitcmp1_b{_bits}"] = (_bits, lambda a, b, n=_bits: bool(a >> (b & (n - 1)) & 1))


def registers(first: int, bits: int) -> str:
    return f"s{first}" if bits == 32 else f"s[{first}:{first + 1}]"


def scalar_kernel(body: str) -> str:
    """a in s[8:9], b in s[10:11], SCC from s12; result in s[16:17]; out: result low, high, SCC."""
    return f"""
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_lshl_b32 s3, s2, 5
  s_waitcnt lgkmcnt(0)
  s_load_dwordx8 s[8:15], s[6:7], s3
  s_waitcnt lgkmcnt(0)
  s_mov_b64 s[16:17], 0
  s_cmp_lg_u32 s12, 0
  {body}
  s_cselect_b32 s18, 1, 0
  s_mul_i32 s3, s2, 12
  v_mov_b32 v1, s3
  v_mov_b32 v8, s16
  v_mov_b32 v9, s17
  v_mov_b32 v10, s18
  s_mov_b64 exec, 1
  global_store_dwordx3 v1, v[8:10], s[4:5]
  s_endpgm
"""


def bodies() -> dict[str, str]:
    made = {}
    for name, (a, b, d, _) in BINARY.items():
        made[name] = f"{name} {registers(16, d)}, {registers(8, a)}, {registers(10, b)}"
    for name, (a, d, _) in UNARY.items():
        made[name] = f"{name} {registers(16, d)}, {registers(8, a)}"
    for name, (a, _) in COMPARE.items():
        made[name] = f"{name} {registers(8, a)}, {registers(10, a if 'bitcmp' not in name else 32)}"
    return made


@pytest.fixture(scope="module")
def code():
    return assemble_kernels({name: scalar_kernel(body) for name, body in bodies().items()})


def sample_inputs(count: int = 64) -> np.ndarray:
    """[count, 4] uint64: a, b, scc, unused; corners among random values."""
    rng = random.Random(950)
    corners = [0, 1, M32, M64, 1 << 31, 1 << 63, (1 << 31) - 1, 0x00100000, 0x00200004, 0xFFFF, 31, 63, 0x0F0F0F0F00]
    pick = lambda: rng.choice(corners) if rng.random() < 0.4 else rng.getrandbits(rng.choice((5, 16, 32, 64)))  # noqa: E731
    return np.array([[pick(), pick(), rng.getrandbits(1), 0] for _ in range(count)], np.uint64)


def execute(code, name: str, inputs: np.ndarray) -> np.ndarray:
    out, _ = run_code(code, inputs, name=name, grid=len(inputs))
    return out.reshape(-1)[: OUT_WORDS * len(inputs)].reshape(-1, OUT_WORDS)


def expected(name: str, a: int, b: int, scc: int) -> tuple[int, int]:
    if name in COMPARE:
        bits, f = COMPARE[name]
        mask = (1 << bits) - 1
        return 0, int(f(a & mask, b & (mask if "bitcmp" not in name else M32)))
    if name in BINARY:
        bits_a, bits_b, bits_d, f = BINARY[name]
        result, flag = f(a & (1 << bits_a) - 1, b & (1 << bits_b) - 1, scc)
    else:
        bits_a, bits_d, f = UNARY[name]
        result, flag = f(a & (1 << bits_a) - 1)
    result &= (1 << bits_d) - 1
    return result, scc if flag is KEEP else int(result != 0) if flag is NZ else int(flag)


@pytest.mark.parametrize("name", sorted(bodies()))
def test_result_and_scc(code, name):
    inputs = sample_inputs()
    for (a, b, scc, _), (low, high, flag) in zip(inputs.tolist(), execute(code, name, inputs).tolist(), strict=True):
        want, want_scc = expected(name, a, b, scc)
        assert (low | high << 32, flag) == (want, want_scc), f"{name} a={a:#x} b={b:#x} scc={scc}"


CONTROL = {
    "s_movk_i32": ("s_movk_i32 s16, 0x8001", lambda a, b, c: (0xFFFF8001, c)),
    "s_addk_i32": ("s_mov_b32 s16, s8\n s_addk_i32 s16, 0x7fff", lambda a, b, c: (a + 0x7FFF, overflow(signed(a) + 0x7FFF))),
    "s_mulk_i32": ("s_mov_b32 s16, s8\n s_mulk_i32 s16, 0xfffe", lambda a, b, c: (a * -2, c)),
    "s_cmovk_i32": ("s_mov_b32 s16, s8\n s_cmovk_i32 s16, 5", lambda a, b, c: (5 if c else a, c)),
    "s_cmov_b32": ("s_mov_b32 s16, s8\n s_cmov_b32 s16, s10", lambda a, b, c: (b if c else a, c)),
    "s_cmpk_gt_i32": ("s_cmpk_gt_i32 s8, 0xfff0", lambda a, b, c: (0, signed(a) > -16)),
    "s_cmpk_gt_u32": ("s_cmpk_gt_u32 s8, 0xfff0", lambda a, b, c: (0, a > 0xFFF0)),
    "s_bitset1_b32": ("s_mov_b32 s16, s8\n s_bitset1_b32 s16, s10", lambda a, b, c: (a | 1 << (b & 31), c)),
    "s_bitset0_b32": ("s_mov_b32 s16, s8\n s_bitset0_b32 s16, s10", lambda a, b, c: (a & ~(1 << (b & 31)), c)),
    "s_movrels_b32": ("s_mov_b32 m0, 2\n s_nop 0\n s_movrels_b32 s16, s8", lambda a, b, c: (b, c)),
    "s_movreld_b32": ("s_mov_b32 m0, 2\n s_nop 0\n s_movreld_b32 s14, s8", lambda a, b, c: (a, c)),
    "branch on scc": ("s_cbranch_scc0 skip0\n s_mov_b32 s16, 7\nskip0:", lambda a, b, c: (7 if c else 0, c)),
    "swappc": (
        "s_getpc_b64 s[20:21]\nhere:\n s_add_u32 s20, s20, sub-here\n s_addc_u32 s21, s21, 0\n"
        " s_swappc_b64 s[22:23], s[20:21]\n"
        " s_branch over\nsub:\n s_mov_b32 s16, s10\n s_setpc_b64 s[22:23]\nover:\n s_cmp_eq_u32 0, 0",
        lambda a, b, c: (b, 1),
    ),
    "call": (
        "s_call_b64 s[22:23], sub1\n s_branch over1\nsub1:\n s_mov_b32 s16, s8\n s_setpc_b64 s[22:23]\nover1:",
        lambda a, b, c: (a, c),
    ),
    "literal of a 64-bit operand": ("s_mov_b64 s[16:17], 0xfffffffe", lambda a, b, c: (0xFFFFFFFE, c)),
    "inline integer of a 64-bit operand": ("s_mov_b64 s[16:17], -3", lambda a, b, c: (-3 & M64, c)),
    "inline float of a 64-bit operand": ("s_mov_b64 s[16:17], 1.0", lambda a, b, c: (0x3FF0000000000000, c)),
    "inline float": ("s_mov_b32 s16, -2.0", lambda a, b, c: (0xC0000000, c)),
    "setreg and getreg": (
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 9\n s_nop 1\n s_getreg_b32 s16, hwreg(HW_REG_MODE, 0, 4)",
        lambda a, b, c: (9, c),
    ),
    "saveexec": (
        "s_mov_b64 s[24:25], exec\n s_and_saveexec_b64 s[16:17], s[8:9]\n s_mov_b64 s[16:17], exec\n s_mov_b64 exec, s[24:25]",
        None,
    ),
}


@pytest.fixture(scope="module")
def control_code():
    return assemble_kernels({f"k{k}": scalar_kernel(body) for k, (body, _) in enumerate(CONTROL.values())})


@pytest.mark.parametrize("name", [name for name in CONTROL if name != "saveexec"])
def test_control_and_immediates(control_code, name):
    inputs = sample_inputs(24)
    kernel = f"k{list(CONTROL).index(name)}"
    for (a, b, scc, _), (low, high, flag) in zip(inputs.tolist(), execute(control_code, kernel, inputs).tolist(), strict=True):
        want, want_scc = CONTROL[name][1](a & M32, b & M32, scc)
        wide = "64-bit" in name
        assert (low | high << 32, flag) == (want & (M64 if wide else M32), int(want_scc)), f"{name} a={a:#x} b={b:#x} scc={scc}"


def test_saveexec(control_code):
    inputs = sample_inputs(24)
    got = execute(control_code, f"k{list(CONTROL).index('saveexec')}", inputs)
    assert [low | high << 32 for low, high, _ in got.tolist()] == inputs[:, 0].tolist()
    assert [flag for _, _, flag in got.tolist()] == [int(a != 0) for a in inputs[:, 0].tolist()]
