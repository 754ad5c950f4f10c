"""The floor's read kernel, compiled for GPUs that are not here: every word is loaded, 16 bytes at a time, nothing else is."""

import re

import pytest

triton = pytest.importorskip("triton")
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from harness.read_kernel import BLOCK_WORDS, NUM_WARPS, read_kernel  # noqa: E402

SIGNATURE = {"source": "*fp32", "sink": "*fp32", "words": "i32", "BLOCK_WORDS": "constexpr"}
ALIGNED = {(argument,): [["tt.divisibility", 16]] for argument in (0, 2)}


@pytest.mark.parametrize(
    ("target", "load", "store"),
    [
        (GPUTarget("cuda", 90, 32), r"ld\.global\.v4\.b32", r"st\.global"),
        (GPUTarget("hip", "gfx950", 64), "global_load_dwordx4", "global_store"),
    ],
    ids=["sm_90", "gfx950"],
)
def test_reads_whole_blocks(target, load, store):
    source = ASTSource(fn=read_kernel, signature=SIGNATURE, constexprs={"BLOCK_WORDS": BLOCK_WORDS}, attrs=ALIGNED)
    compiled = triton.compile(source, target=target, options={"num_warps": NUM_WARPS})
    text = compiled.asm["ptx" if target.backend == "cuda" else "amdgcn"]
    threads = NUM_WARPS * target.warp_size
    assert len(re.findall(load, text)) == BLOCK_WORDS * 4 // (16 * threads)
    assert len(re.findall(store, text)) == 1
