"""launch(): arguments, geometry, initial registers, and clear errors for what cannot be launched."""

import numpy as np
import pytest
import torch

from gfx950 import CodeObject, compile_hip
from gfx950.emulator import Buffer, RawKernarg, Run, launch
from gfx950.errors import BadArguments, BadLaunch, EmulationFault, NoSuchKernel

SOURCE = """
extern "C" __global__ void saxpy(const float* x, float* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
extern "C" __global__ void types(double d, long l, short s, signed char c, bool b, double* out) {
  out[0] = d; out[1] = l; out[2] = s; out[3] = c; out[4] = b;
}
extern "C" __global__ void where(int* out) {
  int in_grid = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  int in_block = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  int at = in_grid * blockDim.x * blockDim.y * blockDim.z + in_block;
  out[at] = threadIdx.x | threadIdx.y << 8 | threadIdx.z << 16 | (in_grid & 255) << 24;
}
extern "C" __global__ void only_x(int* out) { atomicAdd(out + threadIdx.x, 1); }
extern "C" __global__ void dynamic(int* out) {
  extern __shared__ int tile[];
  tile[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
__device__ int table[4] = {3, 1, 4, 1};
extern "C" __global__ void globals(int* out) { out[threadIdx.x] = table[threadIdx.x & 3]++; }
struct Pair { int* a; int b; };
extern "C" __global__ void by_value(Pair p) { p.a[0] = p.b; }
extern "C" __global__ void indirect(int** pointers) { pointers[1][0] = pointers[0][0] + 1; }
"""


@pytest.fixture(scope="module")
def code(toolchain) -> CodeObject:
    return compile_hip(SOURCE)


def test_numpy_arrays_and_tensors_are_used_in_place(code):
    x, y = np.arange(100, dtype=np.float32), torch.ones(100)
    run = launch(code, "saxpy", grid=1, block=128, args=[x, y, 0.5, 100])
    assert isinstance(run, Run)
    assert run.ok
    assert torch.equal(y, 1 + 0.5 * torch.from_numpy(x))


def test_scalars_have_the_size_that_the_metadata_says(code):
    out = np.zeros(5)
    launch(code, "types", grid=1, block=1, args=[2.5, -(1 << 40), np.int16(-3), -4, True, out])
    assert out.tolist() == [2.5, -(1 << 40), -3, -4, 1]


@pytest.mark.parametrize(("grid", "block"), [((2, 3, 2), (8, 4, 2)), ((5,), (100,)), ((1, 1, 3), (1, 70, 1)), (2, 64)])
def test_grid_and_block_in_three_dimensions(code, grid, block):
    sizes = [int(np.prod(grid)), int(np.prod(block))]
    out = np.full(sizes[0] * sizes[1], -1, np.int32)
    launch(code, "where", grid=grid, block=block, args=[out])
    bx, by, _ = (*np.atleast_1d(block).tolist(), 1, 1)[:3]
    item = np.arange(sizes[1])
    ids = item % bx | item // bx % by << 8 | item // (bx * by) << 16
    want = ids[None] | np.arange(sizes[0])[:, None] << 24
    assert np.array_equal(out.reshape(sizes), want)


def test_a_kernel_that_asks_for_x_alone_gets_x_alone(code):
    out = np.zeros(8, np.int32)
    launch(code, "only_x", grid=1, block=(8, 4, 2), args=[out])
    assert set(out) == {8}


def test_dynamic_lds(code):
    out = np.zeros(256, np.int32)
    launch(code, "dynamic", grid=1, block=256, args=[out], lds_bytes=1024)
    assert np.array_equal(out, np.arange(256)[::-1])
    with pytest.raises(EmulationFault, match="lds-out-of-bounds"):
        launch(code, "dynamic", grid=1, block=256, args=[out], lds_bytes=512)


def test_variables_of_the_code_object_are_fresh_in_every_launch(code):
    for _ in range(2):
        out = np.zeros(4, np.int32)
        launch(code, "globals", grid=1, block=4, args=[out])
        assert out.tolist() == [3, 1, 4, 1]


def test_offset_and_read_only_buffers(code):
    data = np.zeros(64, np.float32)
    launch(code, "saxpy", grid=1, block=16, args=[np.ones(16, np.float32), Buffer(data, "y", offset=64), 2.0, 16])
    assert data.tolist() == [0] * 16 + [2] * 16 + [0] * 32
    with pytest.raises(EmulationFault, match="read-only-store: store to the read-only buffer y"):
        launch(code, "saxpy", grid=1, block=16, args=[np.ones(16, np.float32), Buffer(data, "y", writable=False), 2.0, 16])


def test_pointers_in_memory_and_in_structs(code):
    first, second = np.array([41], np.int32), np.zeros(1, np.int32)
    table = Buffer(np.zeros(2, np.uint64), "table", pointers={0: Buffer(first), 8: Buffer(second)})
    launch(code, "indirect", grid=1, block=1, args=[table])
    assert second[0] == 42
    kernarg = RawKernarg(bytes(8) + (7).to_bytes(4, "little") + bytes(300), {0: Buffer(first)})
    launch(code, "by_value", grid=1, block=1, args=kernarg)
    assert first[0] == 7


def test_preloaded_arguments():
    """Firmware copies leading arguments into SGPRs and enters behind the code that would load them."""
    source = 'extern "C" __global__ void scale(float* y, float a) { y[threadIdx.x] *= a; }'
    code = compile_hip(source + "\n", flags=["-mllvm", "-amdgpu-kernarg-preload-count=4"])
    if not code.kernel("scale").descriptor.kernarg_preload_dwords:
        pytest.skip("this clang does not preload arguments")
    y = np.ones(64, np.float32)
    launch(code, "scale", grid=1, block=64, args=[y, 3.0])
    assert set(y) == {3.0}


FOUR = np.zeros(4, np.float32)
ERRORS = {
    "no such kernel": ({"kernel_name": "nothing"}, NoSuchKernel, "no kernel 'nothing'; kernels here: .*saxpy"),
    "too few arguments": ({"args": [1]}, BadArguments, "1 arguments given, 4 declared"),
    "wrong size": ({"args": [FOUR, FOUR, np.float64(1), 4]}, BadArguments, "argument 2.*4 bytes: the value has 8 bytes"),
    "too large": ({"args": [FOUR, FOUR, 1.0, 1 << 40]}, BadArguments, "argument 3"),
    "an array for a number": ({"args": [FOUR, FOUR, FOUR, 4]}, BadArguments, "argument 2.*not a pointer"),
    "a string": ({"args": ["x", FOUR, 1.0, 4]}, BadArguments, "argument 0"),
    "not contiguous": ({"args": [np.zeros((4, 4)).T, FOUR, 1.0, 4]}, BadArguments, "not C-contiguous"),
    "block too large": ({"block": 2048}, BadLaunch, "2048 work-items"),
    "four dimensions": ({"grid": (1, 1, 1, 1)}, BadLaunch, "4 dimensions"),
    "grid beyond 32 bits": ({"grid": (1 << 16, 1 << 16)}, BadLaunch, "4294967296 workgroups"),
    "negative LDS": ({"lds_bytes": -4}, BadLaunch, "-4 bytes of dynamic LDS"),
    "empty grid": ({"grid": 0}, BadLaunch, "at least 1"),
    "too much LDS": ({"lds_bytes": 1 << 20}, BadLaunch, "1048576 bytes of LDS"),
    "unknown fill": ({"lds_fill": "ones"}, BadLaunch, "choose one of nan, zero"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_one_clear_line(code, name):
    change, error, match = ERRORS[name]
    arguments = {"kernel_name": "saxpy", "grid": 1, "block": 64, "args": [FOUR, FOUR.copy(), 1.0, 4]} | change
    with pytest.raises(error, match=match) as caught:
        launch(code, **arguments)
    assert "\n" not in str(caught.value)


def test_a_finding_names_its_source_line(code):
    y = np.zeros(64, np.float32)
    with pytest.raises(EmulationFault) as caught:
        launch(code, "saxpy", grid=1, block=128, args=[np.zeros(128, np.float32), Buffer(y, "y"), 1.0, 128])
    finding = caught.value.facts["finding"]
    assert (finding.kind, finding.buffer, finding.wave, finding.lane) == ("out-of-bounds", "y", 1, 0)
    assert finding.line.endswith(".hip:4")


def test_counters(code):
    x, y = np.zeros(512, np.float32), np.zeros(512, np.float32)
    run = launch(code, "saxpy", grid=2, block=256, args=[Buffer(x, "x"), Buffer(y, "y"), 1.0, 512])
    counters = run.counters
    assert sum(counters.by_class.values()) == run.instructions == sum(run.executed)
    assert counters.by_class["vmem"] == 8 * 3
    assert (counters.buffers["x"].requested_load, counters.buffers["x"].unique_load) == (2048, 2048)
    assert (counters.buffers["y"].unique_load, counters.buffers["y"].unique_store) == (2048, 2048)
    assert counters.workgroups == 2
