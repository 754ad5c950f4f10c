"""The Triton kernels compiled for gfx950 and run by the emulator, on small cases, against the fp64 oracle."""

import shutil

import pytest
import torch

triton = pytest.importorskip("triton")
from flash_mla_probes import REFERENCE, arguments  # noqa: E402
from test_flash_mla_compile import DENSE, MI355X, SPARSE, compile_for  # noqa: E402

from gfx950 import CodeObject  # noqa: E402
from gfx950.emulator import Buffer, launch  # noqa: E402
from kernels.flash_mla.call import check_call  # noqa: E402
from kernels.flash_mla.triton_backend import TritonPlan  # noqa: E402
from kernels.flash_mla.triton_dense import dense_kernel  # noqa: E402
from kernels.flash_mla.triton_sparse import sparse_kernel  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("llvm-objdump-22") is None, reason="llvm-objdump-22 is missing: make toolchain")
WAVE_SIZE = 64
SMALL = {"batchsize": 1, "qseqlen": 1, "kvseqlen": 40, "numheads": 16}
TILE = {"block_m": 16, "block_n": 32, "chained": True}
PLAIN = {"has_length": False, "has_sink": False}
CASES = {
    "dense": (SMALL | {"seed": 1}, dense_kernel, DENSE | TILE | {"causal": False, "row_blocks": 1}),
    "v32": (
        SMALL | {"layout": "v32", "topk": 40, "invalid": "some", "sink": "normal", "seed": 2},
        sparse_kernel,
        SPARSE | TILE | {"has_length": False},
    ),
    "model1": (
        SMALL | {"layout": "model1", "topk": 20, "invalid": "some", "seed": 3},
        sparse_kernel,
        SPARSE | TILE | PLAIN | {"layout": "model1"},
    ),
}


def whole(tensor):
    """The memory that a tensor begins, also where its pages lie apart."""
    return tensor if tensor.is_contiguous() else torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())


def emulate(spec, kernel, constants):
    """The input, and (out, lse) of the machine code."""
    data = REFERENCE.generate_input(**spec, device="cpu")
    call = check_call(arguments(data))
    cache = "*bf16" if call.layout.startswith("bf16") else "*u8"
    compiled = compile_for(MI355X, kernel, constants, cache, num_warps=4, num_stages=1)
    plan = TritonPlan.__new__(TritonPlan)  # its list of arguments alone: there is no GPU to plan for
    plan.partial, plan.partial_lse = torch.zeros(1), torch.zeros(1)
    out, lse = torch.full((1, 1, 16, 512), torch.nan, dtype=torch.bfloat16), torch.full((1, 16, 1), torch.nan)
    values = plan.attend_args(call, out, lse)
    names = [name for name in kernel.arg_names if name not in constants]
    code = CodeObject.load(compiled.asm["hsaco"], name="kernel.hsaco")
    written = ("out_ptr", "lse_ptr")
    args = [
        Buffer(whole(value), name, writable=name in written) if isinstance(value, torch.Tensor) else value
        for name, value in zip(names, values, strict=True)
    ]
    declared = sum(not arg.hidden for arg in code.kernel().args)
    args += [None] * (declared - len(args))  # scratch pointers that Triton appends
    run = launch(code, grid=(1, 1, 1), block=4 * WAVE_SIZE, args=tuple(args), lds_bytes=compiled.metadata.shared)
    results = dict(zip(names, run.args, strict=False))
    return data, tuple(torch.as_tensor(results[name]) for name in written)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n == "model1" else []) for n in CASES])
def test_emulated_code_agrees_with_the_oracle(name):
    data, output = emulate(*CASES[name])
    verdict = REFERENCE.judge(data, output)
    assert verdict["official"]["ok"], verdict
    assert verdict["strict"]["ok"], verdict
