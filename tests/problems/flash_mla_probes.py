"""What a version of the Triton kernels is asked in its interpreter: cases for the judge, and questions about its calls.

Every probe returns what is wrong, or "". Runs where TRITON_INTERPRET is 1; `kernels.flash_mla` is the version under test.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import torch

from harness.modules import ModuleSpace

REFERENCE = ModuleSpace(Path(__file__).resolve().parents[2] / "problems" / "flash_mla").load("reference")
V32 = {"batchsize": 1, "qseqlen": 1, "kvseqlen": 64, "layout": "v32", "numheads": 16}
MAP_NORESERVE = 0x4000  # Linux; the mmap module has no name for it before Python 3.13
FAR = 5 << 30  # bytes between the pages of far_pages: beyond 32 bits, whatever the unit up to a byte
BASE = 6 << 30


def judge(splits: int = 0, **spec: Any) -> str:
    """The verdict on one case; `splits` overrides the number of KV splits."""
    from kernels.flash_mla.call import check_call, workload
    from kernels.flash_mla.triton_backend import TritonBackend

    data = REFERENCE.generate_input(**spec, device="cpu")
    call = check_call(arguments(data))
    params = TritonBackend().default_params(workload(call), call.q.device)
    plan = TritonBackend().plan(call, params | ({"num_kv_splits": splits} if splits else {}))
    plan.partial.fill_(torch.nan)  # what a call leaves in the workspace must not matter to the next
    plan.partial_lse.fill_(torch.nan)
    return wrong(data, plan(call))


def wrong(data: Any, output: Any) -> str:
    """Both verdicts without the cosine difference: Triton's interpreter truncates to bf16 where a GPU rounds."""
    expected = REFERENCE.ref_kernel(data)
    found = REFERENCE.compare("out", output[0], expected[0], REFERENCE.OUT_ABS["sparse"], REFERENCE.OUT_REL)
    found = found or REFERENCE.compare("lse", output[1], expected[1], REFERENCE.LSE_ABS, REFERENCE.LSE_REL)
    return found or REFERENCE.judge(data, output)["strict"]["message"]


def arguments(data: Any) -> dict[str, Any]:
    return {"q": data[0], "k_cache": data[1], **data[2]}


def call_in_place() -> str:
    """Whether the kernel gets a V32 cache itself or a copy of it."""
    from kernels.flash_mla.call import check_call, workload
    from kernels.flash_mla.triton_backend import TritonBackend, outputs

    data = REFERENCE.generate_input(**V32, seed=1, topk=16, device="cpu")
    call = check_call(arguments(data))
    plan = TritonBackend().plan(call, TritonBackend().default_params(workload(call), call.q.device))
    passed = plan.attend_args(call, *outputs(call))[1]
    return "" if passed.data_ptr() == data[1].data_ptr() else "the cache is copied at every call"


def small_batch_fills_gpu() -> str:
    """Programs of a small batch on a GPU of 132 multiprocessors."""
    from kernels.flash_mla import triton_backend
    from kernels.flash_mla.call import check_call, workload

    data = REFERENCE.generate_input(**V32 | {"kvseqlen": 2048}, seed=1, topk=2048, device="cpu")
    known = triton_backend.multiprocessors
    triton_backend.multiprocessors = lambda device: 132
    try:
        splits = triton_backend.default_splits(workload(check_call(arguments(data))), 16, 64, torch.device("cpu"))
    finally:
        triton_backend.multiprocessors = known
    return "" if splits >= 16 else f"a sequence runs as {splits} programs on 132 multiprocessors"


def another_scale() -> str:
    """Whether a second softmax_scale is served by the plan and the code of the first, and rightly."""
    from kernels.flash_mla.interface import flash_mla_with_kvcache, get_mla_metadata
    from kernels.flash_mla.triton_sparse import sparse_kernel

    q, cache, options = REFERENCE.generate_input(**V32, seed=2, topk=20, device="cpu")
    metadata = get_mla_metadata()[0]
    for scale in (0.05, 0.3):
        options["softmax_scale"] = scale
        output = flash_mla_with_kvcache(q, cache, tile_scheduler_metadata=metadata, **options)
        if complaint := wrong((q, cache, options), output):
            return f"scale {scale}: {complaint}"
    if len(metadata.plans) != 1:
        return f"{len(metadata.plans)} plans for two scales"
    return "sm_scale is a compile-time constant" if "sm_scale" in compile_time_arguments(sparse_kernel) else ""


def compile_time_arguments(kernel: Any) -> set[str]:
    return {name for name, kind in kernel.fn.__annotations__.items() if "constexpr" in str(kind)}


def far_pages(dense: bool) -> str:
    """One token of ones in a page that lies FAR bytes from the first, where offsets of 32 bits wrap.

    The memory is reserved, not used: only the pages that are touched exist. The tensor that the kernel gets ends long before
    the second page, so that the interpreter has little to copy; addresses below the base are reserved too, for those that wrap.
    """
    import triton.language as tl

    from kernels.flash_mla import triton_dense, triton_sparse

    dense_kernel: Any = triton_dense.dense_kernel
    sparse_kernel: Any = triton_sparse.sparse_kernel
    region = mmap.mmap(-1, BASE + FAR + (1 << 20), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    row = torch.ones(576, dtype=torch.bfloat16).view(torch.uint8).numpy().tobytes()
    region[BASE + FAR : BASE + FAR + len(row)] = row
    near = torch.frombuffer(region, dtype=torch.bfloat16, count=576, offset=BASE)
    q = torch.ones(1, 1, 16, 576, dtype=torch.bfloat16)
    out, lse, empty = torch.zeros(1, 1, 16, 512, dtype=torch.bfloat16), torch.zeros(1, 16, 1), torch.zeros(1)
    page, one = torch.tensor([[[1]]], dtype=torch.int32), torch.tensor([1], dtype=torch.int32)
    common: Any = {"row_blocks": 1, "whole": True, "block_m": 16, "block_n": 16, "chained": True, "overlap": False}
    common["operand"] = tl.float32
    written = (out, lse, empty, empty, 1 / 24, 16, 1)
    if dense:
        sizes: Any = {"kv_heads": 1, "page_size": 1, "has_rope": True, "causal": False}
        dense_kernel[(1, 1, 1)](q, near, page, one, *written, 1, FAR // 16, 0, 0, **sizes, **common)
    else:
        flags = dict.fromkeys(("has_length", "has_extra", "has_extra_length", "has_sink"), False)
        sizes = {"layout": "bf16_576", "page_size": 1, "extra_page_size": 1, "rope_operand": tl.float32} | flags
        lists = (near, page, one, near, page, one)
        sparse_kernel[(1, 1, 1)](q, *lists, empty, *written, 1, 2, FAR // 16, 0, 0, 0, **sizes, **common)
    return "" if torch.equal(out, torch.ones_like(out)) else "a page beyond 4 GiB is not where the kernel looks"


PROBES = {
    function.__name__: function for function in (judge, call_in_place, small_batch_fills_gpu, another_scale, far_pages)
}
