"""Moves between lanes: DPP, SDWA, readlane, permutes, swaps; all of them under a partial EXEC."""

import numpy as np
import pytest
from snippets import lanes

from gfx950 import compile_hip
from gfx950.emulator import launch

LANE = np.arange(64)
ROW = LANE & ~15
IN_ROW = LANE & 15
MARK = 1000  # v8 before the instruction; v7 = 3 * lane + 5
SOURCE = 3 * LANE + 5

SETUP = f"""
  v_mul_u32_u24 v7, 3, v0
  v_add_u32 v7, 5, v7
  v_mov_b32 v8, {MARK}
  s_nop 1
"""


def within(at: np.ndarray) -> np.ndarray:
    return np.where((at >= 0) & (at < 16), ROW + at, -1)


# control -> source lane, -1 = none (CDNA3 ISA, "DPP").
DPP = {
    "quad_perm:[3,0,1,2]": (LANE & ~3) | np.array([3, 0, 1, 2])[LANE & 3],
    "row_shl:3": within(IN_ROW + 3),
    "row_shr:5": within(IN_ROW - 5),
    "row_ror:4": ROW | ((IN_ROW - 4) & 15),
    "wave_shl:1": np.where(LANE < 63, LANE + 1, -1),
    "wave_rol:1": (LANE + 1) & 63,
    "wave_shr:1": LANE - 1,
    "wave_ror:1": (LANE - 1) & 63,
    "row_mirror": ROW | (15 - IN_ROW),
    "row_half_mirror": (LANE & ~7) | (7 - (LANE & 7)),
    "row_bcast:15": np.where(LANE > 15, ROW - 1, -1),
    "row_bcast:31": np.where(LANE > 31, 31, -1),
    "row_newbcast:6": ROW | 6,
}


@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("control", DPP)
def test_dpp_reads_its_source_lane(control, bound):
    suffix = " bound_ctrl:1" if bound else ""
    got = lanes(SETUP + f"v_mov_b32_dpp v8, v7 {control} row_mask:0xf bank_mask:0xf{suffix}")
    source = DPP[control]
    missing = 0 if bound else MARK
    assert np.array_equal(got, np.where(source >= 0, SOURCE[source], missing))


def test_dpp_masks_leave_lanes_alone():
    got = lanes(SETUP + "v_mov_b32_dpp v8, v7 row_mirror row_mask:0xa bank_mask:0x3")
    written = (np.isin(LANE // 16, (1, 3))) & (np.isin(LANE // 4 % 4, (0, 1)))
    assert np.array_equal(got, np.where(written, SOURCE[ROW | (15 - IN_ROW)], MARK))


@pytest.mark.parametrize("bound", [False, True])
def test_dpp_does_not_read_lanes_that_are_off(bound):
    suffix = " bound_ctrl:1" if bound else ""
    body = "s_mov_b64 exec, 0x55555555\n s_nop 4\n v_mov_b32_dpp v8, v7 quad_perm:[1,0,2,3] row_mask:0xf bank_mask:0xf" + suffix
    got = lanes(SETUP + body)
    active = (LANE < 32) & (LANE % 2 == 0)
    off_source = LANE % 4 == 0  # reads lane + 1, which is off
    want = np.where(off_source, 0 if bound else MARK, SOURCE)
    assert np.array_equal(got, np.where(active, want, MARK))


def test_dpp_on_an_addition_with_a_carry():
    got = lanes(SETUP + "v_add_co_u32_dpp v8, vcc, v7, v0 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1")
    assert np.array_equal(got, np.where(IN_ROW > 0, SOURCE[LANE - 1], 0) + LANE)


DATA = np.arange(64, dtype=np.uint32) * 0x01030507 + 0x80F1E2D3


def select(x: np.ndarray, name: str, sign: bool = False) -> np.ndarray:
    if name == "DWORD":
        return x
    bits, at = (8, 8 * int(name[-1])) if name.startswith("BYTE") else (16, 16 * int(name[-1]))
    part = (x >> at) & ((1 << bits) - 1)
    return part | (0xFFFFFFFF << bits & 0xFFFFFFFF) * ((part >> (bits - 1)) & sign)


LOAD = "v_lshlrev_b32 v5, 2, v0\n global_load_dword v7, v5, s[6:7]\n v_mov_b32 v8, 0x11223344\n s_waitcnt vmcnt(0)\n"
SELECTS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")


@pytest.mark.parametrize("sign", [False, True])
@pytest.mark.parametrize("source", SELECTS)
def test_sdwa_selects_part_of_a_source(source, sign):
    operand = "sext(v7)" if sign else "v7"
    tail = f"dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:{source}"
    got = lanes(LOAD + f"v_mov_b32 v6, 0x100\n v_add_u32_sdwa v8, v6, {operand} {tail}", DATA)
    assert np.array_equal(got, (select(DATA.astype(np.int64), source, sign) + 0x100) & 0xFFFFFFFF)


@pytest.mark.parametrize("unused", ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"])
@pytest.mark.parametrize("destination", SELECTS[:-1])
def test_sdwa_places_its_result(destination, unused):
    got = lanes(LOAD + f"v_mov_b32_sdwa v8, v7 dst_sel:{destination} dst_unused:{unused} src0_sel:DWORD", DATA)
    bits, at = (8, 8 * int(destination[-1])) if destination.startswith("BYTE") else (16, 16 * int(destination[-1]))
    mask = ((1 << bits) - 1) << at
    part = (DATA.astype(np.int64) << at) & mask
    negative = (DATA.astype(np.int64) >> (bits - 1)) & 1
    above = 0xFFFFFFFF & ~(mask | (mask - 1))
    rest = {"UNUSED_PAD": 0, "UNUSED_SEXT": negative * above, "UNUSED_PRESERVE": 0x11223344 & ~mask}[unused]
    assert np.array_equal(got, part | rest)


def test_readlane_and_readfirstlane_of_active_lanes():
    body = "s_mov_b64 exec, 0xf0\n s_nop 4\n v_readfirstlane_b32 s20, v7\n s_mov_b64 exec, -1\n v_readlane_b32 s21, v7, 63\n"
    got = lanes(SETUP + body + "v_mov_b32 v8, s20\n v_mov_b32 v9, s21", words=2)
    assert got.tolist() == [[SOURCE[4], SOURCE[63]]] * 64


def test_readfirstlane_without_active_lanes_reads_lane_zero():
    got = lanes(SETUP + "s_mov_b64 exec, 0\n s_nop 4\n v_readfirstlane_b32 s20, v7\n s_mov_b64 exec, -1\n v_mov_b32 v8, s20")
    assert set(got) == {SOURCE[0]}


def test_writelane_ignores_exec():
    got = lanes(SETUP + "s_mov_b32 s20, 77\n s_mov_b64 exec, 1\n s_nop 4\n v_writelane_b32 v8, s20, 9\n s_mov_b64 exec, -1")
    assert np.array_equal(got, np.where(LANE == 9, 77, MARK))


@pytest.mark.parametrize("row", [16, 32])
def test_permlane_swap_exchanges_odd_and_even_rows(row):
    got = lanes(SETUP + f"v_add_u32 v9, 2000, v0\n v_mov_b32 v8, v7\n s_nop 1\n v_permlane{row}_swap_b32 v8, v9", words=2)
    odd = LANE // row % 2 == 1
    first, second = SOURCE, 2000 + LANE
    assert np.array_equal(got[:, 0], np.where(odd, second[LANE - row], first))
    assert np.array_equal(got[:, 1], np.where(odd, second, first[(LANE + row) & 63]))


def test_swap_and_accumulation_registers():
    body = "v_accvgpr_write_b32 a5, v7\n s_nop 2\n v_accvgpr_mov_b32 a6, a5\n s_nop 2\n v_accvgpr_read_b32 v8, a6\n"
    got = lanes(SETUP + body + "v_mov_b32 v9, v0\n v_swap_b32 v8, v9", words=2)
    assert np.array_equal(got[:, 0], LANE)
    assert np.array_equal(got[:, 1], SOURCE)


def test_relative_vgpr_indexing():
    """s_set_gpr_idx_on: M0[7:0] is added to the registers of the operands chosen."""
    body = """
      v_mov_b32 v20, 1
      v_mov_b32 v21, 2
      v_mov_b32 v22, 3
      s_mov_b32 s20, 2
      s_set_gpr_idx_on s20, gpr_idx(SRC0)
      v_mov_b32 v8, v20
      s_set_gpr_idx_mode gpr_idx(DST)
      v_mov_b32 v8, v21
      s_set_gpr_idx_off
      v_mov_b32 v9, v20
    """
    got = lanes(body, words=3)
    assert got[0].tolist() == [3, 1, 2]


def test_vskip_skips_vector_instructions():
    body = """
      v_mov_b32 v8, 1
      v_mov_b32 v9, 1
      s_mov_b32 s20, 0x20
      s_setvskip s20, 5
      v_mov_b32 v8, 2
      ds_write_b32 v77, v77
      s_mov_b32 s21, 3
      s_setvskip s20, 4
      v_mov_b32 v9, s21
    """
    assert lanes(body, words=2)[0].tolist() == [1, 3]


def test_gpr_index_can_change_while_on():
    body = """
      v_mov_b32 v20, 1
      v_mov_b32 v21, 2
      v_mov_b32 v22, 3
      s_mov_b32 s20, 1
      s_mov_b32 s21, 2
      s_set_gpr_idx_on s20, gpr_idx(SRC0)
      v_mov_b32 v8, v20
      s_set_gpr_idx_idx s21
      v_mov_b32 v9, v20
      s_set_gpr_idx_off
    """
    assert lanes(body, words=2)[0].tolist() == [2, 3]


PERMUTE = SETUP + "v_mul_u32_u24 v6, 7, v0\n v_and_b32 v6, 63, v6\n v_lshlrev_b32 v6, 2, v6\n"


def test_bpermute_pulls():
    got = lanes(PERMUTE + "ds_bpermute_b32 v8, v6, v7")
    assert np.array_equal(got, SOURCE[7 * LANE & 63])


def test_bpermute_reads_zero_from_lanes_that_are_off():
    got = lanes(PERMUTE + "s_mov_b64 exec, 0xffff\n s_nop 4\n ds_bpermute_b32 v8, v6, v7\n s_waitcnt lgkmcnt(0)", strict=False)
    source = 7 * LANE & 63
    assert np.array_equal(got, np.where(LANE < 16, np.where(source < 16, SOURCE[source], 0), MARK))


def test_permute_pushes():
    got = lanes(PERMUTE + "ds_permute_b32 v8, v6, v7")
    want = np.zeros(64, int)
    want[7 * LANE & 63] = SOURCE
    assert np.array_equal(got, want)


@pytest.mark.parametrize(
    ("control", "source"),
    [
        ("swizzle(QUAD_PERM, 2, 3, 1, 0)", (LANE & ~3) | np.array([2, 3, 1, 0])[LANE & 3]),
        ("swizzle(SWAP, 4)", LANE ^ 4),
        ("swizzle(REVERSE, 8)", LANE ^ 7),
        ("swizzle(BROADCAST, 8, 3)", (LANE & ~7) | 3),
        ("swizzle(BITMASK_PERM, \"01pi0\")", ((LANE & 0b00110) | 0b01000) ^ 0b00010 | (LANE & 32)),
        ("0xc060", (LANE & 32) | (LANE + 3) & 31),
        ("0xc460", (LANE & 32) | (LANE - 3) & 31),
    ],
)  # fmt: skip
def test_swizzle(control, source):
    got = lanes(SETUP + f"ds_swizzle_b32 v8, v7 offset:{control}")
    assert np.array_equal(got, SOURCE[source])


def test_cmpx_writes_exec_and_a_compare_clears_inactive_bits():
    body = """
      s_mov_b64 exec, 0xff00ff
      v_cmp_gt_u32 s[20:21], 4, v0
      v_cmpx_gt_u32 s[22:23], 20, v0
      v_mov_b32 v8, 1
      s_mov_b64 exec, -1
      v_mov_b32 v9, s20
      v_mov_b32 v10, s22
    """
    got = lanes(SETUP + body, words=3)
    active = (LANE & 8) == 0
    assert np.array_equal(got[:, 0], np.where((LANE < 20) & active & (LANE < 24), 1, MARK))
    assert set(got[:, 1]) == {0xF}
    assert set(got[:, 2]) == {0x0F00FF & 0xFFFFF}


@pytest.mark.parametrize("op_sel_hi", ["[0,1,1]", "[0,0,1]"])
def test_a_mixed_fma_reads_an_inline_constant_in_the_type_of_its_source(toolchain, op_sel_hi):
    """1.0 is 0x3c00 where op_sel_hi says f16, 0x3f800000 where it says f32; clang folds constants of either type."""
    source = f"""
extern "C" __global__ void k(float* out, float x, int half) {{
  asm volatile("v_fma_mix_f32 %0, -%1, 1.0, %2 op_sel_hi:{op_sel_hi}" : "=v"(out[threadIdx.x]) : "v"(x), "v"(half));
}}
"""
    out = np.zeros(64, np.float32)
    launch(compile_hip(source), "k", grid=1, block=64, args=[out, 0.5, 0x4200])  # 3.0 - 0.5
    assert (out == 2.5).all()
