"""Device code for GPUs that are not here: it compiles, spills nothing, and feeds the tensor cores as it was written to."""

import re
import subprocess
from pathlib import Path

import pytest

triton = pytest.importorskip("triton")
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from kernels.nvfp4_msa.triton_kernels import nvfp4_decode_kernel  # noqa: E402
from kernels.nvfp4_msa.unpack import UNPACK_CONSTRAINTS, UNPACK_UNITS, unpack_ptx  # noqa: E402

HOPPER = GPUTarget("cuda", 90, 32)
AMPERE = GPUTarget("cuda", 80, 32)
MI355X = GPUTarget("hip", "gfx950", 64)
TYPES = {
    "q_ptr": "*bf16",
    "cache_ptr": "*u8",
    "topk_ptr": "*i32",
    "block_table_ptr": "*i32",
    "seq_lens_ptr": "*i32",
    "k_scale_ptr": "*fp32",
    "v_scale_ptr": "*fp32",
    "out_ptr": "*bf16",
    "partial_ptr": "*fp16",
    "lse_ptr": "*fp32",
    "tickets_ptr": "*i32",
    "requests": "i32",
    "table_stride": "i32",
    "topk_rows": "i32",
    "sm_scale": "fp32",
}
SIZES = {"q_len": 1, "num_kv_heads": 1, "group_size": 16, "topk": 16, "slots": 16, "swizzled": True, "num_kv_splits": 4}


def compiled(target, unpack, warps=4, keys=32, num_stages=3, **sizes):
    constants = SIZES | sizes | {"warps": warps, "keys": keys, "constraints": UNPACK_CONSTRAINTS, "unit": UNPACK_UNITS[unpack]}
    constants |= {"k_assembly": unpack_ptx(unpack, False), "v_assembly": unpack_ptx(unpack, True)}
    names = nvfp4_decode_kernel.arg_names
    signature = {name: "constexpr" if name in constants else TYPES[name] for name in names}
    values = {(names.index(name),): value for name, value in constants.items()}
    aligned = {(index,): [["tt.divisibility", 16]] for index, name in enumerate(names) if name.endswith("_ptr")}
    options = {"num_warps": warps, "num_stages": num_stages}
    return triton.compile(ASTSource(nvfp4_decode_kernel, signature, values, aligned), target=target, options=options)


def loop_of(ptx):
    """The body of the loop over tiles: the longest stretch that ends in a branch back to its own label."""
    bodies = re.finditer(r"^(\$L__BB\w+):.*?bra(?:\.uni)?\s+\1;", ptx, re.DOTALL | re.MULTILINE)
    return max((body[0] for body in bodies), key=len)


@pytest.fixture(scope="module")
def on_hopper():
    return compiled(HOPPER, "cvt")


def test_words_reach_the_tensor_cores_without_a_detour(on_hopper):
    """Codes stay packed until they lie where a product wants them: no conversion of layouts inside the loop."""
    loop = loop_of(on_hopper.asm["ptx"])
    assert "cp.async.cg.shared.global" in loop
    assert re.search(r"ldmatrix\S*\.trans", loop)
    assert loop.count("mma.sync.aligned.m16n8k16") == 64  # 4 operands x 2 products x 8 tiles
    assert "cvt.rn.f16x2.e4m3x2" in loop
    assert not re.search(r"st\.shared", loop), "something goes through shared memory between warps"


def test_nothing_is_spilled_and_two_programs_fit_on_an_sm(on_hopper, tmp_path):
    cuobjdump = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not cuobjdump.exists():
        pytest.skip("this Triton brings no cuobjdump")
    (tmp_path / "kernel.cubin").write_bytes(on_hopper.asm["cubin"])
    command = [str(cuobjdump), "-res-usage", "kernel.cubin"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=True)
    found = re.search(r"REG:(\d+) STACK:(\d+)", run.stdout + run.stderr)
    assert found, run.stdout + run.stderr
    registers, stack_bytes = map(int, found.groups())
    assert stack_bytes == 0
    assert 2 * 128 * registers <= 65536
    assert 2 * on_hopper.metadata.shared <= 227 * 1024


def test_the_loop_waits_for_its_copies_only(on_hopper):
    barriers = re.findall(r"bar(?:rier)?\.sync\s", loop_of(on_hopper.asm["ptx"]))
    assert len(barriers) <= 2


def test_a_ticket_releases_and_acquires(on_hopper):
    ptx = on_hopper.asm["ptx"]
    assert re.search(r"bar\.sync.*atom\.global\.gpu\.acq_rel\.add", ptx, re.DOTALL)
    assert "ld.global.cg" in ptx, "partial results are to bypass L1"


def test_one_split_draws_no_ticket():
    assert "atom" not in compiled(HOPPER, "cvt", num_kv_splits=1).asm["ptx"]


@pytest.mark.parametrize(("target", "unpack"), [(HOPPER, "shift"), (AMPERE, "portable")])
@pytest.mark.parametrize("sizes", [{"group_size": 4, "num_kv_heads": 4}, {"swizzled": False, "topk": 64, "slots": 64}])
def test_compiles_for_other_sizes_and_devices(target, unpack, sizes):
    assert "mma.sync" in compiled(target, unpack, **sizes).asm["ptx"]


@pytest.mark.parametrize("swizzled", [True, False])
def test_mi355x_code_keeps_its_registers(swizzled):
    made = compiled(MI355X, "portable", num_stages=2, swizzled=swizzled)
    assembly = made.asm["amdgcn"]
    assert "v_mfma_f32_" in assembly
    assert re.findall(r"\.vgpr_spill_count:\s+(\d+)", assembly) == ["0"]
    assert made.metadata.shared <= 160 * 1024
