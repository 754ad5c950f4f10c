"""FlagGems' flash_mla (Triton) on bf16 KV, one query token a sequence.

API: flag_gems/fused/flash_mla.py. It masks causally, which one token does not notice, and scales by 1 / sqrt(576).
"""

import torch

from scripts.peers.common import (
    KV_RANK,
    ROPE_DIM,
    Kernel,
    Shape,
    Unsupported,
    lengths,
    need_gpu,
    need_pages,
    page_table,
    planned,
)
from task import input_t, output_t

try:
    import flag_gems  # pyright: ignore[reportMissingImports]
except ImportError as error:
    raise ImportError(f"{error}; pip install flag-gems") from error

FLASH_MLA = getattr(flag_gems, "flash_mla", None) or flag_gems.fused.flash_mla
PAGE_SIZE, DIM = 64, KV_RANK + ROPE_DIM


def plan(data: input_t, shape: Shape) -> Kernel:
    """A page table; it has no metadata."""
    device = need_gpu(data)
    if shape.q_len != 1:
        raise Unsupported(f"{shape.q_len} query tokens a sequence: its causal mask would change the result")
    table, cache_seqlens, pages = page_table(shape, PAGE_SIZE, device), lengths(shape, device), need_pages(shape, PAGE_SIZE)

    def run(data: input_t) -> torch.Tensor:
        out = FLASH_MLA(
            data[0].view(shape.batch, 1, shape.heads, DIM),
            table,
            data[1]["bf16"].view(-1, PAGE_SIZE, 1, DIM),
            pages * PAGE_SIZE,
            PAGE_SIZE,
            shape.batch,
            1,
            cache_seqlens,
            shape.heads,
            1,
            DIM,
            KV_RANK,
            True,
        )
        return out.view(-1, shape.heads, KV_RANK)

    return run


def custom_kernel(data: input_t) -> output_t:
    """bf16 [total_q, heads, 512]."""
    return planned(data, plan)(data)


def describe(data: input_t) -> dict:
    """What is measured."""
    return {"backend": "FlagGems", "params": {"format": "bf16", "version": getattr(flag_gems, "__version__", None)}}
