"""The decoder against the assembler: every instruction of gfx950, taken apart and put together again, has the same words."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opcodes import assemble, examples

from gfx950.decode import ABS, NEG, SEXT, Kind, decode, decode_one

EXAMPLES_EACH = 4


@pytest.fixture(scope="module")
def decoded(tmp_path_factory):
    texts = [text for found in examples().values() for text in found[:EXAMPLES_EACH]]
    lines, _ = assemble(texts, tmp_path_factory.mktemp("asm"))
    return decode(line for line in lines if line)


def test_the_listing_is_complete():
    """LLVM 22 knows 1,700 gfx950 mnemonics, counting encodings apart; fewer would mean that the search went wrong."""
    assert len(examples()) > 1700
    for mnemonic in ("v_mfma_scale_f32_16x16x128_f8f6f4", "ds_read_b64_tr_b8", "v_permlane16_swap_b32_e32", "s_set_gpr_idx_on"):
        assert mnemonic in examples()


def test_everything_is_understood(decoded):
    assert [inst.text for inst in decoded if inst.problem] == []
    assert len(decoded) > 5000


def test_round_trip(decoded, tmp_path):
    lines, _ = assemble([inst.assembly() for inst in decoded], tmp_path)
    wrong = [inst.text for inst, line in zip(decoded, lines, strict=True) if line is None or line.words != inst.words]
    assert wrong == []


def one(text: str, word: int = 0):
    mnemonic, _, arguments = text.partition(" ")
    return decode_one(mnemonic, arguments, 0x1000, (word,))


def test_operands():
    inst = one("v_fma_f32 v1, -|v2|, s3, 0x40490fdb")
    assert [(o.kind, o.index, o.flags) for o in inst.operands[:3]] == [
        (Kind.VGPR, 1, 0),
        (Kind.VGPR, 2, NEG | ABS),
        (Kind.SGPR, 3, 0),
    ]
    assert (inst.operands[3].kind, inst.operands[3].value) == (Kind.LITERAL, 0x40490FDB)


def test_registers_of_every_file():
    inst = one("v_mfma_f32_32x32x16_bf16 a[0:15], v[4:7], a[8:11], 0 cbsz:1 blgp:2")
    assert [(o.index, o.words) for o in inst.operands[:3]] == [(256, 16), (4, 4), (264, 4)]
    assert inst.modifiers["cbsz"] == 1
    names = {"vcc": 106, "exec_hi": 127, "m0": 124, "ttmp3": 111, "src_shared_base": 235, "flat_scratch": 102}
    for name, index in names.items():
        assert one(f"s_mov_b32 s0, {name}").operands[1].index == index


def test_inline_constants():
    values = {"-16": 0xFFFFFFF0, "64": 64, "-0.5": 0xBF000000, "0.15915494": 0x3E22F983}
    for text, value in values.items():
        assert one(f"s_mov_b32 s0, {text}").operands[1].value == value
    assert one("s_mov_b32 s0, -4").operands[1].kind == Kind.INT
    assert one("s_mov_b32 s0, -4.0").operands[1].kind == Kind.FLOAT


def test_modifiers():
    inst = one("v_add_u32_sdwa v1, sext(v2), v3 dst_sel:BYTE_2 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1 src1_sel:DWORD")
    assert inst.operands[1].flags == SEXT
    assert inst.modifiers == {"dst_sel": 2, "dst_unused": 2, "src0_sel": 5, "src1_sel": 6}
    assert one("v_mov_b32_dpp v1, v2 row_ror:4 row_mask:0xf bank_mask:0x3").modifiers == {
        "dpp_ctrl": 0x124,
        "row_mask": 15,
        "bank_mask": 3,
    }
    packed = one("v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7] op_sel:[0,1,0] op_sel_hi:[1,0,1] neg_lo:[1,0,0]")
    assert (packed.modifiers["op_sel"], packed.modifiers["op_sel_hi"], packed.modifiers["neg_lo"]) == (2, 5, 1)
    load = one("buffer_load_dwordx4 v4, s[20:23], 0 offen offset:16 sc0 nt lds")
    assert load.modifiers == {"offen": 1, "offset": 16, "sc0": 1, "nt": 1, "lds": 1}


def test_branch_targets():
    assert one("s_cbranch_scc1 65534", 0xBF85FFFE).target == 0x1000 + 4 - 8
    assert one("s_branch 3 <k+0x10>", 0xBF820003).target == 0x1000 + 4 + 12
    assert one("s_endpgm").target is None


@pytest.mark.parametrize("text", ["v_mov_b32 v1, w2", "v_add_f32 v1, v2, v3 mystery:4", "s_mov_b32 s0, hwstuff(1)"])
def test_unknown_text_is_a_problem_not_a_guess(text):
    inst = one(text)
    assert inst.problem
    assert inst.operands == ()


@settings(deadline=None, max_examples=200)
@given(st.text(alphabet="vsa[]:0123456789,- |x()offsetlds.", max_size=40))
def test_any_text_decodes_or_is_a_problem(arguments):
    inst = one(f"v_add_u32 {arguments}")
    assert inst.problem or all(isinstance(operand.index, int) for operand in inst.operands)
