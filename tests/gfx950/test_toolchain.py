"""Compiling: what is cached, what the prelude offers, and that the same source compiles against HIP's own headers."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from gfx950 import compile_hip, toolchain, tools
from gfx950.errors import BadDefine, CompileFailed, SourceMissing, ToolchainMissing, ToolchainTooOld

pytestmark = pytest.mark.usefixtures("toolchain")

SCALE = """
#ifndef FACTOR
#define FACTOR 2
#endif
__global__ void scale(float* x) { x[threadIdx.x] *= FACTOR; }
"""

# Everything the prelude promises, used once.
TOUR = """
#include <hip/hip_runtime.h>
extern __shared__ float dynamic[];
__constant__ const float table[4] = {1.f, 2.f, 3.f, 4.f};
__device__ __noinline__ float scaled(float x) { return x * 3.f; }
__device__ __forceinline__ float squared(float x) { return x * x; }
__global__ void __launch_bounds__(256, 2) tour(float* out, const float4* in, unsigned* counter, int n) {
  __shared__ float tile[256];
  int i = blockIdx.x * blockDim.x + threadIdx.x + (blockIdx.y + blockIdx.z) * gridDim.x;
  float4 v = in[i];
  float2 pair = make_float2(v.x, v.y);
  tile[threadIdx.x] = squared(pair.x) + scaled(pair.y);
  dynamic[threadIdx.x] = v.z;
  __syncthreads();
  float sum = tile[255 - threadIdx.x] + dynamic[threadIdx.x ^ 1] + table[threadIdx.x & 3];
  for (int mask = 32; mask; mask >>= 1) sum += __shfl_xor(sum, mask);
  sum += __shfl(sum, 3) + __shfl_down(sum, 1) + __shfl_up(sum, 1, 16);
  if (__any(sum > 0.f) && !__all(sum > 1.f)) sum += __popcll(__ballot(sum > 2.f));
  sum = fmaxf(fminf(sum, 1e3f), fabsf(sum)) + fmaf(sum, 2.f, 1.f) + sqrtf(sum) + rsqrtf(sum) + __expf(sum) + __logf(sum);
  sum += expf(sum) + exp2f(sum) + logf(sum) + log2f(sum) + floorf(sum) + ceilf(sum) + rintf(sum);
  sum += __uint_as_float(__float_as_uint(sum) + min(n, 3) + max(n, 4)) + __int_as_float(__float_as_int(sum) ^ __clz(n));
  sum += __popc(n) + __ffs(n) + __ffsll((unsigned long long)n) + warpSize;
  __threadfence_block();
  if (i < n) out[i] = sum;
  __threadfence();
  atomicAdd(counter, 1u);
  atomicMax(counter + 1, (unsigned)i);
  atomicMin(counter + 2, (unsigned)i);
  atomicExch(counter + 3, (unsigned)i);
  atomicCAS(counter + 4, 0u, 1u);
  atomicAdd(out, 1.f);
}
"""


@pytest.fixture
def private_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernelproof" / "gfx950"


@pytest.fixture
def compilations(monkeypatch):
    """How often clang really compiled."""
    calls = []
    build = toolchain._build
    monkeypatch.setattr(toolchain, "_build", lambda *arguments: (calls.append(1), build(*arguments)))
    return calls


def test_a_second_compilation_comes_from_the_cache(private_cache, compilations):
    first, second = compile_hip(SCALE), compile_hip(SCALE)
    assert first.data == second.data
    assert len(compilations) == 1
    assert len(list(private_cache.glob("*.hsaco"))) == 1


@pytest.mark.parametrize("change", [{"defines": {"FACTOR": 5}}, {"defines": ["FACTOR=5"]}, {"flags": ["-O1"]}])
def test_defines_and_flags_are_part_of_the_cache_key(private_cache, compilations, change):
    compile_hip(SCALE)
    compile_hip(SCALE, **change)
    assert len(compilations) == 2


def test_a_changed_include_compiles_again(private_cache, compilations, tmp_path):
    source = tmp_path / "k.hip"
    source.write_text('#include "factor.h"\n__global__ void k(int* x) { *x = FACTOR; }\n')
    (tmp_path / "factor.h").write_text("#define FACTOR 1\n")
    before = compile_hip(source)
    (tmp_path / "factor.h").write_text("#define FACTOR 2\n")
    assert compile_hip(source).data != before.data
    assert len(compilations) == 2


def test_include_dirs_are_searched(private_cache, tmp_path):
    (tmp_path / "somewhere").mkdir()
    (tmp_path / "somewhere" / "factor.h").write_text("#define FACTOR 1\n")
    text = '#include "factor.h"\n__global__ void k(int* x) { *x = FACTOR; }\n'
    assert compile_hip(text, include_dirs=[tmp_path / "somewhere"]).kernel("k")


@pytest.mark.parametrize("name", ["hip", "prelude"])
def test_one_source_compiles_with_the_prelude_and_with_hip_headers(name, hip_headers):
    code = compile_hip(TOUR, rocm_path=hip_headers if name == "hip" else None)
    kernel = code.kernel("tour")
    assert kernel.max_workgroup_size == 256
    assert kernel.lds_bytes == 1024
    assert [arg.value_kind for arg in kernel.args[:4]] == ["global_buffer"] * 3 + ["by_value"]


@pytest.mark.parametrize(("bounds", "largest"), [("256", 256), ("512, 2", 512), ("64", 64)])
def test_launch_bounds_reach_the_kernel_as_in_hip(bounds, largest, hip_headers):
    text = f"__global__ void __launch_bounds__({bounds}) k(float* x) {{ x[threadIdx.x] += 1.f; }}\n"
    for rocm_path in (None, hip_headers):
        assert compile_hip(text, rocm_path=rocm_path).kernel("k").max_workgroup_size == largest


def test_launch_bounds_lift_the_register_limit():
    """Clang's bare launch_bounds attribute would leave 1024 work-items and so 128 VGPRs: spills, where 512 are there."""
    body = "{ float r[200]; for (int i = 0; i < 200; ++i) r[i] = x[threadIdx.x * 200 + i]; " + "__syncthreads(); "
    body += "for (int i = 0; i < 200; ++i) x[threadIdx.x * 200 + i] = r[i] * r[199 - i]; }\n"
    capped = compile_hip("__global__ void __attribute__((launch_bounds(256))) k(float* x) " + body).kernel("k")
    mapped = compile_hip("__global__ void __launch_bounds__(256) k(float* x) " + body).kernel("k")
    assert capped.vgpr_spill_count > 0
    assert mapped.vgpr_spill_count == 0
    assert mapped.vgpr_count > 128


def test_errors_of_the_source_show_clang_diagnostics():
    with pytest.raises(CompileFailed, match=r"(?s)\.hip:1:\d+: error: .*nonsense"):
        compile_hip("__global__ void k() { nonsense; }\n")


def test_a_missing_source_is_named(tmp_path):
    with pytest.raises(SourceMissing, match=r"none\.hip: no such file"):
        compile_hip(tmp_path / "none.hip")


def test_a_folder_without_hip_headers_is_named(tmp_path):
    with pytest.raises(SourceMissing, match=r"hip_runtime\.h: no such file"):
        compile_hip(SCALE, rocm_path=tmp_path)


@pytest.mark.parametrize("define", ["3=4", "A B", "", "-O3"])
def test_a_malformed_define_is_refused(define):
    with pytest.raises(BadDefine, match="NAME=VALUE"):
        compile_hip(SCALE, defines=[define])


def _fake_clang(folder, version):
    script = folder / "clang"
    script.write_text(f"#!/bin/sh\necho 'Some clang version {version}'\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)


def test_an_old_clang_is_refused_with_its_version(tmp_path, monkeypatch):
    _fake_clang(tmp_path, "19.1.7")
    monkeypatch.setenv("GFX950_LLVM", str(tmp_path))
    with pytest.raises(ToolchainTooOld, match=r"LLVM 19\.1\.7, but gfx950 needs LLVM 20"):
        compile_hip(SCALE)


def test_no_toolchain_names_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setenv("GFX950_LLVM", str(tmp_path))
    with pytest.raises(ToolchainMissing, match=r"clang is not installed .* `make toolchain`"):
        compile_hip(SCALE)


def test_without_objdump_reports_work_and_disassembly_says_what_it_needs(tmp_path, monkeypatch):
    code = compile_hip(SCALE)
    monkeypatch.setenv("GFX950_LLVM", str(tmp_path))
    assert code.kernel("scale").vgpr_count > 0
    with pytest.raises(ToolchainMissing, match="llvm-objdump is not installed"):
        code.code  # noqa: B018


def test_the_cache_lives_under_xdg_cache_home(private_cache):
    compile_hip(SCALE)
    assert private_cache.is_dir()
    assert not [name for name in os.listdir(private_cache) if name.startswith("tmp")]


def test_versions_are_read_from_any_vendor_text(tmp_path):
    _fake_clang(tmp_path, "22.0.1git")
    assert tools._version((str(tmp_path / "clang"),)) == "22.0.1"


@pytest.fixture
def only_ziglang(monkeypatch):
    """As on a machine without LLVM where PyPI's ziglang was installed."""
    pytest.importorskip("ziglang", reason="PyPI's ziglang, the way to compile without root, is not installed")
    candidates = tools._candidates
    monkeypatch.setattr(tools, "_candidates", lambda *a: (c for c in candidates(*a) if "ziglang" in c))
    tools._find_tool.cache_clear()
    yield
    tools._find_tool.cache_clear()


def test_ziglang_compiles_and_links(private_cache, only_ziglang):
    code = compile_hip(SCALE)
    assert code.kernel("scale").vgpr_count > 0
    with pytest.raises(ToolchainMissing, match="llvm-objdump"):
        code.code  # noqa: B018


def test_the_linker_shim_drops_the_flavor_and_hands_on_the_rest(private_cache, tmp_path):
    """clang calls `lld -flavor gnu ...`; the shim must become `python -m ziglang ld.lld ...`."""
    tool = tools.Tool((sys.executable, "-m", "ziglang", "clang"), "22.1.8")
    package = tmp_path / "ziglang"
    package.mkdir()
    (package / "__main__.py").write_text("import sys\nprint(sys.argv[1:])\n")
    shim_dir = tool.environment()["PATH"].split(os.pathsep)[0]
    command = [f"{shim_dir}/lld", "-flavor", "gnu", "-shared", "a b.o"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}
    )
    assert done.stdout.strip() == "['ld.lld', '-shared', 'a b.o']"
