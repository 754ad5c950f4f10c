"""Assembled instructions run in the emulator give what the same operation gives when it is called directly: this pins operand
order, constants and modifiers between the disassembler's text and the arithmetic.

Registers: v[8:15], v[16:23], v[24:31] hold three sources, v[32:39] the destination. All of them go in, the destination out.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from arith_call import LANES, UP, ZERO, Mode, describe, run_with_mask
from assembler import assembled

from gfx950.emulator import Buffer, RawKernarg, launch

SLOTS = {"v8": 0, "v16": 8, "v24": 16, "v32": 24}
REGISTERS = 32
ASSEMBLER_MODE = Mode(fp32_denorm=0)  # what .amdhsa_kernel sets unless told otherwise


@dataclass(frozen=True)
class Case:
    """An instruction and the call it must equal: sources by register name ("v8", "v8.byte2", "v8.word1") or constant words."""

    text: str
    op: str
    sources: tuple[Any, ...]
    modifiers: dict[str, Any] = field(default_factory=dict)
    extras: tuple[str, ...] = ()
    mode: Mode = ASSEMBLER_MODE

    def __str__(self) -> str:
        return self.text.replace("\n", "; ")


def f32(x: float) -> int:
    return int(np.float32(x).view(np.uint32))


def f16(x: float) -> int:
    return int(np.float16(x).view(np.uint16))


def f64(x: float) -> tuple[int, int]:
    bits = int(np.float64(x).view(np.uint64))
    return bits & 0xFFFFFFFF, bits >> 32


LANE_CASES = [
    Case("v_sub_f32 v32, v8, v16", "v_sub_f32", ("v8", "v16")),
    Case("v_subrev_f32 v32, v8, v16", "v_subrev_f32", ("v8", "v16")),
    Case("v_sub_f32_e64 v32, -v8, |v16|", "v_sub_f32", ("v8", "v16"), {"neg": 1, "abs": 2}),
    Case("v_sub_f32_e64 v32, -|v8|, v16 clamp", "v_sub_f32", ("v8", "v16"), {"neg": 1, "abs": 1, "clamp": 1}),
    Case("v_mul_f32 v32, 0x40490fdb, v16", "v_mul_f32", (0x40490FDB, "v16")),
    Case("v_add_f32 v32, 0.5, v16", "v_add_f32", (f32(0.5), "v16")),
    Case("v_add_u32 v32, -16, v16", "v_add_u32", (0xFFFFFFF0, "v16")),
    Case("v_fma_f32 v32, v8, -v16, v24", "v_fma_f32", ("v8", "v16", "v24"), {"neg": 2}),
    Case("v_fmac_f32 v32, v8, v16", "v_fmac_f32", ("v8", "v16")),
    Case("v_fmamk_f32 v32, v8, 0x3fc00000, v16", "v_fmamk_f32", ("v8", f32(1.5), "v16")),
    Case("v_fmaak_f32 v32, v8, v16, 0x3fc00000", "v_fmaak_f32", ("v8", "v16", f32(1.5))),
    Case("v_med3_f32 v32, v8, v16, 1.0", "v_med3_f32", ("v8", "v16", f32(1))),
    Case("v_ldexp_f32 v32, v8, 3", "v_ldexp_f32", ("v8", 3)),
    Case("v_exp_f32 v32, -v8", "v_exp_f32", ("v8",), {"neg": 1}),
    Case("v_lshlrev_b32 v32, 5, v16", "v_lshlrev_b32", (5, "v16")),
    Case("v_ashrrev_i32 v32, v8, v16", "v_ashrrev_i32", ("v8", "v16")),
    Case("v_bfe_i32 v32, v8, 5, 9", "v_bfe_i32", ("v8", 5, 9)),
    Case("v_bfi_b32 v32, v8, v16, v24", "v_bfi_b32", ("v8", "v16", "v24")),
    Case("v_alignbit_b32 v32, v8, v16, 7", "v_alignbit_b32", ("v8", "v16", 7)),
    Case("v_perm_b32 v32, v8, v16, v24", "v_perm_b32", ("v8", "v16", "v24")),
    Case("v_lshl_add_u32 v32, v8, 4, v24", "v_lshl_add_u32", ("v8", 4, "v24")),
    Case("v_lshl_or_b32 v32, v8, 4, v24", "v_lshl_or_b32", ("v8", 4, "v24")),
    Case("v_and_or_b32 v32, v8, v16, v24", "v_and_or_b32", ("v8", "v16", "v24")),
    Case("v_bitop3_b32 v32, v8, v16, v24 bitop3:0xb2", "v_bitop3_b32", ("v8", "v16", "v24"), {"bitop3": 0xB2}),
    Case("v_mad_u32_u24 v32, v8, v16, v24", "v_mad_u32_u24", ("v8", "v16", "v24")),
    Case("v_mul_hi_u32 v32, v8, v16", "v_mul_hi_u32", ("v8", "v16")),
    Case("v_sad_u8 v32, v8, v16, v24", "v_sad_u8", ("v8", "v16", "v24")),
    Case("v_mbcnt_hi_u32_b32 v32, -1, v16", "v_mbcnt_hi_u32_b32", (0xFFFFFFFF, "v16")),
    Case("v_cvt_f32_ubyte2 v32, v8", "v_cvt_f32_ubyte2", ("v8",)),
    Case("v_prng_b32 v32, v8", "v_prng_b32", ("v8",)),
]
WIDE_CASES = [
    Case("v_add_f64 v[32:33], v[8:9], -v[16:17]", "v_add_f64", ("v8", "v16"), {"neg": 2}),
    Case("v_mul_f64 v[32:33], v[8:9], 4.0", "v_mul_f64", ("v8", f64(4.0))),
    Case("v_fma_f64 v[32:33], v[8:9], v[16:17], v[24:25]", "v_fma_f64", ("v8", "v16", "v24")),
    Case("v_ldexp_f64 v[32:33], v[8:9], v16", "v_ldexp_f64", ("v8", "v16")),
    Case("v_cvt_f64_f32 v[32:33], v8", "v_cvt_f64_f32", ("v8",)),
    Case("v_lshlrev_b64 v[32:33], 9, v[16:17]", "v_lshlrev_b64", (9, "v16")),
    Case("v_lshl_add_u64 v[32:33], v[8:9], 3, v[24:25]", "v_lshl_add_u64", ("v8", 3, "v24")),
    Case("v_mad_u64_u32 v[32:33], vcc, v8, v16, v[24:25]", "v_mad_u64_u32", ("v8", "v16", "v24")),
    Case("v_pk_fma_f32 v[32:33], v[8:9], v[16:17], v[24:25] op_sel:[1,0,0] op_sel_hi:[0,1,1] neg_lo:[0,1,0]", "v_pk_fma_f32",
         ("v8", "v16", "v24"), {"op_sel": 1, "op_sel_hi": 6, "neg": 2}),
    Case("v_pk_mul_f32 v[32:33], v[8:9], v[16:17]", "v_pk_mul_f32", ("v8", "v16")),
    Case("v_pk_mov_b32 v[32:33], v[8:9], v[16:17] op_sel:[1,0]", "v_pk_mov_b32", ("v8", "v16"), {"op_sel": 1}),
    Case("v_qsad_pk_u16_u8 v[32:33], v[8:9], v16, v[24:25]", "v_qsad_pk_u16_u8", ("v8", "v16", "v24")),
    Case("v_mov_b64 v[32:33], v[8:9]", "v_mov_b64", ("v8",)),
]  # fmt: skip
HALF_CASES = [
    Case("v_mul_f16 v32, 0.5, v16", "v_mul_f16", (f16(0.5), "v16")),
    Case("v_fma_f16 v32, v8, v16, v24 op_sel:[1,0,1,1]", "v_fma_f16", ("v8", "v16", "v24"), {"op_sel": 13}),
    Case("v_mad_u16 v32, v8, v16, v24 op_sel:[0,1,0,0]", "v_mad_u16", ("v8", "v16", "v24"), {"op_sel": 2}),
    Case("v_add_i16 v32, v8, v16 op_sel:[0,1,1]", "v_add_i16", ("v8", "v16"), {"op_sel": 10}),
    Case("v_pk_add_f16 v32, v8, v16 op_sel:[0,1] op_sel_hi:[1,0] neg_lo:[1,0] neg_hi:[0,1]", "v_pk_add_f16", ("v8", "v16"),
         {"op_sel": 2, "op_sel_hi": 1, "neg": 1, "neg_hi": 2}),
    Case("v_pk_mul_f16 v32, v8, 2.0 op_sel_hi:[1,0]", "v_pk_mul_f16", ("v8", f16(2)), {"op_sel_hi": 1}),
    Case("v_pk_fma_f16 v32, v8, v16, v24", "v_pk_fma_f16", ("v8", "v16", "v24")),
    Case("v_pk_mad_i16 v32, v8, v16, v24 op_sel_hi:[1,0,1] clamp", "v_pk_mad_i16", ("v8", "v16", "v24"),
         {"op_sel_hi": 5, "clamp": 1}),
    Case("v_pk_lshlrev_b16 v32, 3, v16 op_sel_hi:[0,1]", "v_pk_lshlrev_b16", (3, "v16"), {"op_sel_hi": 2}),
    Case("v_pk_minimum3_f16 v32, v8, v16, v24", "v_pk_minimum3_f16", ("v8", "v16", "v24")),
    Case("v_fma_mix_f32 v32, v8, -v16, |v24| op_sel:[1,0,0] op_sel_hi:[1,1,0]", "v_fma_mix_f32", ("v8", "v16", "v24"),
         {"op_sel": 1, "op_sel_hi": 3, "neg": 2, "neg_hi": 4}),
    Case("v_fma_mixhi_f16 v32, v8, v16, v24 op_sel_hi:[0,1,0]", "v_fma_mixhi_f16", ("v8", "v16", "v24"), {"op_sel_hi": 2}),
    Case("v_pack_b32_f16 v32, v8, v16 op_sel:[1,0,0]", "v_pack_b32_f16", ("v8", "v16"), {"op_sel": 1}),
    Case("v_dot2_f32_f16 v32, v8, v16, v24", "v_dot2_f32_f16", ("v8", "v16", "v24")),
    Case("v_dot2_f32_bf16 v32, v8, v16, v24 neg_lo:[1,0,0]", "v_dot2_f32_bf16", ("v8", "v16", "v24"), {"neg": 1}),
    Case("v_dot2c_f32_bf16 v32, v8, v16", "v_dot2c_f32_bf16", ("v8", "v16")),
    Case("v_dot4_i32_i8 v32, v8, v16, v24", "v_dot4_i32_i8", ("v8", "v16", "v24")),
    Case("v_dot8_u32_u4 v32, v8, v16, 7 clamp", "v_dot8_u32_u4", ("v8", "v16", 7), {"clamp": 1}),
]  # fmt: skip
CONVERT_CASES = [
    Case("v_cvt_pk_bf16_f32 v32, v8, v16", "v_cvt_pk_bf16_f32", ("v8", "v16")),
    Case("v_cvt_pkrtz_f16_f32 v32, v8, -v16", "v_cvt_pkrtz_f16_f32", ("v8", "v16"), {"neg": 2}),
    Case("v_cvt_pk_fp8_f32 v32, v8, v16 op_sel:[0,0,1]", "v_cvt_pk_fp8_f32", ("v8", "v16"), {"op_sel": 8}),
    Case("v_cvt_pk_fp8_f32 v32, v8, v16", "v_cvt_pk_fp8_f32", ("v8", "v16")),
    Case("v_cvt_sr_fp8_f32 v32, v8, v16 op_sel:[0,0,1,1]", "v_cvt_sr_fp8_f32", ("v8", "v16"), {"op_sel": 12}),
    Case("v_cvt_sr_bf16_f32 v32, v8, v16 op_sel:[0,0,1]", "v_cvt_sr_bf16_f32", ("v8", "v16"), {"op_sel": 8}),
    Case("v_cvt_pk_u8_f32 v32, v8, 2, v24", "v_cvt_pk_u8_f32", ("v8", 2, "v24")),
    Case("v_cvt_scalef32_pk_bf16_fp8 v32, v8, v16 op_sel:[1,0,0]", "v_cvt_scalef32_pk_bf16_fp8", ("v8", "v16"), {"op_sel": 1}),
    Case("v_cvt_scalef32_pk_f32_fp4 v[32:33], v8, v16 op_sel:[0,1,0]", "v_cvt_scalef32_pk_f32_fp4", ("v8", "v16"),
         {"op_sel": 2}),
    Case("v_cvt_scalef32_pk_fp8_f32 v32, v8, v16, v24 op_sel:[0,0,0,1]", "v_cvt_scalef32_pk_fp8_f32", ("v8", "v16", "v24"),
         {"op_sel": 8}),
    Case("v_cvt_scalef32_pk_fp4_f32 v32, v8, v16, v24 op_sel:[0,0,1,1]", "v_cvt_scalef32_pk_fp4_f32", ("v8", "v16", "v24"),
         {"op_sel": 12}),
    Case("v_cvt_scalef32_pk_fp4_bf16 v32, v8, v16 op_sel:[0,0,1,0]", "v_cvt_scalef32_pk_fp4_bf16", ("v8", "v16"),
         {"op_sel": 4}),
    Case("v_cvt_scalef32_sr_bf8_f16 v32, v8, v16, v24 op_sel:[0,0,0,1]", "v_cvt_scalef32_sr_bf8_f16", ("v8", "v16", "v24"),
         {"op_sel": 8}),
    Case("v_cvt_scalef32_f16_fp8 v32, v8, v16 op_sel:[1,1,1]", "v_cvt_scalef32_f16_fp8", ("v8", "v16"), {"op_sel": 11}),
    Case("v_ashr_pk_u8_i32 v32, v8, v16, 4 op_sel:[0,0,0,1]", "v_ashr_pk_u8_i32", ("v8", "v16", 4), {"op_sel": 8}),
    Case("v_sat_pk_u8_i16 v32, v8", "v_sat_pk_u8_i16", ("v8",)),
]  # fmt: skip
MATRIX_CASES = [
    Case("v_mfma_f32_16x16x32_bf16 v[32:35], v[8:11], v[16:19], v[24:27]", "v_mfma_f32_16x16x32_bf16", ("v8", "v16", "v24")),
    Case("v_mfma_f32_16x16x32_bf16 v[32:35], v[8:11], v[16:19], 1.0", "v_mfma_f32_16x16x32_bf16", ("v8", "v16", (f32(1),) * 4)),
    Case("v_mfma_f32_16x16x16_f16 v[32:35], v[8:9], v[16:17], v[24:27] blgp:3", "v_mfma_f32_16x16x16_f16",
         ("v8", "v16", "v24"), {"blgp": 3}),
    Case("v_mfma_f32_4x4x4_16b_f16 v[32:35], v[8:9], v[16:17], v[24:27] cbsz:2 abid:1", "v_mfma_f32_4x4x4_16b_f16",
         ("v8", "v16", "v24"), {"cbsz": 2, "abid": 1}),
    Case("v_mfma_i32_16x16x64_i8 v[32:35], v[8:11], v[16:19], v[24:27]", "v_mfma_i32_16x16x64_i8", ("v8", "v16", "v24")),
    Case("v_mfma_f32_16x16x32_fp8_bf8 v[32:35], v[8:9], v[16:17], v[24:27]", "v_mfma_f32_16x16x32_fp8_bf8",
         ("v8", "v16", "v24")),
    Case("v_mfma_f64_4x4x4_4b_f64 v[32:33], v[8:9], v[16:17], v[24:25] neg:[1,0,1]", "v_mfma_f64_4x4x4_4b_f64",
         ("v8", "v16", "v24"), {"blgp": 5}),
    Case("v_mfma_f32_16x16x128_f8f6f4 v[32:35], v[8:15], v[16:19], v[24:27] blgp:4", "v_mfma_f32_16x16x128_f8f6f4",
         ("v8", "v16", "v24"), {"blgp": 4}),
    Case("v_mfma_f32_16x16x128_f8f6f4 v[32:35], v[8:13], v[16:23], v[24:27] cbsz:3 blgp:1", "v_mfma_f32_16x16x128_f8f6f4",
         ("v8", "v16", "v24"), {"cbsz": 3, "blgp": 1}),
    Case("v_mfma_scale_f32_16x16x128_f8f6f4 v[32:35], v[8:15], v[16:19], v[24:27], v28, v29 "
         "op_sel:[1,0,0] op_sel_hi:[0,1,0] blgp:4",
         "v_mfma_scale_f32_16x16x128_f8f6f4", ("v8", "v16", "v24"), {"op_sel": 1, "op_sel_hi": 2, "blgp": 4}, ("v28", "v29")),
    Case("v_smfmac_f32_16x16x64_bf16 v[32:35], v[8:11], v[16:23], v28 abid:1", "v_smfmac_f32_16x16x64_bf16",
         ("v8", "v16", "v32"), {"abid": 1}, ("v28",)),
]  # fmt: skip
SDWA_CASES = [
    Case("v_cvt_f32_fp8_sdwa v32, v8 src0_sel:BYTE_2", "v_cvt_f32_fp8", ("v8.byte2",)),
    Case("v_cvt_pk_f32_bf8_sdwa v[32:33], v8 src0_sel:WORD_1", "v_cvt_pk_f32_bf8", ("v8.word1",)),
    Case("v_add_u32_sdwa v32, v8, v16 dst_sel:DWORD src0_sel:BYTE_1 src1_sel:WORD_1", "v_add_u32", ("v8.byte1", "v16.word1")),
    Case(
        "v_mul_f16_sdwa v32, -v8, v16 dst_sel:DWORD src0_sel:WORD_1 src1_sel:WORD_0",
        "v_mul_f16",
        ("v8.word1", "v16.word0"),
        {"neg": 1},
    ),
]
SET_MODE = "s_nop 1\ns_setreg_imm32_b32 hwreg(HW_REG_MODE, {}, {}), {}"
MODE_CASES = [
    Case(SET_MODE.format(23, 1, 1) + "\nv_cvt_pk_fp8_f32 v32, v8, v16\n" + SET_MODE.format(23, 1, 0), "v_cvt_pk_fp8_f32",
         ("v8", "v16"), mode=replace(ASSEMBLER_MODE, fp16_overflow=True)),
    Case(SET_MODE.format(0, 2, 3) + "\nv_fma_f32 v32, v8, v16, v24\n" + SET_MODE.format(0, 2, 0), "v_fma_f32",
         ("v8", "v16", "v24"), mode=replace(ASSEMBLER_MODE, round32=ZERO)),
    Case(SET_MODE.format(2, 2, 1) + "\nv_fma_f64 v[32:33], v[8:9], v[16:17], v[24:25]\n" + SET_MODE.format(2, 2, 0),
         "v_fma_f64", ("v8", "v16", "v24"), mode=replace(ASSEMBLER_MODE, round16_64=UP)),
    Case(SET_MODE.format(4, 2, 3) + "\nv_mul_f32 v32, v8, v16\n" + SET_MODE.format(4, 2, 0), "v_mul_f32", ("v8", "v16"),
         mode=replace(ASSEMBLER_MODE, fp32_denorm=3)),
]  # fmt: skip
MASK_CASES = [
    Case("v_cndmask_b32 v32, v8, v16, vcc", "v_cndmask_b32", ("v8", "v16")),
    Case("v_cndmask_b32_e64 v32, -v8, 1.0, vcc", "v_cndmask_b32", ("v8", f32(1)), {"neg": 1}),
    Case("v_addc_co_u32 v32, vcc, v8, v16, vcc", "v_addc_co_u32", ("v8", "v16")),
    Case("v_subbrev_co_u32 v32, vcc, v8, v16, vcc", "v_subbrev_co_u32", ("v8", "v16")),
    Case("v_div_fmas_f32 v32, v8, v16, v24", "v_div_fmas_f32", ("v8", "v16", "v24")),
    Case("v_div_scale_f32 v32, vcc, v8, v8, v16", "v_div_scale_f32", ("v8", "v8", "v16")),
    Case("v_div_scale_f64 v[32:33], vcc, v[16:17], v[8:9], v[16:17]", "v_div_scale_f64", ("v16", "v8", "v16")),
    Case("v_sub_co_u32 v32, vcc, v8, v16", "v_sub_co_u32", ("v8", "v16")),
]
COMPARE_CASES = [
    Case("v_cmp_lt_f32 vcc, v8, v16", "v_cmp_lt_f32", ("v8", "v16")),
    Case("v_cmp_nge_f32_e64 vcc, |v8|, -v16", "v_cmp_nge_f32", ("v8", "v16"), {"abs": 1, "neg": 2}),
    Case("v_cmp_gt_i32 vcc, 7, v16", "v_cmp_gt_i32", (7, "v16")),
    Case("v_cmp_le_u64 vcc, v[8:9], v[16:17]", "v_cmp_le_u64", ("v8", "v16")),
    Case("v_cmp_eq_u16 vcc, v8, v16", "v_cmp_eq_u16", ("v8", "v16")),
    Case("v_cmp_class_f32 vcc, v8, v16", "v_cmp_class_f32", ("v8", "v16")),
    Case("v_cmp_lg_f64 vcc, v[8:9], v[16:17]", "v_cmp_lg_f64", ("v8", "v16")),
]
VCC = 0x5A3C_F00F_9669_1357
PLAIN = [*LANE_CASES, *WIDE_CASES, *HALF_CASES, *CONVERT_CASES, *MATRIX_CASES, *SDWA_CASES, *MODE_CASES]


def assembly(cases: list[Case], store: str) -> str:
    """All cases in one kernel: load the registers, run one instruction, store, again. s[4:5] input, s[6:7] output."""
    lines = ["s_load_dwordx4 s[4:7], s[0:1], 0x0", "v_lshlrev_b32 v1, 2, v0", "s_waitcnt lgkmcnt(0)"]
    for case in cases:
        lines += [f"global_load_dword v{8 + r}, v1, s[4:5] offset:{256 * r - 4096}" for r in range(REGISTERS)]
        lines += ["s_waitcnt vmcnt(0)", f"s_mov_b32 vcc_lo, {VCC & 0xFFFFFFFF:#x}", f"s_mov_b32 vcc_hi, {VCC >> 32:#x}"]
        lines += ["s_nop 15", case.text, "s_nop 15", "s_nop 15", store, "s_waitcnt vmcnt(0)"]
        lines += [f"global_store_dword v1, v{32 + r}, s[6:7] offset:{256 * r}" for r in range(8)]
        lines += ["s_add_u32 s6, s6, 0x800", "s_addc_u32 s7, s7, 0"]
    return "\n".join([*lines, "s_endpgm"])


STORE_VCC = "v_mov_b32 v38, vcc_lo\nv_mov_b32 v39, vcc_hi"


def machine_results(folder, cases: list[Case], registers: np.ndarray, store: str = "") -> np.ndarray:
    """(cases, 8, 64): v[32:39] after each case, run by the emulator."""
    out = np.zeros((len(cases), 8, LANES), np.uint32)
    kernarg = RawKernarg(bytes(16), {0: Buffer(registers, offset=4096), 8: Buffer(out)})
    launch(assembled(folder, assembly(cases, store)), "k", grid=1, block=LANES, args=kernarg)
    return out


def operand(source: Any, words: int, registers: np.ndarray) -> np.ndarray:
    if isinstance(source, str) and "." in source:
        register, part = source.split(".")
        bits = 8 if part.startswith("byte") else 16
        return operand(register, 1, registers) >> np.uint32(bits * int(part[4:])) & np.uint32((1 << bits) - 1)
    if isinstance(source, str):
        start = SLOTS.get(source, int(source[1:]) - 8)
        return registers[start : start + words]
    values = source if isinstance(source, tuple) else (source,) + (0,) * (words - 1)
    return np.repeat(np.array(values, np.uint32)[:, None], LANES, axis=1)


def direct_result(case: Case, registers: np.ndarray) -> tuple[np.ndarray, int]:
    """The same operation called directly: v[32:39] afterwards and the lane mask."""
    op = describe(case.op)
    assert op is not None
    widths = [*op.src_words[:2], op.dst_words] if "smfmac" in case.op else op.src_words
    sources = [operand(s, w, registers) for s, w in zip(case.sources, widths, strict=True)]
    result = registers[SLOTS["v32"] :].copy()
    extras = tuple(operand(e, 1, registers) for e in case.extras)
    options: dict[str, Any] = {"dst": result[: max(op.dst_words, 1)], "mask": VCC, "extras": extras}
    computed, mask = run_with_mask(case.op, *sources, mode=case.mode, **options, **case.modifiers)
    if op.dst_words:
        result[: op.dst_words] = computed
    return result, mask


@pytest.fixture(scope="module")
def registers() -> np.ndarray:
    """(32, 64) inputs that mean something as f32, f16 pairs, f64 and integers."""
    rng = np.random.default_rng(950)
    values = (rng.standard_normal((REGISTERS, LANES)) * 3).astype(np.float32).view(np.uint32)
    values[:, ::4] = rng.integers(0, 1 << 32, (REGISTERS, LANES // 4), dtype=np.uint32)
    return values & 0xFF7FFF7F  # no NaN of any width: payloads of a result with two NaN sources are not specified


@pytest.fixture(scope="module")
def plain_results(toolchain: None, registers: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    return machine_results(tmp_path_factory.mktemp("plain"), PLAIN, registers)


@pytest.mark.parametrize("index", range(len(PLAIN)), ids=[str(case) for case in PLAIN])
def test_instruction(index: int, plain_results: np.ndarray, registers: np.ndarray) -> None:
    want, _ = direct_result(PLAIN[index], registers)
    assert np.array_equal(plain_results[index], want)


@pytest.fixture(scope="module")
def mask_results(toolchain: None, registers: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    return machine_results(tmp_path_factory.mktemp("masks"), [*MASK_CASES, *COMPARE_CASES], registers, STORE_VCC)


@pytest.mark.parametrize("index", range(len(MASK_CASES) + len(COMPARE_CASES)), ids=map(str, [*MASK_CASES, *COMPARE_CASES]))
def test_instruction_with_lane_mask(index: int, mask_results: np.ndarray, registers: np.ndarray) -> None:
    case = [*MASK_CASES, *COMPARE_CASES][index]
    want, mask = direct_result(case, registers)
    op = describe(case.op)
    assert op is not None
    got = mask_results[index]
    assert np.array_equal(got[: op.dst_words], want[: op.dst_words])
    assert int(got[6, 0]) | int(got[7, 0]) << 32 == (mask if op.mask_out or op.kind == "compare" else VCC)
