"""flash_mla_with_kvcache in plain torch, fp32, on any device: for machines without Triton or without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernels.flash_mla.call import V_DIM, Call, Workload, workload

CHUNK_ELEMENTS = 1 << 26  # fp32 elements of gathered KV at a time: 256 MiB


class TorchBackend:
    name = "torch"

    def available(self, device: torch.device) -> str | None:
        return None

    def default_params(self, shape: Workload, device: torch.device) -> dict[str, Any]:
        return {"chunk_elements": CHUNK_ELEMENTS}

    def plan(self, call: Call, params: dict[str, Any]) -> Callable[[Call], tuple[torch.Tensor, torch.Tensor]]:
        return lambda call: attend(call, params["chunk_elements"])


@torch.no_grad()
def attend(call: Call, chunk_elements: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(out bf16 [batch, q_len, heads, 512], natural lse fp32 [batch, heads, q_len])."""
    batch, q_len, heads, dims = call.q.shape
    out = torch.empty(batch, q_len, heads, V_DIM, dtype=torch.bfloat16, device=call.q.device)
    lse = torch.empty(batch, q_len, heads, device=call.q.device)
    sequences = max(1, chunk_elements // max(1, q_len * workload(call).tokens * dims * call.cache.shape[2]))
    for begin in range(0, batch, sequences):
        chunk = slice(begin, begin + sequences)
        out[chunk], lse[chunk] = dense_chunk(call, chunk) if call.indices is None else sparse_chunk(call, chunk)
    return out, lse.transpose(1, 2).contiguous()


def dense_chunk(call: Call, chunk: slice) -> tuple[torch.Tensor, torch.Tensor]:
    """fp32 out [n, q_len, heads, 512] and lse [n, q_len, heads] of some sequences."""
    assert call.block_table is not None
    assert call.seqlens is not None
    q = call.q[chunk].float()
    q_len, heads = q.shape[1:3]
    page_size, kv_heads = call.cache.shape[1:3]
    position = torch.arange(workload(call).tokens, device=q.device)
    length = call.seqlens[chunk, None]
    inside = position < length  # [n, tokens]
    page = call.block_table[chunk].repeat_interleave(page_size, 1).masked_fill(~inside, 0)
    kv = call.cache[page.long(), position % page_size].float()  # [n, tokens, kv_heads, dims]
    kv = kv.masked_fill(~inside[:, :, None, None], 0).repeat_interleave(heads // kv_heads, 2)
    end = length if not call.causal else length - q_len + 1 + torch.arange(q_len, device=q.device)
    valid = position < end.expand(-1, q_len)[:, :, None]  # [n, q_len, tokens]
    scores = torch.einsum("nqhd,nthd->nqht", q, kv) * call.sm_scale
    p, lse = probabilities(scores, valid[:, :, None])
    return torch.einsum("nqht,nthd->nqhd", p, kv[..., :V_DIM]), lse


def sparse_chunk(call: Call, chunk: slice) -> tuple[torch.Tensor, torch.Tensor]:
    """As dense_chunk, for the rows that indices select."""
    assert call.indices is not None
    kv, valid = selected(call.cache, call.indices[chunk], None if call.length is None else call.length[chunk], call.layout)
    if call.extra_cache is not None and call.extra_indices is not None:
        extra_length = None if call.extra_length is None else call.extra_length[chunk]
        extra = selected(call.extra_cache, call.extra_indices[chunk], extra_length, call.layout)
        kv, valid = torch.cat((kv, extra[0]), 2), torch.cat((valid, extra[1]), 2)
    scores = torch.einsum("nqhd,nqtd->nqht", call.q[chunk].float(), kv) * call.sm_scale
    p, lse = probabilities(scores, valid[:, :, None])
    out = torch.einsum("nqht,nqtd->nqhd", p, kv[..., :V_DIM])
    if call.sink is not None:
        factor = torch.sigmoid(lse - call.sink)  # 1 / (1 + e^(sink - lse))
        out = torch.where(lse[..., None] == torch.inf, 0, out * factor[..., None])
    return out, lse


def probabilities(scores: torch.Tensor, valid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax over the valid tokens of the last dim, and lse; a row without any has zeros and +inf."""
    scores = scores.masked_fill(~valid, -torch.inf)
    lse = scores.logsumexp(-1)
    nothing = ~valid.any(-1)
    p = torch.exp(scores - lse.masked_fill(nothing, 0)[..., None])
    return p, lse.masked_fill(nothing, torch.inf)


def selected(
    cache: torch.Tensor, indices: torch.Tensor, length: torch.Tensor | None, layout: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """fp32 rows [n, q_len, topk, dims], zeros where not valid, and valid bool [n, q_len, topk]."""
    pages, page_size = cache.shape[:2]
    valid = (indices >= 0) & (indices < pages * page_size)
    if length is not None:
        valid &= torch.arange(indices.shape[2], device=cache.device) < length[:, None, None]
    index = indices.masked_fill(~valid, 0).long()
    rows = gather(cache, index // page_size, index % page_size, layout)
    return rows.masked_fill(~valid[..., None], 0), valid


def gather(cache: torch.Tensor, page: torch.Tensor, slot: torch.Tensor, layout: str) -> torch.Tensor:
    """fp32 rows [..., dims] of (page, slot)."""
    if layout.startswith("bf16"):
        return cache[page, slot, 0].float()
    raw = cache.view(torch.uint8)
    if layout == "v32":
        row = raw[page, slot, 0]
        return dequantise_row(row[..., :512], row[..., 512:528].contiguous().view(torch.float32), row[..., 528:])
    page_size = cache.shape[1]
    bytes_of = raw.as_strided((cache.shape[0], page_size * 584), (cache.stride(0), 1))
    at = slot[..., None] * 576 + torch.arange(576, device=cache.device)
    row = bytes_of[page[..., None], at]
    at = page_size * 576 + slot[..., None] * 8 + torch.arange(7, device=cache.device)
    scales = torch.exp2(bytes_of[page[..., None], at].float() - 127)
    return dequantise_row(row[..., :448], scales, row[..., 448:])


def dequantise_row(values: torch.Tensor, scales: torch.Tensor, rope: torch.Tensor) -> torch.Tensor:
    """fp32 [..., dims] from e4m3 bytes, fp32 scales of equal runs, and the bytes of bf16 RoPE."""
    run = values.shape[-1] // scales.shape[-1]
    nope = values.contiguous().view(torch.float8_e4m3fn).float() * scales.repeat_interleave(run, -1)
    return torch.cat((nope, rope.contiguous().view(torch.bfloat16).float()), -1)
