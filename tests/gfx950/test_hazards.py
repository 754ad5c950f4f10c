"""The hazard table against LLVM's own hazard recognizer, and the search along paths.

llc inserts the wait states that it believes in between every producer and consumer below; the table must ask for exactly
as many.
"""

from __future__ import annotations

import itertools
import subprocess

import pytest
from assembler import assemble

from gfx950.decode import Instruction, decode
from gfx950.disassembly import disassemble
from gfx950.flow import control_flow
from gfx950.hazards import LONGEST_WAIT, RULES, find_hazards
from gfx950.tools import find_tool

pytestmark = pytest.mark.usefixtures("toolchain")

STATE = "implicit $mode, implicit $exec"


def v(first: int, count: int) -> str:
    """An MIR vector register."""
    return "$" + "_".join(f"vgpr{index}" for index in range(first, first + count))


def mfma(opcode: str, words: int, a: int, b: int, *, d: int = 0, c: int | None = None, more: str = "0, 0, 0") -> str:
    source_c = v(d if c is None else c, words)
    return f"{v(d, words)} = {opcode}_vgprcd_e64 {v(40, a)}, {v(56, b)}, {source_c}, {more}, {STATE}"


def smfmac(opcode: str, words: int, a: int, b: int, *, d: int = 0) -> str:
    return f"{v(d, words)} = {opcode}_e64 {v(40, a)}, {v(56, b)}, $vgpr72, 0, 0, {v(d, words)}, {STATE}"


# Results start at v0; sources A and B lie out of the way.
PRODUCERS = {
    "xdl-2": mfma("V_MFMA_F32_4X4X4F16", 4, 2, 2),
    "xdl-4": mfma("V_MFMA_F32_16X16X32_BF16", 4, 4, 4),
    "xdl-4-i8": mfma("V_MFMA_I32_16X16X64_I8", 4, 4, 4),
    "xdl-8": mfma("V_MFMA_F32_32X32X16_BF16", 16, 4, 4),
    "xdl-16": mfma("V_MFMA_F32_32X32X4BF16_1K", 32, 2, 2),
    "fp8-16x16": mfma("V_MFMA_F32_16X16X128_F8F6F4_f8_f8", 4, 8, 8, more="0, 0"),
    "fp4-16x16": mfma("V_MFMA_F32_16X16X128_F8F6F4_f4_f4", 4, 4, 4, more="4, 4"),
    "fp8-fp4-16x16": mfma("V_MFMA_F32_16X16X128_F8F6F4_f8_f4", 4, 8, 4, more="0, 4"),
    "fp4-32x32": mfma("V_MFMA_F32_32X32X64_F8F6F4_f4_f4", 16, 4, 4, more="4, 4"),
    "fp8-32x32": mfma("V_MFMA_F32_32X32X64_F8F6F4_f8_f8", 16, 8, 8, more="0, 0"),
    "smfmac-4": smfmac("V_SMFMAC_F32_16X16X64_BF16", 4, 4, 8),
    "smfmac-8": smfmac("V_SMFMAC_F32_32X32X32_BF16", 16, 4, 8),
    "sgemm-2": mfma("V_MFMA_F32_4X4X1F32", 4, 1, 1),
    "sgemm-8": mfma("V_MFMA_F32_16X16X4F32", 4, 1, 1),
    "sgemm-16": mfma("V_MFMA_F32_32X32X2F32", 16, 1, 1),
    "dgemm-4": mfma("V_MFMA_F64_4X4X4F64", 2, 2, 2),
    "dgemm-16": mfma("V_MFMA_F64_16X16X4F64", 8, 2, 2),
    "valu": f"$vgpr0 = V_ADD_F32_e32 $vgpr30, $vgpr31, {STATE}",
    "trans": f"$vgpr0 = V_EXP_F32_e32 $vgpr30, {STATE}",
    "dot": "$vgpr0 = V_DOT4_I32_I8 8, $vgpr30, 8, $vgpr31, 8, $vgpr32, 0, 0, 0, implicit $exec",
    "sdwa": f"$vgpr0 = V_ADD_U32_sdwa 0, $vgpr30, 0, $vgpr31, 0, 0, 2, 6, 6, {STATE}, implicit $vgpr0(tied-def 0)",
    "fp4-convert": f"$vgpr0 = V_CVT_SCALEF32_PK_FP4_F32_e64 0, $vgpr30, 0, $vgpr31, 0, $vgpr32, $vgpr0, 0, {STATE}",
    "fp4-convert-high": f"$vgpr0 = V_CVT_SCALEF32_PK_FP4_F32_e64 8, $vgpr30, 0, $vgpr31, 4, $vgpr32, $vgpr0, 0, {STATE}",
    "fp4-stochastic": f"$vgpr0 = V_CVT_SCALEF32_SR_PK_FP4_F32_e64 0, {v(30, 2)}, 0, $vgpr32, 0, $vgpr33, $vgpr0, 0, {STATE}",
    "fp8-convert": f"$vgpr0 = V_CVT_PK_FP8_F32_e64 0, $vgpr30, 0, $vgpr31, $vgpr0, 0, {STATE}",
    "fp8-convert-high": f"$vgpr0 = V_CVT_PK_FP8_F32_e64 8, $vgpr30, 0, $vgpr31, $vgpr0, 0, {STATE}",
    "fp8-stochastic-0": f"$vgpr0 = V_CVT_SR_FP8_F32_e64 0, $vgpr30, 0, $vgpr31, 0, $vgpr0, 0, {STATE}",
    "fp8-stochastic-1": f"$vgpr0 = V_CVT_SR_FP8_F32_e64 0, $vgpr30, 0, $vgpr31, 4, $vgpr0, 0, {STATE}",
    "fp8-stochastic-2": f"$vgpr0 = V_CVT_SR_FP8_F32_e64 8, $vgpr30, 0, $vgpr31, 0, $vgpr0, 0, {STATE}",
    "fp8-stochastic-3": f"$vgpr0 = V_CVT_SR_FP8_F32_e64 8, $vgpr30, 0, $vgpr31, 4, $vgpr0, 0, {STATE}",
    "f16-high": f"$vgpr0 = V_FMA_F16_gfx9_e64 8, $vgpr30, 0, $vgpr31, 0, $vgpr32, 0, 0, 0, {STATE}",
    "packed": f"{v(0, 2)} = V_PK_ADD_F32 8, {v(30, 2)}, 8, {v(32, 2)}, 0, 0, 0, 0, 0, {STATE}",
    "accvgpr-write": "$agpr0 = V_ACCVGPR_WRITE_B32_e64 $vgpr30, implicit $exec",
    "buffer-store": f"BUFFER_STORE_DWORDX4_OFFSET {v(0, 4)}, $sgpr4_sgpr5_sgpr6_sgpr7, 0, 0, 0, 0, implicit $exec",
    "buffer-store-sgpr": f"BUFFER_STORE_DWORDX4_OFFSET {v(0, 4)}, $sgpr4_sgpr5_sgpr6_sgpr7, $sgpr8, 0, 0, 0, implicit $exec",
    "narrow-store": f"GLOBAL_STORE_DWORDX2 $vgpr30_vgpr31, {v(0, 2)}, 0, 0, implicit $exec",
    "compare": f"$sgpr0_sgpr1 = V_CMP_GT_F32_e64 0, $vgpr30, 0, $vgpr31, 0, {STATE}",
    "compare-vcc": f"V_CMP_GT_F32_e32 $vgpr30, $vgpr31, implicit-def $vcc, {STATE}",
    "cmpx": f"V_CMPX_GT_F32_e32 $vgpr30, $vgpr31, implicit-def $vcc, implicit-def $exec, {STATE}",
    "readfirstlane": "$sgpr0 = V_READFIRSTLANE_B32 $vgpr30, implicit $exec",
    "m0": "$m0 = S_MOV_B32 4",
    "setreg": "S_SETREG_IMM32_B32 3, 2049, implicit-def $mode, implicit $mode",
    "wide-store": f"GLOBAL_STORE_DWORDX4 $vgpr30_vgpr31, {v(0, 4)}, 0, 0, implicit $exec",
    "load": "$vgpr0 = GLOBAL_LOAD_DWORD $vgpr30_vgpr31, 0, 0, implicit $exec",
}
CONSUMERS = {
    "valu-reads": f"$vgpr80 = V_ADD_F32_e32 $vgpr0, $vgpr30, {STATE}",
    "valu-writes": f"$vgpr0 = V_ADD_F32_e32 $vgpr30, $vgpr31, {STATE}",
    "valu-reads-sgpr": f"$vgpr80 = V_ADD_F32_e32 $sgpr0, $vgpr30, {STATE}",
    "valu-reads-vcc": f"$vgpr80 = V_CNDMASK_B32_e32 $vgpr30, $vgpr31, {STATE}, implicit $vcc",
    "trans-reads": f"$vgpr80 = V_EXP_F32_e32 $vgpr0, {STATE}",
    "dot-accumulates": "$vgpr80 = V_DOT4_I32_I8 8, $vgpr30, 8, $vgpr31, 8, $vgpr0, 0, 0, 0, implicit $exec",
    "dot-reads": "$vgpr80 = V_DOT4_I32_I8 8, $vgpr0, 8, $vgpr31, 8, $vgpr32, 0, 0, 0, implicit $exec",
    "dot-writes": "$vgpr0 = V_DOT4_I32_I8 8, $vgpr30, 8, $vgpr31, 8, $vgpr32, 0, 0, 0, implicit $exec",
    "store-reads": "GLOBAL_STORE_DWORD $vgpr30_vgpr31, $vgpr0, 0, 0, implicit $exec",
    "load-writes": "$vgpr0 = GLOBAL_LOAD_DWORD $vgpr30_vgpr31, 0, 0, implicit $exec",
    "lds-reads": "DS_WRITE_B32_gfx9 $vgpr30, $vgpr0, 0, 0, implicit $exec",
    "vmem-reads-sgpr": "$vgpr80 = GLOBAL_LOAD_DWORD_SADDR $sgpr0_sgpr1, $vgpr30, 0, 0, implicit $exec",
    "xdl-a": f"{v(80, 4)} = V_MFMA_F32_16X16X16BF16_1K_vgprcd_e64 {v(0, 2)}, {v(56, 2)}, {v(84, 4)}, 0, 0, 0, {STATE}",
    "xdl-c-same": mfma("V_MFMA_F32_16X16X32_BF16", 4, 4, 4, d=80, c=0),
    "xdl-c-overlap": mfma("V_MFMA_F32_16X16X32_BF16", 4, 4, 4, d=80, c=2),
    "xdl-c-wide": mfma("V_MFMA_F32_32X32X16_BF16", 16, 4, 4, d=80, c=0),
    "sgemm-a": f"{v(80, 4)} = V_MFMA_F32_16X16X4F32_vgprcd_e64 $vgpr0, $vgpr56, {v(84, 4)}, 0, 0, 0, {STATE}",
    "sgemm-c-overlap": mfma("V_MFMA_F32_16X16X4F32", 4, 1, 1, d=80, c=2),
    "dgemm-a": f"{v(80, 2)} = V_MFMA_F64_4X4X4F64_vgprcd_e64 {v(0, 2)}, {v(56, 2)}, {v(84, 2)}, 0, 0, 0, {STATE}",
    "dgemm-c-same": mfma("V_MFMA_F64_4X4X4F64", 2, 2, 2, d=80, c=0),
    "dgemm-c-overlap": mfma("V_MFMA_F64_16X16X4F64", 8, 2, 2, d=80, c=0),
    "smfmac": smfmac("V_SMFMAC_F32_16X16X64_BF16", 4, 4, 8, d=2),
    "fma-f64": f"{v(80, 2)} = V_FMA_F64_e64 0, {v(30, 2)}, 0, {v(32, 2)}, 0, {v(34, 2)}, 0, 0, {STATE}",
    "dpp": "$vgpr80 = V_MOV_B32_dpp $vgpr80, $vgpr0, 320, 15, 15, 0, implicit $exec",
    "readlane": "$sgpr80 = V_READLANE_B32 $vgpr0, 3",
    "readfirstlane": "$sgpr80 = V_READFIRSTLANE_B32 $vgpr0, implicit $exec",
    "lane-select": "$sgpr80 = V_READLANE_B32 $vgpr30, $sgpr0",
    "div-fmas": f"$vgpr80 = V_DIV_FMAS_F32_e64 0, $vgpr30, 0, $vgpr31, 0, $vgpr32, 0, 0, {STATE}, implicit $vcc",
    "permlane": "$vgpr0, $vgpr81 = V_PERMLANE32_SWAP_B32_e32 $vgpr0, $vgpr81, implicit $exec",
    "lds-dma": "BUFFER_LOAD_DWORD_LDS_OFFEN $vgpr30, $sgpr4_sgpr5_sgpr6_sgpr7, 0, 0, 0, 0, implicit $exec, implicit $m0",
    "getreg": "$sgpr80 = S_GETREG_B32 2049, implicit $mode",
    "setreg": "S_SETREG_IMM32_B32 1, 2049, implicit-def $mode, implicit $mode",
}


def known_difference(producer: str, consumer: str) -> str | None:
    """Why LLVM 22 and the table disagree on a pair, where they do."""
    memory = consumer in ("store-reads", "load-writes", "vmem-reads-sgpr", "lds-dma")
    if producer == "packed":
        return "LLVM takes op_sel_hi of a packed instruction for op_sel of its result: one bit has both meanings"
    if producer == "buffer-store-sgpr":
        return "one wait state only since LLVM 23"
    if producer == "cmpx" and memory:
        return "LLVM counts EXEC among the scalar registers that a memory instruction reads"
    if producer == "load" and memory:
        return "no dependence between registers: LLVM keeps loads and stores out of one clause, for replays under XNACK"
    return None


def llvm_schedules(pairs: list[tuple[str, str]], folder) -> dict[tuple[str, str], list[Instruction]]:
    """Machine code of each pair with the s_nops that LLVM puts between."""
    functions = [
        f"---\nname: f{number}\nbody: |\n  bb.0:\n    {PRODUCERS[p]}\n    {CONSUMERS[c]}\n    S_ENDPGM 0\n...\n"
        for number, (p, c) in enumerate(pairs)
    ]
    (folder / "pairs.mir").write_text("".join(functions))
    llc = [*find_tool("llc", "tests compare with LLVM").command, "-mtriple=amdgcn-amd-amdhsa", "-mcpu=gfx950"]
    arguments = ["-start-before=post-RA-hazard-rec", "-filetype=obj", "pairs.mir", "-o", "pairs.o"]
    subprocess.run([*llc, *arguments], check=True, cwd=folder, capture_output=True)
    code: dict[str, list] = {}
    for line in disassemble((folder / "pairs.o").read_bytes()):
        code.setdefault(line.symbol, []).append(line)
    return {pair: decode(code[f"f{number}"]) for number, pair in enumerate(pairs)}


def strip(code: list[Instruction]) -> tuple[list[Instruction], int]:
    """Producer and consumer alone, and how many wait states stood between."""
    end = next(index for index, inst in enumerate(code) if inst.mnemonic == "s_endpgm")
    nops = [inst for inst in code[:end] if inst.mnemonic == "s_nop"]
    return [inst for inst in code[: end + 1] if inst.mnemonic != "s_nop"], sum((nop.words[0] & 15) + 1 for nop in nops)


def needed(code: list[Instruction]) -> int:
    return max((hazard.needed for hazard in find_hazards(code, control_flow(code))), default=0)


@pytest.fixture(scope="module")
def schedules(toolchain, tmp_path_factory) -> dict[tuple[str, str], list[Instruction]]:
    return llvm_schedules(list(itertools.product(PRODUCERS, CONSUMERS)), tmp_path_factory.mktemp("pairs"))


def test_every_pair_needs_what_llvm_inserts(schedules):
    wrong = []
    for pair, code in schedules.items():
        bare, inserted = strip(code)
        if needed(bare) != min(inserted, LONGEST_WAIT) and not known_difference(*pair):
            wrong.append(f"{pair[0]} -> {pair[1]}: table {needed(bare)}, LLVM {inserted}: {[i.text for i in bare]}")
    assert not wrong, "\n".join(wrong)


def test_the_rules_all_meet_in_those_pairs(schedules):
    """Otherwise a rule would stand unchecked."""
    codes = [strip(code)[0] for code in schedules.values()]
    met = {hazard.rule.name for code in codes for hazard in find_hazards(code, control_flow(code))}
    assert {rule.name for rule in RULES} - met == set()


def found(text: str) -> list[tuple[str, int, int]]:
    code = assemble(text)
    return [(hazard.rule.name, hazard.needed, hazard.found) for hazard in find_hazards(code, control_flow(code))]


MFMA = "v_mfma_f32_16x16x32_bf16 v[0:3], v[4:7], v[8:11], v[0:3]\n"


@pytest.mark.parametrize(
    ("between", "distance"), [("", 0), ("s_nop 6\n", 7), ("s_nop 0\ns_nop 2\n", 4), ("v_mov_b32 v20, 1\n", 1)]
)
def test_instructions_and_nops_between_count(between, distance):
    assert found(MFMA + between + "v_add_f32 v20, v0, v1\ns_endpgm\n") == [("mfma-read", 8, distance)]


def test_enough_states_are_enough():
    assert found(MFMA + "s_nop 7\nv_add_f32 v20, v0, v1\ns_endpgm\n") == []
    assert found(MFMA + "v_mov_b32 v20, 1\n" * 8 + "v_add_f32 v20, v0, v1\ns_endpgm\n") == []


def test_a_chain_on_the_same_registers_ends_with_its_last_product():
    """The first product would ask for 12 states, but the second ends later and asks for 8."""
    first = "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[0:3]\n"
    assert found(first + MFMA + "s_nop 7\nv_add_f32 v20, v0, v1\ns_endpgm\n") == []
    assert found(first + MFMA + "s_nop 5\nv_add_f32 v20, v0, v1\ns_endpgm\n") == [("mfma-read", 8, 6)]
    other = MFMA.replace("v[0:3]", "v[24:27]")
    assert found(first + other + "s_nop 7\nv_add_f32 v20, v0, v1\ns_endpgm\n") == [("mfma-read", 12, 9)]


def test_the_shortest_path_counts():
    """One way round has the waits, the branch does not."""
    text = MFMA + "s_cbranch_scc0 skip\ns_nop 7\ns_nop 7\nskip:\nv_add_f32 v20, v0, v1\ns_endpgm\n"
    assert found(text) == [("mfma-read", 8, 1)]


def test_a_loop_carries_a_hazard_from_its_end_to_its_beginning():
    text = "loop:\nv_add_f32 v20, v0, v1\ns_nop 3\n" + MFMA + "s_sub_u32 s0, s0, 1\ns_cbranch_scc0 loop\ns_endpgm\n"
    assert found(text) == [("mfma-read", 8, 2)]


def test_different_registers_are_no_hazard():
    assert found(MFMA + "v_add_f32 v20, v4, v12\ns_endpgm\n") == []


def test_shipped_distances_are_advice_and_less_is_a_hazard():
    code = "v_mov_b32 v0, v1\n{}v_mov_b32_dpp v2, v0 row_mirror row_mask:0xf bank_mask:0xf\ns_endpgm\n"
    for between, advisory in (("", False), ("s_nop 0\n", True)):
        instructions = assemble(code.format(between))
        (hazard,) = find_hazards(instructions, control_flow(instructions))
        assert (hazard.rule.name, hazard.advisory) == ("vgpr-to-dpp", advisory)
