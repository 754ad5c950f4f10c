"""Reading code objects: kernels and their resources, source lines, containers, and every way a file can be bad."""

from __future__ import annotations

import contextlib
import itertools
import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gfx950 import CodeObject, compile_hip
from gfx950.bundle import BUNDLE_MAGIC
from gfx950.checks import check
from gfx950.descriptor import KernelDescriptor
from gfx950.emulator import RawKernarg, launch
from gfx950.errors import Gfx950Error, NoSuchKernel, NotACodeObject, SourceMissing, ToolchainMissing, Truncated, WrongTarget
from gfx950.names import demangle, without_parameters
from gfx950.report import report
from gfx950.toolchain import INCLUDE_DIR
from gfx950.tools import Tool, find_tool

pytestmark = pytest.mark.usefixtures("toolchain")

SOURCE = """\
struct Pair { int a; float b; };
__device__ __forceinline__ float squared(float x) {
  return x * x;
}
template <int N> __global__ void __launch_bounds__(128) add(float* out, const float* in, Pair pair, int n) {
  __shared__ float tile[128];
  tile[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = squared(tile[127 - threadIdx.x]) * N + pair.a + n;
}
template __global__ void add<3>(float*, const float*, Pair, int);
template __global__ void add<4>(float*, const float*, Pair, int);
extern "C" __global__ void plain(int* p) {
  p[threadIdx.x] = blockIdx.y;
}
"""


@pytest.fixture(scope="module")
def code(toolchain):
    return compile_hip(SOURCE)


@pytest.fixture
def bundler(toolchain):
    """Debian has it in a package of its own, without which clang makes no bundle."""
    try:
        find_tool("clang-offload-bundler", "tests")
    except ToolchainMissing as error:
        pytest.skip(str(error).splitlines()[0])


def build(tmp_path, *flags, source=SOURCE, name="out"):
    """Raw clang, for the containers and targets that compile_hip never makes."""
    clang = find_tool("clang", "tests")
    path = tmp_path / "k.hip"
    path.write_text('#include "hip/hip_runtime.h"\n' + source)
    base = ["-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc", f"-I{INCLUDE_DIR}", "-O2", "-std=c++20"]
    subprocess.run([*clang.command, *base, *flags, str(path), "-o", str(tmp_path / name)], check=True, cwd=tmp_path)
    return tmp_path / name


def test_resources_and_arguments(code):
    kernel = code.kernel("add<3>")
    assert kernel.lds_bytes == 512
    assert kernel.max_workgroup_size == 128
    assert kernel.scratch_bytes == kernel.vgpr_spill_count == kernel.sgpr_spill_count == kernel.agpr_count == 0
    assert 0 < kernel.vgpr_count <= kernel.descriptor.vgpr_count
    layout = [(arg.offset, arg.size, arg.value_kind) for arg in kernel.args if not arg.hidden]
    assert layout == [(0, 8, "global_buffer"), (8, 8, "global_buffer"), (16, 8, "by_value"), (24, 4, "by_value")]


def test_hidden_arguments_are_told_apart(code):
    source = "__global__ void k(int* p) { *p = gridDim.x * blockDim.y; }\n"
    hidden = [arg.value_kind for arg in compile_hip(source).kernel("k").args if arg.hidden]
    assert "hidden_block_count_x" in hidden
    assert "hidden_group_size_y" in hidden


def test_agprs_are_counted_apart():
    source = "typedef float f32x16 __attribute__((ext_vector_type(16)));\n"
    source += "__global__ void __launch_bounds__(64) k(f32x16* p) {"
    source += ' asm volatile("v_accvgpr_write_b32 a9, 0" ::: "a9"); }\n'
    kernel = compile_hip(source).kernel()
    assert kernel.agpr_count == 10
    assert kernel.vgpr_count <= kernel.descriptor.accum_offset


@pytest.mark.parametrize("name", ["add<3>", "_Z3addILi3EEvPfPKf4Pairi", "void add<3>(float*, float const*, Pair, int)"])
def test_lookup_accepts_every_form_of_a_name(code, name):
    assert code.kernel(name).name == "_Z3addILi3EEvPfPKf4Pairi"


def test_unknown_and_ambiguous_names_list_the_kernels(code):
    with pytest.raises(NoSuchKernel, match=r"no kernel 'nope'; kernels here: .*add<3>.*add<4>.*plain|plain.*add<3>"):
        code.kernel("nope")
    with pytest.raises(NoSuchKernel, match="more than one kernel matches 'add'"):
        code.kernel("add")
    with pytest.raises(NoSuchKernel, match="more than one"):
        code.kernel()


def test_code_has_addresses_encodings_and_lines(code):
    kernel = code.kernel("plain")
    lines = code.kernel_code(kernel)
    assert lines[0].address == kernel.address
    assert all(after.address == before.address + before.size_bytes for before, after in itertools.pairwise(lines))
    store = next(line for line in lines if line.mnemonic.startswith("global_store"))
    assert struct.pack("<2I", *store.words) == code.read(store.address, 8)
    assert code.source_line(store.address).line == 14
    assert any(line.mnemonic == "s_endpgm" for line in lines)


def test_inlined_code_knows_its_callers(code):
    lines = code.kernel_code(code.kernel("add<3>"))
    multiply = next(line for line in lines if line.mnemonic == "v_mul_f32_e32" and line.operands[:2] == line.operands[4:6])
    stack = code.line_table.stack(multiply.address)
    assert [frame.line for frame in stack] == [3, 9]
    barrier = next(line for line in lines if line.mnemonic == "s_barrier")
    assert code.line_table.lookup(barrier.address).file.endswith("prelude.h")
    assert code.source_line(barrier.address).line == 8  # the user's line, not the prelude's


def test_no_lines_without_debug_information(tmp_path):
    code = CodeObject.load(build(tmp_path, "--offload-arch=gfx950", "--no-gpu-bundle-output"))
    assert code.source_line(code.kernel("plain").address) is None


def test_initial_registers_follow_the_descriptor(code):
    descriptor = code.kernel("plain").descriptor
    assert descriptor.initial_sgprs == {"kernarg_segment_ptr": (0, 2), "workgroup_id_x": (2, 1), "workgroup_id_y": (3, 1)}
    assert descriptor.workitem_id_dimensions == 1
    assert descriptor.float_denorm_mode_32 == descriptor.float_denorm_mode_16_64 == 3
    assert not descriptor.wavefront_size32


def test_kernarg_preload_is_read():
    code = compile_hip(
        'extern "C" __global__ void k(int* p, int n) { *p = n; }\n', flags=["-mllvm", "-amdgpu-kernarg-preload-count=2"]
    )
    descriptor = code.kernel("k").descriptor
    assert descriptor.kernarg_preload_dwords == 3
    assert descriptor.kernarg_preload_offset_dwords == 0
    first, count = descriptor.initial_sgprs["kernarg_preload"]
    assert (first, count) == (2, 3)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=16, max_size=16))
def test_any_descriptor_words_place_registers_without_overlap(words):
    placed = KernelDescriptor.parse(struct.pack("<16I", *words)).initial_sgprs
    user = [(first, count) for name, (first, count) in placed.items() if not name.startswith("workgroup")]
    assert all(a + n <= b for (a, n), (b, _) in itertools.pairwise(user))


HAND_WRITTEN = """\
.amdgcn_target "amdgcn-amd-amdhsa--gfx950"
.text
.globl first
.p2align 8
.type first,@function
first:
  s_mov_b32 s0, 3
loop:
  s_sub_u32 s0, s0, 1
  s_cbranch_scc0 loop
  s_endpgm
.globl second
.p2align 8
.type second,@function
second:
  s_endpgm
.rodata
.p2align 6
.amdhsa_kernel first
  .amdhsa_next_free_vgpr 8
  .amdhsa_next_free_sgpr 8
  .amdhsa_accum_offset 8
.end_amdhsa_kernel
.amdhsa_kernel second
  .amdhsa_next_free_vgpr 8
  .amdhsa_next_free_sgpr 8
  .amdhsa_accum_offset 8
.end_amdhsa_kernel
"""


def test_hand_written_code_without_symbol_sizes_and_metadata(tmp_path):
    """Labels inside do not end a kernel; without a metadata note the descriptors say what there is."""
    (tmp_path / "k.s").write_text(HAND_WRITTEN)
    clang = find_tool("clang", "tests")
    target = ["-target", "amdgcn-amd-amdhsa", "-mcpu=gfx950", "-nogpulib"]
    subprocess.run([*clang.command, *target, "k.s", "-o", "k.co"], check=True, cwd=tmp_path)
    code = CodeObject.load(tmp_path / "k.co")
    assert [line.mnemonic for line in code.kernel_code(code.kernel("first"))][:4] == [
        "s_mov_b32",
        "s_sub_u32",
        "s_cbranch_scc0",
        "s_endpgm",
    ]
    assert code.kernel("second").address == code.kernel("first").address + code.kernel("first").code_bytes
    assert code.kernel("first").vgpr_count == 8
    assert code.kernel("first").args == ()


# --- containers


def bundled(entries: dict[str, bytes]) -> bytes:
    """An uncompressed offload bundle, written from the format's description."""
    table = b"".join(struct.pack("<QQQ", 0, 0, len(name)) + name.encode() for name in entries)
    offset = len(BUNDLE_MAGIC) + 8 + len(table)
    out = BUNDLE_MAGIC + struct.pack("<Q", len(entries))
    for name, blob in entries.items():
        out += struct.pack("<QQQ", offset, len(blob), len(name)) + name.encode()
        offset += len(blob)
    return out + b"".join(entries.values())


HOST, CDNA3 = "host-x86_64-unknown-linux-gnu-", "hipv4-amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-"


@pytest.mark.parametrize("target", ["hipv4-amdgcn-amd-amdhsa--gfx950", "hip-amdgcn-amd-amdhsa--gfx950:sramecc+:xnack-"])
def test_the_gfx950_entry_is_taken_from_a_bundle(code, target):
    loaded = CodeObject.load(bundled({HOST: b"", CDNA3: b"other", target: code.data}))
    assert loaded.data == code.data


def test_a_bundle_without_gfx950_says_what_it_holds():
    with pytest.raises(WrongTarget, match=r"made for hipv4-amdgcn-amd-amdhsa--gfx942"):
        CodeObject.load(bundled({HOST: b"", CDNA3: b"other"}))


@pytest.mark.usefixtures("bundler")
def test_clang_own_bundles_load(tmp_path, code):
    names = {kernel.name for kernel in code.kernels}
    plain = build(tmp_path, "--offload-arch=gfx942", "--offload-arch=gfx950", "--gpu-bundle-output", name="plain")
    packed = build(tmp_path, "--offload-arch=gfx950", "--gpu-bundle-output", "--offload-compress", name="packed")
    assert packed.read_bytes().startswith(b"CCOB")
    for path in (plain, packed):
        assert {kernel.name for kernel in CodeObject.load(path).kernels} == names


@pytest.mark.usefixtures("bundler")
def test_a_compressed_bundle_for_another_target_is_refused(tmp_path):
    packed = build(tmp_path, "--offload-arch=gfx942", "--gpu-bundle-output", "--offload-compress")
    with pytest.raises(WrongTarget, match="gfx942"):
        CodeObject.load(packed)
    with pytest.raises(NotACodeObject, match="damaged compressed bundle"):
        CodeObject.load(packed.read_bytes()[:100])


def test_a_host_program_with_device_code_inside(tmp_path, code):
    """As hipcc links them: a bundle in the section .hip_fatbin of an x86-64 program."""
    (tmp_path / "bundle").write_bytes(bundled({HOST: b"", "hipv4-amdgcn-amd-amdhsa--gfx950": code.data}))
    (tmp_path / "host.c").write_text("int main(void) { return 0; }\n")
    clang, objcopy = find_tool("clang", "tests"), find_tool("llvm-objcopy", "tests")
    subprocess.run([*clang.command, "-c", "host.c", "-o", "host.o"], check=True, cwd=tmp_path)
    subprocess.run([*objcopy.command, "--add-section=.hip_fatbin=bundle", "host.o", "program"], check=True, cwd=tmp_path)
    assert CodeObject.load(tmp_path / "program").data == code.data


# --- bad files


def test_another_target_is_refused(tmp_path):
    with pytest.raises(WrongTarget, match="made for gfx942, but only gfx950 is supported"):
        CodeObject.load(build(tmp_path, "--offload-arch=gfx942", "--no-gpu-bundle-output"))


def test_a_host_program_is_refused():
    with pytest.raises(WrongTarget, match="made for machine"):
        CodeObject.load(sys.executable)


def test_an_unlinked_object_is_refused(tmp_path):
    path = build(tmp_path, "--offload-arch=gfx950", "--no-gpu-bundle-output", "-c", "-fgpu-rdc", "-emit-llvm", name="k.bc")
    with pytest.raises(NotACodeObject, match="does not begin with an ELF header"):
        CodeObject.load(path)


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "an empty file"), (b"hello", "ELF header"), (b"\x7fELF\x02", "truncated")]
)
def test_small_nonsense_is_named(tmp_path, content, message):
    path = tmp_path / "bad.hsaco"
    path.write_bytes(content)
    with pytest.raises(Gfx950Error, match=rf"bad\.hsaco: .*{message}"):
        CodeObject.load(path)


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(SourceMissing, match=r"none\.co: no such file"):
        CodeObject.load(tmp_path / "none.co")
    with pytest.raises(NotACodeObject, match="is a directory"):
        CodeObject.load(tmp_path)


@settings(max_examples=60, deadline=None)
@given(fraction=st.floats(0, 1, exclude_max=True))
def test_every_truncation_is_one_clear_error(code, fraction):
    """The section table ends the file, so any prefix lacks some of it."""
    with pytest.raises((Truncated, NotACodeObject)) as raised:
        CodeObject.load(code.data[: int(len(code.data) * fraction)])
    assert "\n" not in str(raised.value)


def damaged_copy(code: CodeObject, data: st.DataObject) -> bytearray:
    """The code object with a few bytes overwritten anywhere."""
    damaged = bytearray(code.data)
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    return damaged


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damage_is_survived_or_named(code, data):
    """The file loads, or one of this package's errors says why not."""
    damaged = damaged_copy(code, data)
    message = ""
    try:
        loaded = CodeObject.load(bytes(damaged))
        for kernel in loaded.kernels:
            loaded.source_line(kernel.address)
    except Gfx950Error as error:
        message = str(error)
    assert "\n" not in message


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_damage_to_what_runs_is_survived_or_named(code, data):
    """The same for everything that follows loading: disassembly, checks, report, emulation."""
    with contextlib.suppress(Gfx950Error):
        use(CodeObject.load(bytes(damaged_copy(code, data))))


def use(code: CodeObject) -> None:
    """Everything that is done with a code object."""
    check(code)
    report(code)
    for kernel in code.kernels:
        args = [np.zeros(256, np.float32) if arg.value_kind == "global_buffer" else bytes(arg.size) for arg in kernel.args]
        launch(code, kernel.name, grid=1, block=64, args=args, strict=False, budget=5000)


@pytest.mark.parametrize("field", [0x20, 0x28])  # p_filesz, p_memsz
def test_a_segment_of_impossible_size_is_named(code, field):
    damaged = bytearray(code.data)
    header = int.from_bytes(damaged[0x20:0x28], "little")
    for k in range(int.from_bytes(damaged[0x38:0x3A], "little")):
        at = header + 56 * k + field
        damaged[at : at + 8] = (1 << 60).to_bytes(8, "little")
    with pytest.raises((NotACodeObject, Truncated)):
        load_and_launch(bytes(damaged))


def load_and_launch(data: bytes) -> None:
    code = CodeObject.load(data)
    launch(code, code.kernels[0].name, grid=1, block=64, args=RawKernarg(bytes(256), {}), strict=False)


@pytest.mark.parametrize("distance", [2, 1 << 20, -(1 << 40)])
def test_a_kernel_that_begins_at_no_instruction_is_named(code, distance):
    damaged = bytearray(code.data)
    descriptor = damaged.index(code.read(code.symbols["plain.kd"][0], 64))
    entry = slice(descriptor + 16, descriptor + 24)  # kernel_code_entry_byte_offset
    offset = int.from_bytes(damaged[entry], "little", signed=True)
    damaged[entry] = (offset + distance).to_bytes(8, "little", signed=True)
    loaded = CodeObject.load(bytes(damaged))
    check(loaded, "plain")
    with pytest.raises(NotACodeObject, match=r"plain begins at .* no instruction"):
        launch(loaded, "plain", grid=1, block=64, args=[np.zeros(64, np.int32)])


def test_machine_code_that_the_disassembler_refuses_is_named(code, monkeypatch):
    refusing = Tool(("sh", "-c", "echo 'section lies' >&2; exit 1"), "22")
    monkeypatch.setattr("gfx950.disassembly.find_tool", lambda *_: refusing)
    with pytest.raises(NotACodeObject, match="damaged: llvm-objdump refuses it: section lies"):
        _ = CodeObject.load(code.data).code


def test_damaged_bundles_are_named(code):
    whole = bundled({HOST: b"", "hipv4-amdgcn-amd-amdhsa--gfx950": code.data})
    for size in (24, 30, 60, 90, len(whole) - 1):
        with pytest.raises((Truncated, NotACodeObject)):
            CodeObject.load(whole[:size])


# --- names


@pytest.mark.parametrize(
    ("mangled", "demangled", "bare"),
    [
        ("plain", "plain", "plain"),
        ("_Z3addILi3EEvPfPKfi", "void add<3>(float*, float const*, int)", "add<3>"),
        ("_ZN2ns4kernEPfS0_", "ns::kern(float*, float*)", "ns::kern"),
        ("_ZN12_GLOBAL__N_11kEPf", "(anonymous namespace)::k(float*)", "(anonymous namespace)::k"),
        ("_Z1kPKDF16b", "k(std::bfloat16_t const*)", "k"),
        ("_Zgarbage", "_Zgarbage", "_Zgarbage"),
    ],
)
def test_demangling(mangled, demangled, bare):
    assert demangle(["plain", mangled]) == ["plain", demangled]
    assert without_parameters(demangled) == bare


def test_demangling_without_llvm(tmp_path, monkeypatch):
    monkeypatch.setenv("GFX950_LLVM", str(tmp_path))
    assert demangle(["_Z3addILi3EEvPfPKfi", "_Zgarbage"]) == ["void add<3>(float*, float const*, int)", "_Zgarbage"]
