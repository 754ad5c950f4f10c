"""Every static check: a kernel that has the defect, named by its source line, and kernels that are clean."""

from __future__ import annotations

import json
import re

import pytest
from assembler import assembled

from gfx950 import compile_hip
from gfx950.checks import ERROR, NOTE, WARNING, Finding, check

pytestmark = pytest.mark.usefixtures("toolchain")

TYPES = """\
typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef __bf16 bf16x8 __attribute__((ext_vector_type(8)));
#define LDS __attribute__((address_space(3)))
"""


def findings(source: str, *, severity: tuple[str, ...] = (ERROR, WARNING), **options) -> list[Finding]:
    return [finding for finding in check(compile_hip(source, **options)) if finding.severity in severity]


def line_of(source: str, text: str) -> int:
    return next(number for number, line in enumerate(source.splitlines(), 1) if text in line)


def only(found: list[Finding], name: str) -> Finding:
    assert [finding.check for finding in found] == [name], [str(finding) for finding in found]
    return found[0]


# --- hazards

ASM_AFTER_MFMA = (
    TYPES
    + """\
__global__ void __launch_bounds__(64) k(f32x4* out, const bf16x8* in) {
  f32x4 acc = {};
  acc = __builtin_amdgcn_mfma_f32_16x16x32_bf16(in[threadIdx.x], in[threadIdx.x + 64], acc, 0, 0, 0);
  float doubled;
  asm volatile("v_add_f32 %0, %1, %1" : "=v"(doubled) : "v"(acc[0]));
  out[threadIdx.x] = acc + doubled;
}
"""
)


def test_inline_assembly_on_an_mfma_result_is_found_with_both_lines():
    finding = only(findings(ASM_AFTER_MFMA), "hazard/mfma-read")
    assert finding.severity == ERROR
    assert finding.line == line_of(ASM_AFTER_MFMA, "asm volatile")
    assert re.search(rf"v_mfma_\w+ .*` of .*:{line_of(ASM_AFTER_MFMA, 'builtin_amdgcn_mfma')}, 8 are needed", finding.message)


def test_the_same_with_wait_states_is_clean():
    assert findings(ASM_AFTER_MFMA.replace('"v_add', '"s_nop 7\\n v_add')) == []


def test_compilers_own_waits_suffice():
    assert (
        findings(
            ASM_AFTER_MFMA.replace('asm volatile("v_add_f32 %0, %1, %1" : "=v"(doubled) : "v"(acc[0]))', "doubled = acc[0] * 2")
        )
        == []
    )


def test_the_advice_to_insert_nops_is_right():
    """Following the message's own words makes the code clean."""
    finding = only(findings(ASM_AFTER_MFMA), "hazard/mfma-read")
    advice = re.search(r"put `(s_nop \d+)` between", finding.message)
    assert advice
    assert findings(ASM_AFTER_MFMA.replace('"v_add', f'"{advice[1]}\\n v_add')) == []


# --- registers and memory

SPILLING = """\
__global__ void __launch_bounds__(256) k(float* x) {
  float r[64];
  for (int i = 0; i < 64; ++i) r[i] = x[threadIdx.x * 64 + i];
  __syncthreads();
  for (int i = 0; i < 64; ++i) x[threadIdx.x * 64 + i] = r[i] * r[63 - i];
}
"""


def test_spills_name_the_lines_around_them():
    squeezed = SPILLING.replace("__launch_bounds__(256)", "__launch_bounds__(256) __attribute__((amdgpu_num_vgpr(32)))")
    finding = next(finding for finding in findings(squeezed) if finding.check == "spills")
    assert re.match(r"\d+ VGPRs spilled to scratch memory; around .*\.hip:\d", finding.message)
    assert finding.line in (3, 5)
    assert findings(SPILLING) == []


INDEXED = """\
__global__ void k(int* p) {
  int x[64];
  for (int i = 0; i < 64; ++i) x[i] = p[i];
  p[threadIdx.x] = x[p[0] & 63];
}
"""


def test_scratch_without_spills_is_told_apart():
    finding = only(findings(INDEXED), "scratch")
    assert finding.severity == WARNING
    assert re.search(r"2[5-9]\d bytes a work-item; around", finding.message)
    assert finding.line in (3, 4)


def test_a_workgroup_size_left_at_1024_is_named_as_the_cap():
    body = SPILLING.replace("64", "200").replace("63", "199")
    capped = body.replace("__launch_bounds__(256)", "__attribute__((launch_bounds(256)))")
    bound = next(finding for finding in findings(capped) if finding.check == "launch-bounds")
    assert "up to 1024 work-items cap a lane at 128 VGPRs" in bound.message
    assert bound.line == 1
    assert findings(body) == []


def test_spills_for_another_reason_are_not_blamed_on_the_launch_bounds():
    """At -O0 everything is spilled, far below the cap."""
    found = check(
        compile_hip("__global__ void k(float* x) {\n x[threadIdx.x] = __shfl_xor(x[threadIdx.x], 5); }", flags=["-O0"])
    )
    assert [finding.check for finding in found if finding.severity != NOTE] == ["spills"]


@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2", "-O3"])
def test_a_switch_is_free_of_errors_at_every_optimisation_level(level):
    """At -O0 clang keeps SGPRs in lanes of a VGPR, and that in an AGPR which it reloads before it has written it."""
    cases = " ".join(f"case {k}: p[{k}] = r; r *= {k}; break;" for k in range(24))
    source = (
        f"__global__ void k(int* p, int v) {{\n int r = threadIdx.x; switch (v) {{ {cases} default: r = -1; }} p[r] = r; }}"
    )
    assert [finding for finding in check(compile_hip(source, flags=[level])) if finding.severity == ERROR] == []


def test_a_kernel_that_fills_the_registers_its_bounds_leave_is_not_blamed():
    source = '__global__ void __launch_bounds__(512) k() { asm volatile("" ::: "v255"); }\n'
    assert compile_hip(source).kernels[0].descriptor.vgpr_count == 256
    assert findings(source) == []


def test_small_kernels_without_launch_bounds_are_not_blamed():
    assert findings("__global__ void k(float* x) { x[threadIdx.x] *= 2.f; }\n") == []


def test_too_much_static_lds_is_an_error(tmp_path):
    """clang refuses it in a kernel's source, so the descriptor is written by hand."""
    finding = only(check(assembled(tmp_path, "s_endpgm", lds=200_000)), "lds-size")
    assert finding.severity == ERROR
    assert "200000 bytes of static LDS, but a CU of gfx950 has 163840" in finding.message


def test_160_kib_of_lds_are_fine(tmp_path):
    assert check(assembled(tmp_path, "s_endpgm", lds=163_840)) == []


LDS_DMA = (
    TYPES
    + """\
__global__ void k(const char* in, int n) {
  __shared__ char tile[8192];
  auto resource = __builtin_amdgcn_make_buffer_rsrc((void*)in, 0, n, 0x27000);
  __builtin_amdgcn_raw_ptr_buffer_load_lds(resource, (LDS void*)(LDS char*)tile, 16, threadIdx.x * 16, 0, OFFSET, 0);
}
"""
)


def test_an_immediate_offset_of_an_lds_dma_load_is_found():
    finding = only(findings(LDS_DMA, defines={"OFFSET": 64}), "lds-dma-offset")
    assert "immediate offset 64" in finding.message
    assert finding.line == line_of(LDS_DMA, "buffer_load_lds")
    assert findings(LDS_DMA, defines={"OFFSET": 0}) == []


# --- registers read before they are written


def test_inline_assembly_reading_an_unset_register_is_found():
    source = '__global__ void k(int* p) {\n  int x;\n  asm volatile("v_mov_b32 %0, v77" : "=v"(x));\n  p[threadIdx.x] = x;\n}\n'
    finding = only(findings(source), "undefined-read")
    assert (finding.severity, finding.line) == (ERROR, 3)
    assert "reads v77, which nothing before it writes" in finding.message


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("v_add_u32 v1, v0, s2\ns_endpgm", None),  # v0 and the workgroup id are there at entry
        ("v_add_u32 v1, v0, s9\ns_endpgm", "s9"),
        ("v_accvgpr_read_b32 v1, a4\ns_endpgm", "a4"),
        ("s_cbranch_scc0 end\nend:\ns_endpgm", "scc"),
        ("v_cndmask_b32 v1, v0, v0, vcc\ns_endpgm", "vcc"),
        (
            "s_cmp_eq_u32 s2, 0\ns_cbranch_scc0 other\nv_mov_b32 v1, 0\nother:\nv_mov_b32 v2, v1\ns_endpgm",
            None,
        ),  # one way sets it
        ("loop:\nv_mov_b32 v2, v1\nv_mov_b32 v1, 0\ns_branch loop", None),  # the loop's own end sets it
        ("s_branch over\nv_mov_b32 v2, v1\nover:\ns_endpgm", None),  # never runs
        ("v_mov_b32 v4, 0\nv_mad_u64_u32 v[6:7], s[4:5], v0, v0, v[4:5]\ns_endpgm", None),  # a half that may not matter
        ("v_mad_u64_u32 v[6:7], s[4:5], v0, v0, v[4:5]\ns_endpgm", "v[4:5]"),
        ("v_mov_b32 v4, 0\nglobal_store_dwordx4 v0, v[4:7], s[0:1]\ns_endpgm", "v[5:7]"),
    ],
)
def test_definitions_along_paths(tmp_path, code, expected):
    found = [finding for finding in check(assembled(tmp_path, code)) if finding.check == "undefined-read"]
    assert [re.search(r"reads (.*), which", finding.message)[1] for finding in found] == ([expected] if expected else [])


def test_jumps_to_unknown_places_are_said_not_to_be_analysed(tmp_path):
    found = check(assembled(tmp_path, "s_getpc_b64 s[4:5]\ns_setpc_b64 s[4:5]\nv_mov_b32 v1, v9\ns_endpgm"))
    assert [(finding.check, finding.severity) for finding in found] == [("undefined-read", NOTE)]


def test_kernarg_preload_has_two_entries():
    """Firmware without the feature runs the first 256 bytes, the others skip them: both define the arguments."""
    source = "__global__ void k(int* p, int n) { p[threadIdx.x] = n; }\n"
    code = compile_hip(source, flags=["-mllvm", "-amdgpu-kernarg-preload-count=2"])
    assert code.kernels[0].descriptor.kernarg_preload_dwords
    assert check(code) == []


# --- the rest


def test_words_that_are_no_instruction_are_found(tmp_path):
    finding = only(check(assembled(tmp_path, ".long 0xd7ff0000\ns_endpgm")), "unknown-instruction")
    assert "d7ff0000 is no gfx950 instruction" in finding.message


def test_findings_print_file_and_line_or_the_address(tmp_path):
    source = '__global__ void k(int* p) {\n  asm volatile("v_mov_b32 v1, v77");\n}\n'
    assert re.match(r".*\.hip:2: error: `v_mov_b32_e32 v1, v77` reads v77.*\[undefined-read\]$", str(findings(source)[0]))
    bare = check(assembled(tmp_path, "v_mov_b32 v1, v77\ns_endpgm"))[0]
    assert re.match(r"k at 0x[0-9a-f]+: error: ", str(bare))


def test_findings_serialise():
    document = json.loads(json.dumps(findings(ASM_AFTER_MFMA)[0].to_json()))
    assert set(document) == {"check", "severity", "kernel", "message", "address", "file", "line"}
    assert document["kernel"] == "k"
