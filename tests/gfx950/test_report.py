"""Reports: registers, occupancy, instruction mix, MFMA shapes, loops and the cycle estimate."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from assembler import assemble

from gfx950 import compile_hip
from gfx950.decode import decode_one
from gfx950.limits import LDS_BYTES_PER_CU, occupancy, round_up, vgpr_limit
from gfx950.mfma import family, label, passes, shape
from gfx950.report import as_text, busy_cycles, innermost_loops, lds_bytes_per_lane, report
from gfx950.subject import Subject
from gfx950.toolchain import _standard_flags
from gfx950.tools import find_tool


def one(text: str):
    mnemonic, _, operands = text.partition(" ")
    return decode_one(mnemonic, operands, 0, (0, 0))


# --- occupancy (no toolchain needed)


@pytest.mark.parametrize(
    ("vgprs", "lds_bytes", "workgroup_size", "waves", "limit"),
    [
        (32, 0, 256, 8, "hardware"),
        (64, 0, 256, 8, "hardware"),
        (72, 0, 256, 7, "vgpr"),
        (128, 0, 256, 4, "vgpr"),
        (129, 0, 256, 3, "vgpr"),
        (256, 0, 256, 2, "vgpr"),
        (512, 0, 64, 1, "vgpr"),
        (32, 40 * 1024, 256, 4, "lds"),
        (32, 40 * 1024 + 1, 256, 3, "lds"),  # the next granule no longer fits four times
        (32, LDS_BYTES_PER_CU, 1024, 4, "lds"),
        (32, LDS_BYTES_PER_CU, 64, 1, "lds"),
        (128, 0, 1024, 4, "vgpr"),
        (32, 0, 128, 8, "hardware"),
    ],
)
def test_occupancy(vgprs, lds_bytes, workgroup_size, waves, limit):
    found = occupancy(vgprs, 50, lds_bytes, workgroup_size)
    assert (found.waves_per_simd, found.limited_by) == (waves, limit)


def test_more_than_100_sgprs_cost_a_wave():
    assert occupancy(32, 100, 0, 64).waves_per_simd == 8
    found = occupancy(32, 101, 0, 64)
    assert (found.waves_per_simd, found.limited_by) == (7, "sgpr")


def test_a_workgroup_that_cannot_fit_has_no_waves():
    assert occupancy(32, 50, LDS_BYTES_PER_CU + 1, 256).waves_per_simd == 0
    assert occupancy(256, 50, 0, 1024).waves_per_simd == 0


@pytest.mark.parametrize(("size", "limit"), [(64, 512), (256, 512), (257, 256), (512, 256), (768, 168), (1024, 128)])
def test_register_limit_of_a_workgroup_size(size, limit):
    assert vgpr_limit(size) == limit


# --- what a mnemonic says


@pytest.mark.parametrize(
    ("text", "name", "pass_count", "kind", "flops"),
    [
        ("v_mfma_f32_16x16x32_bf16 v[0:3], v[4:7], v[8:11], 0", "f32_16x16x32 bf16", 4, "xdl", 16384),
        ("v_mfma_f32_32x32x16_f16 a[0:15], v[4:7], v[8:11], 0", "f32_32x32x16 f16", 8, "xdl", 32768),
        ("v_mfma_f32_16x16x32_fp8_bf8 v[0:3], v[4:5], v[8:9], 0", "f32_16x16x32 fp8_bf8", 4, "xdl", 16384),
        ("v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], 0", "f32_16x16x128 fp8 x fp8", 8, "xdl", 65536),
        ("v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[12:15], 0 cbsz:4 blgp:4", "f32_16x16x128 fp4 x fp4", 4, "xdl", 65536),
        (
            "v_mfma_scale_f32_32x32x64_f8f6f4 v[0:15], v[16:23], v[24:27], v[0:15], v40, v41 op_sel_hi:[0,0,0] blgp:4",
            "f32_32x32x64 fp8 x fp4 scaled", 16, "xdl", 131072,
        ),
        ("v_mfma_f32_4x4x4_16b_f16 v[0:3], v[4:5], v[6:7], v[0:3]", "f32_4x4x4 16 blocks f16", 2, "xdl", 2048),
        ("v_mfma_f32_32x32x2_f32 v[0:15], v16, v17, v[0:15]", "f32_32x32x2 f32", 16, "sgemm", 4096),
        ("v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], v[0:7]", "f64_16x16x4 f64", 16, "dgemm", 2048),
        ("v_mfma_i32_16x16x64_i8 v[0:3], v[4:7], v[8:11], 0", "i32_16x16x64 i8", 4, "xdl", 32768),
        ("v_smfmac_f32_16x16x64_bf16 v[0:3], v[4:7], v[8:15], v16", "f32_16x16x64 bf16 sparse", 4, "xdl", 32768),
    ],
)  # fmt: skip
def test_matrix_instructions(text, name, pass_count, kind, flops):
    inst = one(text)
    assert (label(inst), passes(inst), family(inst), shape(inst).flops) == (name, pass_count, kind, flops)


@pytest.mark.parametrize(
    ("mnemonic", "size"),
    [("ds_read_b128", 16), ("ds_read2_b64", 16), ("ds_read2st64_b32", 8), ("ds_read_u8", 1), ("ds_read_u16_d16_hi", 2),
     ("ds_write_b64", 8), ("ds_add_u32", 4), ("ds_bpermute_b32", 4), ("ds_read_b64_tr_b16", 8), ("ds_add_rtn_f64", 8)],
)  # fmt: skip
def test_lds_bytes_of_a_lane(mnemonic, size):
    assert lds_bytes_per_lane(one(f"{mnemonic} v0, v1")) == size


def test_busy_cycles_by_pipe():
    code = [
        "v_add_f32 v0, v1, v2",
        "v_exp_f32 v0, v1",
        "v_mfma_f32_16x16x32_bf16 v[0:3], v[4:7], v[8:11], 0",
        "ds_read_b128 v[0:3], v4",
    ]
    assert busy_cycles(map(one, code)) == {"valu": 4 + 16, "mfma": 16, "lds": 8}


# --- compiled kernels

LOOPS = """\
typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef __bf16 bf16x8 __attribute__((ext_vector_type(8)));
__global__ void __launch_bounds__(128) product(f32x4* out, const bf16x8* in, int n) {
  __shared__ float scratch[1024];
  f32x4 acc = {};
  #pragma clang loop unroll(disable)
  for (int i = 0; i < n; ++i)
    acc = __builtin_amdgcn_mfma_f32_16x16x32_bf16(in[i], in[i + threadIdx.x], acc, 0, 0, 0);
  scratch[threadIdx.x] = acc[0];
  __syncthreads();
  out[threadIdx.x] = acc + scratch[threadIdx.x ^ 1];
}
"""


@pytest.fixture(scope="module")
def code(toolchain):
    return compile_hip(LOOPS)


REMARKS = {
    "TotalSGPRs": "sgprs",
    "VGPRs": "vgprs",
    "AGPRs": "agprs",
    "ScratchSize [bytes/lane]": "scratch_bytes",
    "SGPRs Spill": "sgpr_spills",
    "VGPRs Spill": "vgpr_spills",
    "LDS Size [bytes/block]": "lds_bytes",
}


def llvm_remarks(source: str, folder) -> dict[str, int]:
    """clang's own account of a kernel's resources."""
    (folder / "k.hip").write_text(source)
    clang = find_tool("clang", "tests")
    flags = [*_standard_flags(clang, None), "-Rpass-analysis=kernel-resource-usage"]
    done = subprocess.run(
        [*clang.command, *flags, "k.hip", "-o", "k.hsaco"], capture_output=True, text=True, check=True, cwd=folder
    )
    return {name: int(value) for name, value in re.findall(r"remark: \s*([A-Za-z][\w /\[\]]*): (\d+)", done.stderr)}


def hungry(size: int, registers: tuple[str, ...], lds_bytes: int) -> str:
    clobbers = ", ".join(f'"{name}"' for name in registers)
    body = f'asm volatile("" ::: {clobbers}); '
    if lds_bytes:
        body += f"__shared__ char x[{lds_bytes}]; x[threadIdx.x] = *p; __syncthreads(); p[1] = x[63 - threadIdx.x];"
    return f"__global__ void __launch_bounds__({size}) k(int* p) {{ {body} }}\n"


@pytest.mark.parametrize(
    ("size", "registers", "lds_bytes"),
    [(64, ("v20",), 0), (64, ("v255", "a255"), 0), (128, ("v71",), 20_480), (256, ("v64",), 1000), (256, ("v127",), 40_960),
     (256, ("v100", "a40"), 41_000), (256, ("v20", "s95"), 0), (256, ("v20",), 163_840), (256, ("v255", "a40"), 65_536)],
)  # fmt: skip
def test_resources_and_occupancy_are_those_of_llvm(toolchain, tmp_path, size, registers, lds_bytes):
    source = hungry(size, registers, lds_bytes)
    remarks = llvm_remarks(source, tmp_path)
    (found,) = report(compile_hip(source))
    if remarks["AGPRs"]:
        remarks["VGPRs"] = round_up(remarks["VGPRs"], 4)  # the AGPRs begin at a multiple of 4
    assert {name: getattr(found, field) for name, field in REMARKS.items()} == {name: remarks[name] for name in REMARKS}
    assert found.waves_per_simd == remarks["Occupancy [waves/SIMD]"]


@pytest.mark.parametrize(("size", "registers"), [(512, "v71"), (512, "v128"), (1024, "v71"), (1024, "v95")])
def test_large_workgroups_are_placed_whole(toolchain, tmp_path, size, registers):
    """LLVM counts waves that no whole workgroup could fill."""
    source = hungry(size, (registers,), 0)
    waves = size // 64 // 4
    llvm = llvm_remarks(source, tmp_path)["Occupancy [waves/SIMD]"]
    assert report(compile_hip(source))[0].waves_per_simd == llvm // waves * waves


def test_report_of_a_kernel(code):
    (found,) = report(code)
    assert (found.name, found.lds_bytes, found.max_workgroup_size) == ("product", 4096, 128)
    assert found.code is not None
    assert found.code.mfma == {"f32_16x16x32 bf16": 1}
    assert found.code.mfma_flops == 16384
    assert found.code.mix["mfma"] == 1
    assert sum(found.code.mix.values()) == len(Subject(code, code.kernel("product")).reachable)


def test_padding_is_not_counted(code):
    kernel = code.kernel("product")
    assert max(inst.address for inst in Subject(code, kernel).reachable) < kernel.address + kernel.code_bytes


def test_the_loop_is_found_with_its_line_and_cost(code):
    (found,) = report(code)
    (loop,) = found.code.loops
    assert loop.line in (7, 8)
    assert loop.mix["mfma"] == 1
    assert loop.cycles["mfma"] == 16
    assert loop.instructions == sum(loop.mix.values())


NESTED = "outer:\ns_nop 0\ninner:\ns_add_u32 s0, s0, 1\ns_cbranch_scc0 inner\ns_cbranch_vccz outer\ns_endpgm\n"


def test_only_innermost_loops_are_reported(toolchain):
    (body,) = innermost_loops(assemble(NESTED))
    assert [inst.mnemonic for inst in body] == ["s_add_u32", "s_cbranch_scc0"]


def test_dynamic_lds_and_workgroup_size_change_the_occupancy(code):
    (plain,) = report(code)
    (crowded,) = report(code, dynamic_lds_bytes=100_000)
    assert crowded.waves_per_simd < plain.waves_per_simd
    assert crowded.occupancy_limited_by == "lds"
    assert report(code, workgroup_size=64)[0].waves_per_simd == 8


def test_dynamic_lds_is_seen_where_the_kernel_asks_for_its_size(toolchain):
    source = "extern __shared__ int x[];\n__global__ void k(int* p) { x[threadIdx.x] = 1; __syncthreads(); *p = x[*p]; }\n"
    text = as_text(report(compile_hip(source))[0])
    assert "LDS 0 B" in text


def test_text_and_json_say_the_same(code):
    (found,) = report(code)
    document = json.loads(json.dumps(found.to_json()))
    assert document["code"]["mfma"] == found.code.mfma
    text = as_text(found)
    assert f"{found.vgprs} VGPR" in text
    assert "f32_16x16x32 bf16 1" in text
    assert "estimate" in text


def test_without_a_disassembler_the_elf_notes_suffice(code, tmp_path, monkeypatch):
    monkeypatch.setenv("GFX950_LLVM", str(tmp_path))
    fresh = type(code)(code.data, code.path)
    (found,) = report(fresh)
    assert found.code is None
    assert found.vgprs > 0
    assert "needs llvm-objdump" in as_text(found)
