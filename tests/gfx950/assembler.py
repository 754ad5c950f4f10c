"""Kernels and instructions from assembler text."""

from __future__ import annotations

import subprocess

from gfx950 import CodeObject
from gfx950.decode import Instruction, decode
from gfx950.disassembly import disassemble
from gfx950.tools import find_tool


def assemble(text: str) -> list[Instruction]:
    """Instructions, decoded; no kernel around them."""
    mc = [*find_tool("llvm-mc", "tests assemble").command, "-triple=amdgcn-amd-amdhsa", "-mcpu=gfx950", "-filetype=obj"]
    return decode(disassemble(subprocess.run(mc, input=text.encode(), capture_output=True, check=True).stdout))


def assembled(folder, code: str, lds: int = 0) -> CodeObject:
    """A kernel `k` from assembler text: kernarg pointer in s[0:1], workgroup id x in s2, work-item ids in v0."""
    text = f"""
.amdgcn_target "amdgcn-amd-amdhsa--gfx950"
.text
.globl k
.p2align 8
.type k,@function
k:
{code}
.rodata
.p2align 6
.amdhsa_kernel k
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_next_free_vgpr 80
  .amdhsa_next_free_sgpr 16
  .amdhsa_accum_offset 40
  .amdhsa_group_segment_fixed_size {lds}
.end_amdhsa_kernel
"""
    (folder / "k.s").write_text(text)
    command = [
        *find_tool("clang", "tests").command,
        "-target",
        "amdgcn-amd-amdhsa",
        "-mcpu=gfx950",
        "-nogpulib",
        "k.s",
        "-o",
        "k.co",
    ]
    subprocess.run(command, check=True, cwd=folder)
    return CodeObject.load(folder / "k.co")
