"""torch.nn.functional.scaled_dot_product_attention on bf16 KV; any device, any lengths."""

import itertools

import torch

from scripts.peers.common import KV_RANK, Shape, Unsupported, shape_of
from task import input_t, output_t


def attend(q: torch.Tensor, kv: torch.Tensor, sm_scale: float) -> torch.Tensor:
    """q bf16 [batch, heads, q_len, 576], kv bf16 [batch, kv_len, 576] -> bf16 [batch, heads, q_len, 512]."""
    k = kv.unsqueeze(1).expand(-1, q.shape[1], -1, -1)
    return torch.nn.functional.scaled_dot_product_attention(q, k, k[..., :KV_RANK], scale=sm_scale)


def custom_kernel(data: input_t) -> output_t:
    """bf16 [total_q, heads, 512]."""
    try:
        return equal_lengths(data, shape_of(data))
    except Unsupported:
        return one_by_one(data)


def equal_lengths(data: input_t, shape: Shape) -> torch.Tensor:
    """All sequences as one batch."""
    q = data[0].view(shape.batch, shape.q_len, shape.heads, -1).transpose(1, 2)
    kv = data[1]["bf16"].view(shape.batch, shape.kv_len, -1)
    return attend(q, kv, shape.sm_scale).transpose(1, 2).reshape(-1, shape.heads, KV_RANK)


def one_by_one(data: input_t) -> torch.Tensor:
    """A call for each sequence. On a GPU reading the lengths is part of the time."""
    q, kv_data, qo_indptr, kv_indptr, config = data
    out = q.new_zeros(*q.shape[:2], KV_RANK)
    for (q0, q1), (kv0, kv1) in zip(ranges(qo_indptr), ranges(kv_indptr), strict=True):
        if kv1 > kv0:
            part = attend(q[q0:q1].transpose(0, 1)[None], kv_data["bf16"][kv0:kv1].transpose(0, 1), config["sm_scale"])
            out[q0:q1] = part[0].transpose(0, 1)
    return out


def ranges(indptr: torch.Tensor) -> list[tuple[int, int]]:
    """[(start, end), ...] of consecutive parts."""
    bounds = indptr.tolist()
    return list(itertools.pairwise(bounds))


def describe(data: input_t) -> dict:
    """What is measured."""
    return {"backend": "sdpa", "params": {"format": "bf16", "torch": torch.__version__}}
