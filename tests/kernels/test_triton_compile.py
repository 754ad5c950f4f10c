"""Device code for GPUs that are not here: it compiles, and an fp8 tile reaches the tensor cores the way it was written for."""

import re

import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from kernels import triton_kernels  # noqa: E402

HOPPER = GPUTarget("cuda", 90, 32)
MI355X = GPUTarget("hip", "gfx950", 64)
POINTERS = {
    "q_ptr": "*bf16",
    "kv_scale_ptr": "*fp32",
    "qo_indptr_ptr": "*i32",
    "kv_indptr_ptr": "*i32",
    "out_ptr": "*bf16",
    "partial_ptr": "*fp32",
    "lse_ptr": "*fp32",
    "sm_scale": "fp32",
}
DECODE = {"heads": 16, "row_blocks": 1, "whole": False, "block_m": 16, "block_n": 32}
FP8 = DECODE | {"kv_row_bytes": 576, "fp8_bias": 7}
BF16 = DECODE | {"kv_row_bytes": 1152, "operand": tl.bfloat16}


def compile_for(target, name, constants, kv_type="*fp8e4nv", **options):
    kernel = getattr(triton_kernels, name)
    types = POINTERS | {"kv_ptr": kv_type}
    signature = {argument: "constexpr" if argument in constants else types[argument] for argument in kernel.arg_names}
    values = {(kernel.arg_names.index(argument),): value for argument, value in constants.items()}
    aligned = {
        (index,): [["tt.divisibility", 16]] for index, argument in enumerate(kernel.arg_names) if argument.endswith("_ptr")
    }
    return triton.compile(ASTSource(kernel, signature, values, aligned), target=target, options=options)


def test_fp8_on_hopper_needs_no_layout_change():
    constants = FP8 | {"convert": "cvt", "overlap": True}
    ptx = compile_for(HOPPER, "decode_fp8_kernel", constants, num_warps=4, num_stages=3).asm["ptx"]
    assert "cp.async.cg.shared.global" in ptx
    assert re.search(r"ldmatrix\S*\.trans", ptx)
    assert "cvt.rn.f16x2.e4m3x2" in ptx
    assert "griddepcontrol.launch_dependents" in ptx
    assert not re.search(r"ld\.shared\S*\.[bu]8", ptx), "V is gathered byte by byte"


def test_the_combine_waits_for_the_decode_kernel():
    constants = {"num_kv_splits": 5, "padded_splits": 8, "block_d": 128, "overlap": True}
    assert "griddepcontrol.wait" in compile_for(HOPPER, "combine_kernel", constants, num_warps=1, launch_pdl=True).asm["ptx"]


@pytest.mark.parametrize("block_m", [16, 32])
@pytest.mark.parametrize(
    ("name", "kv_type", "constants"),
    [
        ("decode_fp8_kernel", "*fp8e4nv", FP8 | {"convert": "shift", "overlap": False}),
        ("decode_bf16_kernel", "*bf16", BF16 | {"overlap": False}),
    ],
)
def test_mi355x_code_keeps_its_registers(name, kv_type, constants, block_m):
    compiled = compile_for(MI355X, name, constants | {"block_m": block_m}, kv_type, num_warps=4, num_stages=2)
    assembly = compiled.asm["amdgcn"]
    assert "v_mfma_f32_" in assembly
    assert re.findall(r"\.vgpr_spill_count:\s+(\d+)", assembly) == ["0"]
    assert compiled.metadata.shared <= 160 * 1024
