"""Registers read and written, instruction by instruction, against LLVM's machine IR of the same compiled kernels."""

from __future__ import annotations

import subprocess

import pytest
from llvm_mir import compile_both

from gfx950.decode import decode_one
from gfx950.effects import AGPR_BASE, EXEC, M0, SCC, VCC, Class, classify, effects, register_names, sgpr, vgpr
from gfx950.toolchain import _standard_flags
from gfx950.tools import find_tool

pytestmark = pytest.mark.usefixtures("toolchain")

KERNELS = r"""
typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef float f32x16 __attribute__((ext_vector_type(16)));
typedef __bf16 bf16x8 __attribute__((ext_vector_type(8)));
typedef __bf16 bf16x2 __attribute__((ext_vector_type(2)));
typedef _Float16 f16x2 __attribute__((ext_vector_type(2)));
typedef int i32x8 __attribute__((ext_vector_type(8)));
typedef float f32x2 __attribute__((ext_vector_type(2)));
#define LDS __attribute__((address_space(3)))

__global__ void __launch_bounds__(256) attention_like(float* out, const bf16x8* q, const char* kv, int n, float scale) {
  __shared__ __attribute__((aligned(16))) char tile[8192];
  int tid = threadIdx.x, lane = tid & 63;
  auto resource = __builtin_amdgcn_make_buffer_rsrc((void*)kv, 0, n, 0x27000);
  __builtin_amdgcn_raw_ptr_buffer_load_lds(resource, (LDS void*)(LDS char*)tile, 16, tid * 16, 0, 0, 0);
  __builtin_amdgcn_raw_buffer_store_b32(tid, resource, tid * 16, n, 0);
  __builtin_amdgcn_s_waitcnt(0);
  __syncthreads();
  f32x4 acc = {};
  for (int i = 0; i < n; ++i) {
    bf16x8 a = q[lane + i], b = *(bf16x8*)(tile + 16 * (lane ^ i));
    acc = __builtin_amdgcn_mfma_f32_16x16x32_bf16(a, b, acc, 0, 0, 0);
    i32x8 x = *(i32x8*)(q + i), y = *(i32x8*)(tile + 32 * lane);
    acc = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(x, y, acc, 0, 0, 0, 127, 0, i);
  }
  float peak = acc[0];
  for (int m = 1; m < 64; m <<= 1) peak = fmaxf(peak, __shfl_xor(peak, m));
  if (peak > scale) {
    unsigned packed = __builtin_amdgcn_cvt_pk_fp8_f32(acc[0], acc[1], 0, false);
    packed = __builtin_amdgcn_cvt_pk_fp8_f32(acc[2], acc[3], packed, true);
    atomicAdd((unsigned*)out, packed);
    acc *= __builtin_amdgcn_exp2f(acc[1] - peak) / acc[3];
  }
  out[tid] = acc[0] + acc[1] + __builtin_amdgcn_readfirstlane(tid) + blockIdx.x * gridDim.y;
}

__global__ void integers(long* out, const long* in, unsigned char* bytes, short* halves, int n) {
  long a = in[threadIdx.x], b = in[threadIdx.x + n];
  int count = __popcll(a) + __ffsll((unsigned long long)b) + __clz((int)a) + (a < b) + (int)(a % 7);
  unsigned long long wide = (unsigned long long)a * b + (a >> (b & 63)) - __builtin_bitreverse64(a);
  for (int i = 0; i < n && wide; ++i) wide = wide * 31 + bytes[i] - halves[i];
  bytes[threadIdx.x] = wide;
  halves[threadIdx.x] = count;
  out[threadIdx.x] = wide / (b | 1) + __builtin_amdgcn_perm((unsigned)a, (unsigned)b, 0x03020706);
}

__global__ void doubles(double* out, const double* in, float* f) {
  double x = in[threadIdx.x];
  out[threadIdx.x] = x / in[0] + __builtin_sqrt(x) + __builtin_fma(x, x, 1.0) + (float)x;
  f[threadIdx.x] = f[1] / f[threadIdx.x] + sqrtf(f[2]) + expf(f[3]) + logf(f[4]) + (int)f[5] + (unsigned)x;
}

__global__ void halves16(f16x2* out, bf16x2* b, f32x2* pairs, float* f) {
  f16x2 x = out[threadIdx.x];
  out[threadIdx.x] = x * x + out[1] - (f16x2){(_Float16)f[0], (_Float16)f[1]};
  b[threadIdx.x] = b[threadIdx.x] * b[1] + b[2];
  f32x2 p = pairs[threadIdx.x];
  pairs[threadIdx.x] = p * pairs[1] + pairs[2];
  f[threadIdx.x] = __builtin_amdgcn_update_dpp(0, __float_as_int(f[9]), 0x140, 0xf, 0xf, true);
}

__global__ void stack(int* p) {
  int x[16];
  for (int i = 0; i < 16; ++i) x[i] = p[i];
  p[threadIdx.x] = x[p[0] & 15];
  __threadfence();
  p[1] = atomicCAS(p, 1, 2);
}
"""


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mir")
    (folder / "k.hip").write_text(KERNELS)
    clang = find_tool("clang", "tests")
    flags = [flag for flag in _standard_flags(clang, None) if flag not in ("-gline-tables-only", "--no-gpu-bundle-output")]
    subprocess.run([*clang.command, *flags, "-S", "-emit-llvm", "k.hip", "-o", "k.ll"], check=True, cwd=folder)
    machine_ir, code = compile_both((folder / "k.ll").read_text(), folder)
    return machine_ir, code


ALWAYS_SET = EXEC | sgpr(235, 18)  # apertures and constants, which LLVM does not count among an instruction's uses


def test_effects_are_those_of_llvm(compared):
    machine_ir, code = compared
    code = without_padding(machine_ir, code)
    assert len(machine_ir) == len(code) > 500
    assert len({inst.base for inst in code}) > 140
    wrong = []
    for llvm, inst in zip(machine_ir, code, strict=True):
        ours = effects(inst)
        indexed = M0 if inst.mnemonic == "v_mov_b32_e32" else 0  # between s_set_gpr_idx_on and _off
        reads, uses = ours.reads & ~ALWAYS_SET, llvm.uses & ~ALWAYS_SET
        if reads & ~uses or uses & ~(reads | ours.merges | indexed) or ours.writes != llvm.defs:
            wrong.append(
                f"{inst.text}: reads {register_names(reads)} (LLVM {register_names(uses)}),"
                f" writes {register_names(ours.writes)} (LLVM {register_names(llvm.defs)})"
            )
    assert not wrong, "\n".join(wrong)


def without_padding(machine_ir, code):
    """Drop the s_nops that align functions: those the machine IR does not have."""
    kept = []
    expected = iter(machine_ir)
    waiting = next(expected, None)
    for inst in code:
        is_padding = inst.mnemonic == "s_nop" and (waiting is None or waiting.opcode != "S_NOP")
        if not is_padding:
            kept.append(inst)
            waiting = next(expected, None)
    return kept


def one(text: str):
    mnemonic, _, operands = text.partition(" ")
    return decode_one(mnemonic, operands, 0, (0, 0))


@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [
        ("v_fmac_f32_e32 v1, v2, v3", vgpr(1, 3), vgpr(1)),
        ("v_div_fmas_f32 v1, v2, v3, v4", vgpr(2, 3) | VCC, vgpr(1)),
        ("v_cmpx_lt_f32_e32 vcc, v1, v2", vgpr(1, 2), VCC | EXEC),
        ("v_permlane32_swap_b32_e32 v4, v5", vgpr(4, 2), vgpr(4, 2)),
        ("v_swap_b32 v4, v5", vgpr(4, 2), vgpr(4, 2)),
        ("v_accvgpr_write_b32 a3, v1", vgpr(1), vgpr(AGPR_BASE + 3)),
        ("v_add_co_u32_e32 v0, vcc, v1, v2", vgpr(1, 2), vgpr(0) | VCC),
        ("s_addc_u32 s0, s1, s2", sgpr(1, 2) | SCC, sgpr(0) | SCC),
        ("s_mul_i32 s0, s1, s2", sgpr(1, 2), sgpr(0)),
        ("s_addk_i32 s5, 0x10", sgpr(5), sgpr(5) | SCC),
        ("s_and_saveexec_b64 s[2:3], vcc", VCC, sgpr(2, 2) | EXEC | SCC),
        ("s_cmp_lt_i32 s0, s1", sgpr(0, 2), SCC),
        ("s_cbranch_vccnz 4", VCC, 0),
        ("global_atomic_add_f32 v1, v0, s[4:5]", vgpr(0, 2) | sgpr(4, 2), 0),
        ("global_atomic_add_u32 v6, v1, v0, s[4:5] sc0", vgpr(0, 2) | sgpr(4, 2), vgpr(6)),
        ("buffer_atomic_add_u32 v1, v2, s[8:11], 0 offen sc0", vgpr(1, 2) | sgpr(8, 4), vgpr(1)),
        ("ds_add_rtn_u32 v5, v1, v2", vgpr(1, 2), vgpr(5)),
        ("ds_add_u32 v1, v2", vgpr(1, 2), 0),
        ("buffer_load_dwordx4 v1, s[8:11], 0 offen lds", vgpr(1) | sgpr(8, 4) | sgpr(124), 0),
        ("global_load_lds_dwordx4 v[0:1], off", vgpr(0, 2) | sgpr(124), 0),
        ("v_mfma_f32_16x16x32_bf16 a[0:3], v[4:7], v[8:11], a[0:3]", vgpr(4, 8) | vgpr(256, 4), vgpr(256, 4)),
    ],
)
def test_implicit_and_unusual_registers(text, reads, writes):
    found = effects(one(text))
    assert (register_names(found.reads), register_names(found.writes)) == (register_names(reads), register_names(writes))


@pytest.mark.parametrize(
    "text",
    [
        "v_cvt_pk_fp8_f32 v0, v1, v2 op_sel:[0,0,1]",
        "v_mov_b32_dpp v0, v1 row_mirror row_mask:0xf bank_mask:0xf",
        "ds_read_u16_d16_hi v0, v1",
        "v_writelane_b32 v0, s1, 3",
        "v_add_u32_sdwa v0, v1, v2 dst_sel:BYTE_0 dst_unused:UNUSED_PRESERVE",
    ],
)
def test_partial_results_keep_the_rest(text):
    found = effects(one(text))
    assert found.merges == vgpr(0)
    assert not found.reads & vgpr(0)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("v_mfma_f32_16x16x32_bf16 v[0:3], v[4:7], v[8:11], 0", Class.MFMA),
        ("v_smfmac_f32_16x16x64_bf16 v[0:3], v[4:7], v[8:15], v16", Class.MFMA),
        ("buffer_load_dwordx4 v1, s[8:11], 0 offen lds", Class.LDS_DMA),
        ("buffer_load_dwordx4 v[0:3], v1, s[8:11], 0 offen", Class.VMEM),
        ("flat_load_dword v0, v[2:3]", Class.VMEM),
        ("ds_bpermute_b32 v0, v1, v2", Class.LDS),
        ("s_load_dword s0, s[2:3], 0x0", Class.SMEM),
        ("s_buffer_load_dword s0, s[4:7], 0x0", Class.SMEM),
        ("s_waitcnt vmcnt(0)", Class.WAIT),
        ("s_cbranch_scc0 3", Class.BRANCH),
        ("s_add_u32 s0, s1, s2", Class.SALU),
        ("v_readfirstlane_b32 s0, v1", Class.VALU),
    ],
)
def test_classes(text, kind):
    assert classify(one(text)) is kind


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        (vgpr(3), "v3"),
        (vgpr(4, 4) | vgpr(254, 4), "v[4:7], v[254:255], a[0:1]"),
        (sgpr(0, 2) | SCC, "s[0:1], scc"),
        (VCC | EXEC, "vcc, exec"),
        (sgpr(106), "vcc_lo"),
        (0, ""),
    ],
)
def test_register_names(mask, names):
    assert register_names(mask) == names
