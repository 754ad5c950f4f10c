"""Every vector instruction that LLVM knows for gfx950 is implemented, or is listed here with the reason."""

from __future__ import annotations

import re
import subprocess

import pytest
from arith_call import describe, op_names

from gfx950.tools import find_tool

EXECUTOR = "moves data between lanes or registers; the executor's own"
ELSEWHERE = {
    "v_accvgpr_mov_b32": EXECUTOR,
    "v_accvgpr_read_b32": EXECUTOR,
    "v_accvgpr_write_b32": EXECUTOR,
    "v_permlane16_swap_b32": EXECUTOR,
    "v_permlane32_swap_b32": EXECUTOR,
    "v_readfirstlane_b32": EXECUTOR,
    "v_readlane_b32": EXECUTOR,
    "v_writelane_b32": EXECUTOR,
    "v_swap_b32": EXECUTOR,
    "v_nop": "does nothing",
    "v_clrexcp": "clears exception flags, which are not modelled",
    "v_screen_partition_4se_b32": "a graphics look-up table that no ISA document gives",
}
# The scaled forms are a prefix and an instruction; the disassembler shows them only as pairs.
PAIRS = {"v_mfma_scale_f32_16x16x128_f8f6f4", "v_mfma_scale_f32_32x32x64_f8f6f4"}


def v(register: int) -> int:
    return 256 + register


def encodings() -> list[list[int]]:
    """One instruction of every opcode in every vector encoding of GFX9, as dwords."""
    vop1 = [[0x7E000000 | op << 9 | v(2) | 4 << 17] for op in range(256)]
    vop2 = [[op << 25 | v(2) | 3 << 9 | 4 << 17, 0x3F800000] for op in range(62)]
    vopc = [[0x7C000000 | op << 17 | v(2) | 3 << 9] for op in range(256)]
    vop3 = [[0xD0000000 | op << 16 | 10, v(2) | v(4) << 9 | v(6) << 18] for op in range(1024) if not 0x380 <= op < 0x400]
    vop3p = [[0xD3800000 | op << 16 | 64, v(2) | v(32) << 9 | v(64) << 18 | acc << 27] for op in range(128) for acc in (0, 3)]
    return vop1 + vop2 + vopc + vop3 + vop3p


@pytest.fixture(scope="module")
def mnemonics(toolchain: None) -> set[str]:
    """Base names of all vector instructions the disassembler finds among the encodings."""
    llvm_mc = find_tool("llvm-mc", "the coverage test disassembles every opcode").command
    lines = [" ".join(f"0x{b:02x}" for word in words for b in word.to_bytes(4, "little")) for words in encodings()]
    command = [*llvm_mc, "-disassemble", "-triple=amdgcn-amd-amdhsa", "-mcpu=gfx950"]
    text = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True).stdout
    found = re.findall(r"^\s+(v_\w+)", text, re.MULTILINE)
    return {re.sub(r"_(e32|e64|sdwa|dpp)$", "", name) for name in found}


def test_every_mnemonic_is_known_or_excused(mnemonics: set[str]) -> None:
    assert len(mnemonics) > 600
    missing = {name for name in mnemonics if describe(name) is None}
    assert missing <= ELSEWHERE.keys()


def test_nothing_is_invented(mnemonics: set[str]) -> None:
    assert set(op_names()) - mnemonics <= PAIRS


def test_names_are_unique() -> None:
    names = op_names()
    assert len(names) == len(set(names))
