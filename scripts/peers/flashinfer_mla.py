"""FlashInfer's paged MLA on bf16 KV: fa3 on Hopper, else whatever it chooses.

API: flashinfer/mla.py, BatchMLAPagedAttentionWrapper.
"""

import torch

from scripts.peers.common import KV_RANK, ROPE_DIM, Kernel, Shape, lengths, need_gpu, planned
from task import input_t, output_t

try:
    import flashinfer  # pyright: ignore[reportMissingImports]
    from flashinfer.mla import BatchMLAPagedAttentionWrapper  # pyright: ignore[reportMissingImports]
except ImportError as error:
    raise ImportError(f"{error}; pip install flashinfer-python") from error

WORKSPACE_BYTES = 128 << 20  # what its documentation recommends
PAGE_SIZE = 64


def plan(data: input_t, shape: Shape) -> Kernel:
    """Its plan() reads lengths on the host; pages of one token where those of 64 are not filled."""
    device = need_gpu(data)
    page_size = 1 if shape.kv_len % PAGE_SIZE else PAGE_SIZE
    pages = shape.kv_len // page_size
    hopper = torch.cuda.get_device_capability(device)[0] == 9
    workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.int8, device=device)
    wrapper = BatchMLAPagedAttentionWrapper(workspace, backend="fa3" if hopper else "auto")
    starts = torch.arange(shape.batch + 1, dtype=torch.int32, device=device)
    wrapper.plan(
        starts * shape.q_len,
        starts * pages,
        torch.arange(shape.batch * pages, dtype=torch.int32, device=device),
        lengths(shape, device),
        shape.heads,
        KV_RANK,
        ROPE_DIM,
        page_size,
        False,  # causal
        shape.sm_scale,
        torch.bfloat16,
        torch.bfloat16,
    )

    def run(data: input_t) -> torch.Tensor:
        q, kv = data[0], data[1]["bf16"].view(-1, page_size, KV_RANK + ROPE_DIM)
        return wrapper.run(q[..., :KV_RANK], q[..., KV_RANK:], kv[..., :KV_RANK], kv[..., KV_RANK:], return_lse=False)

    return run


def custom_kernel(data: input_t) -> output_t:
    """bf16 [total_q, heads, 512]."""
    return planned(data, plan)(data)


def describe(data: input_t) -> dict:
    """What is measured."""
    return {"backend": "FlashInfer", "params": {"format": "bf16", "version": flashinfer.__version__}}
