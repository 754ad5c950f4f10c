"""The Triton kernels compiled for GPUs that are not here: what their machine code was written to be."""

import re

import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from kernels.flash_mla.triton_dense import dense_kernel  # noqa: E402
from kernels.flash_mla.triton_parts import merge_splits_kernel  # noqa: E402
from kernels.flash_mla.triton_sparse import sparse_kernel  # noqa: E402

HOPPER = GPUTarget("cuda", 90, 32)
MI355X = GPUTarget("hip", "gfx950", 64)
HOPPER_SHARED_BYTES, MI355X_LDS_BYTES = 227 * 1024, 160 * 1024
TYPES = dict.fromkeys(("indices_ptr", "length_ptr", "extra_indices_ptr", "extra_length_ptr"), "*i32") | {
    "block_table_ptr": "*i32",
    "seqlens_ptr": "*i32",
    "q_ptr": "*bf16",
    "out_ptr": "*bf16",
    "sm_scale": "fp32",
}
SPARSE = {
    "layout": "v32", "page_size": 64, "extra_page_size": 64, "has_length": True, "has_extra": False, "has_extra_length": False,
    "has_sink": True, "row_blocks": 1, "whole": True, "block_m": 64, "block_n": 64, "chained": False,
    "operand": tl.float16, "rope_operand": tl.bfloat16, "overlap": False,
}  # fmt: skip
DENSE = {
    "kv_heads": 1, "page_size": 64, "has_rope": True, "causal": True, "row_blocks": 2, "whole": True, "block_m": 64,
    "block_n": 64, "chained": False, "operand": tl.bfloat16, "overlap": False,
}  # fmt: skip


def compile_for(target, kernel, constants, cache="*u8", **options):
    """The kernel compiled for pointers of 16-byte alignment; sizes are run-time arguments of any value."""

    def kind(name):
        pointer = {"cache_ptr": cache, "extra_cache_ptr": cache}.get(name, "*fp32")
        return TYPES.get(name) or (pointer if name.endswith("_ptr") else "i32")

    signature = {name: "constexpr" if name in constants else kind(name) for name in kernel.arg_names}
    values = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    pointers = [index for index, name in enumerate(kernel.arg_names) if name.endswith("_ptr")]
    aligned = {(index,): [["tt.divisibility", 16]] for index in pointers}
    return triton.compile(ASTSource(kernel, signature, values, aligned), target=target, options=options)


@pytest.fixture(scope="module")
def v32_on_hopper():
    return compile_for(HOPPER, sparse_kernel, SPARSE, num_warps=8, num_stages=2)


def products(ptx):
    return set(re.findall(r"wgmma\.mma_async\S*?\.(m64n\d+)k16", ptx))


def test_both_warp_groups_share_the_columns_of_the_scores(v32_on_hopper):
    # 64 columns of scores and 512 of values over two warp groups; n64 would mean that each computes all scores.
    assert products(v32_on_hopper.asm["ptx"]) == {"m64n32", "m64n256"}


def test_q_stays_in_shared_memory(v32_on_hopper):
    products = re.findall(r"warp_group_dot.*?: (\S.*?) \* ", v32_on_hopper.asm["ttgir"])
    scores = [left for left in products if "64x512" in left or "64x64xbf16" in left]
    assert scores
    assert all("memdesc" in left for left in scores)


def test_p_is_computed_once(v32_on_hopper):
    text = v32_on_hopper.asm["ttgir"]
    loop = text[text.rindex("scf.for") :]
    assert len(re.findall(r"math\.exp2 .*tensor<64x64xf32", loop)) == 1


def test_rows_are_gathered_asynchronously_in_16_bytes(v32_on_hopper):
    ptx = v32_on_hopper.asm["ptx"]
    assert "cp.async.cg.shared.global" in ptx
    assert "cvt.rn.f16x2.e4m3x2" in ptx
    assert v32_on_hopper.metadata.shared <= HOPPER_SHARED_BYTES


@pytest.mark.parametrize(
    ("kernel", "cache", "constants"),
    [
        (sparse_kernel, "*u8", SPARSE | {"layout": "model1", "has_extra": True, "has_extra_length": True}),
        (sparse_kernel, "*u8", SPARSE | {"block_m": 16, "chained": True, "whole": False, "overlap": True}),
        (sparse_kernel, "*bf16", SPARSE | {"layout": "bf16_512", "operand": tl.bfloat16}),
        (sparse_kernel, "*bf16", SPARSE | {"layout": "bf16_576", "operand": tl.bfloat16, "block_m": 16, "chained": True}),
        (dense_kernel, "*bf16", DENSE),
        (dense_kernel, "*bf16", DENSE | {"has_rope": False, "kv_heads": 2, "whole": False, "overlap": True}),
    ],
    ids=["model1", "v32, 16 rows", "bf16, 512 dims", "bf16, 16 rows", "dense", "dense, 512 dims"],
)
def test_every_kind_fits_on_hopper(kernel, cache, constants):
    compiled = compile_for(HOPPER, kernel, constants, cache, num_warps=8, num_stages=2)
    assert compiled.metadata.shared <= HOPPER_SHARED_BYTES
    assert re.search(r"wgmma|mma\.sync", compiled.asm["ptx"])
    assert ("griddepcontrol.launch_dependents" in compiled.asm["ptx"]) == constants["overlap"]


def test_the_combine_waits_for_the_parts():
    constants = {"padded_splits": 8, "block_d": 128, "has_sink": True, "overlap": True}
    compiled = compile_for(HOPPER, merge_splits_kernel, constants, num_warps=1, launch_pdl=True)
    assert "griddepcontrol.wait" in compiled.asm["ptx"]


@pytest.mark.parametrize(
    ("kernel", "cache", "constants"),
    [
        (sparse_kernel, "*u8", SPARSE | {"block_m": 16}),
        pytest.param(sparse_kernel, "*u8", SPARSE | {"block_m": 16, "layout": "model1"}, marks=pytest.mark.slow),
        (dense_kernel, "*bf16", DENSE | {"block_m": 32}),
    ],
    ids=["v32", "model1", "dense"],
)
def test_mi355x_code_keeps_its_registers(kernel, cache, constants):
    constants = constants | {"chained": True, "block_n": 32}
    compiled = compile_for(MI355X, kernel, constants, cache, num_warps=4, num_stages=2)
    assembly = compiled.asm["amdgcn"]
    assert "v_mfma_f32_" in assembly
    assert re.findall(r"\.vgpr_spill_count:\s+(\d+)", assembly) == ["0"]
    assert compiled.metadata.shared <= MI355X_LDS_BYTES
