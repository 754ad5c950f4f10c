"""Kernels written as assembler snippets, for tests that need one exact instruction.

A body finds: s[0:1] kernarg segment, s2 workgroup id x, s[4:5] pointer to `out`, s[6:7] pointer to `data`, v0 lane number. What
it leaves in v[8:...] is stored to out[workgroup, lane, words].
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import numpy as np

from gfx950 import CodeObject
from gfx950.emulator import Buffer, RawKernarg, Run, launch
from gfx950.tools import find_tool

RESULT = 8  # first result register

PROLOGUE = """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_waitcnt lgkmcnt(0)
"""

DESCRIPTOR = """
.rodata
.p2align 6
.amdhsa_kernel {name}
  .amdhsa_group_segment_fixed_size {lds}
  .amdhsa_private_segment_fixed_size {scratch}
  .amdhsa_kernarg_size 16
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_system_sgpr_workgroup_id_x 1
  .amdhsa_accum_offset 128
  .amdhsa_next_free_vgpr 256
  .amdhsa_next_free_sgpr 96
  .amdhsa_ieee_mode 0
  .amdhsa_dx10_clamp 0
.end_amdhsa_kernel
"""


def epilogue(words: int) -> str:
    """Stores v[8:8+words) to out[workgroup, lane]; uses v1..v4 and s3."""
    stores = "\n".join(f"  global_store_dword v1, v{RESULT + k}, s[4:5] offset:{4 * k}" for k in range(words))
    return f"""
  s_waitcnt vmcnt(0) lgkmcnt(0)
  s_mov_b64 exec, -1
  s_mul_i32 s3, s2, {64 * 4 * words}
  v_mul_u32_u24 v1, {4 * words}, v0
  v_add_u32 v1, s3, v1
{stores}
  s_endpgm
"""


def assemble_kernels(bodies: dict[str, str], lds: int = 0, scratch: int = 0) -> CodeObject:
    """A code object with one kernel for each body, complete from prologue to s_endpgm; no metadata note."""
    parts = ['.amdgcn_target "amdgcn-amd-amdhsa--gfx950"', ".text"]
    for name, body in bodies.items():
        parts += [f".globl {name}", ".p2align 8", f".type {name},@function", f"{name}:", body]
        parts += [f".size {name}, .-{name}", DESCRIPTOR.format(name=name, lds=lds, scratch=scratch), ".text"]
    clang = find_tool("clang", "it assembles and links test kernels")
    with tempfile.TemporaryDirectory() as folder:
        linked = Path(folder) / "k.hsaco"
        options = ["-target", "amdgcn-amd-amdhsa", "-mcpu=gfx950", "-x", "assembler", "-", "-o", str(linked)]
        done = subprocess.run([*clang.command, *options], input="\n".join(parts) + "\n", text=True, capture_output=True)
        assert not done.returncode, done.stderr
        return CodeObject.load(linked.read_bytes())


def snippet(body: str, words: int = 1, lds: int = 0, scratch: int = 0) -> CodeObject:
    """One kernel `k` from a body."""
    return assemble_kernels({"k": PROLOGUE + body + epilogue(words)}, lds, scratch)


def run_code(
    code: CodeObject, data: np.ndarray, words: int = 1, *, name: str = "k", grid: int = 1, block: int = 64, **options
) -> tuple[np.ndarray, Run]:
    """Launches; returns out, shape [grid, 64, words] uint32, and the run."""
    out = np.zeros((grid, 64, words), np.uint32)
    kernarg = RawKernarg(bytes(16), {0: Buffer(out, "out"), 8: Buffer(data, "data")})
    run = launch(code, name, grid=grid, block=block, args=kernarg, **options)
    return out, run


def lanes(
    body: str, data: np.ndarray | None = None, words: int = 1, *, lds: int = 0, scratch: int = 0, **options
) -> np.ndarray:
    """Result registers of a one-wave snippet, shape [64, words] uint32 ([64] for one word)."""
    data = np.zeros(4, np.uint32) if data is None else data
    out, _ = run_code(snippet(body, words, lds, scratch), data, words, **options)
    return out[0, :, 0] if words == 1 else out[0]


def findings(body: str, data: np.ndarray | None = None, words: int = 1, *, lds: int = 0, scratch: int = 0, **options) -> list:
    """Findings of a snippet."""
    data = np.zeros(4, np.uint32) if data is None else data
    _, run = run_code(snippet(body, words, lds, scratch), data, words, strict=False, **options)
    return run.findings
