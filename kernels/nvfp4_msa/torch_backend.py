"""NVFP4 block-sparse decode in plain torch, in fp32: any device, also one without a compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernels.nvfp4_msa.layout import HEAD_DIM, PAGE_TOKENS, Inputs, Shape

E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


class TorchBackend:
    name = "torch"

    def available(self, device: torch.device) -> str | None:
        return None

    def default_params(self, shape: Shape, device: torch.device) -> dict[str, Any]:
        return {"chunk_blocks": 64 if device.type == "cpu" else 4096}  # of 128 KB of fp32 keys and values

    def plan(self, data: tuple, params: dict[str, Any]) -> Callable[[tuple], torch.Tensor]:
        chunk_rows = max(1, int(params["chunk_blocks"]) // data[-1]["topk"])

        def run(data: tuple) -> torch.Tensor:
            inputs = Inputs(*data)
            out = torch.zeros_like(inputs.q)
            rows = torch.arange(inputs.seq_lens.numel() * inputs.config["q_len"], device=out.device)
            for kv_head in range(inputs.config["num_kv_heads"]):
                for chunk in rows.split(chunk_rows):
                    attend_rows(inputs, out, chunk, kv_head)
            return out

        return run


def attend_rows(inputs: Inputs, out: torch.Tensor, rows: torch.Tensor, kv_head: int) -> None:
    """Write the query heads of one KV head in `rows` of out."""
    config = inputs.config
    own_heads = slice(kv_head * config["group_size"], (kv_head + 1) * config["group_size"])
    requests = rows // config["q_len"]
    pos = inputs.seq_lens[requests] - config["q_len"] + rows % config["q_len"]  # [n]
    blocks = inputs.topk[kv_head, rows]  # [n, topk]
    valid = (blocks >= 0) & (blocks <= pos.div(PAGE_TOKENS, rounding_mode="floor")[:, None])
    pages = inputs.block_table[requests[:, None], torch.where(valid, blocks, 0)]
    keys, values = read_heads(inputs, torch.where(valid, pages, 0).flatten(), kv_head)  # fp32 [n * topk, 128, 128]
    token = torch.arange(PAGE_TOKENS, device=out.device)
    visible = valid[..., None] & (blocks[..., None] * PAGE_TOKENS + token <= pos[:, None, None])
    visible = visible.flatten(1)[:, None]  # [n, 1, topk * 128]
    q = inputs.q[rows, own_heads].float() * (config["sm_scale"] * inputs.k_scale)
    scores = torch.bmm(q, keys.view(len(rows), -1, HEAD_DIM).mT).masked_fill_(~visible, float("-inf"))
    p = torch.softmax(scores, dim=-1).masked_fill_(~visible, 0.0)  # of a row that sees nothing, softmax is NaN
    values = values.view(len(rows), -1, HEAD_DIM).masked_fill_(~visible.mT, 0.0)  # 0 * NaN would be NaN
    out[rows, own_heads] = (torch.bmm(p, values) * inputs.v_scale).to(out.dtype)


def read_heads(inputs: Inputs, pages: torch.Tensor, kv_head: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of one KV head in `pages`, without the global scales: fp32 [n, 128, 128] each."""
    heads = inputs.config["num_kv_heads"]
    flat = inputs.cache.view(inputs.cache.shape[0], -1)

    def section(offset: int, token_bytes: int) -> torch.Tensor:
        first = heads * PAGE_TOKENS * offset + kv_head * PAGE_TOKENS * token_bytes
        return flat[:, first : first + PAGE_TOKENS * token_bytes][pages].unflatten(1, (PAGE_TOKENS, token_bytes))

    k_data, k_scales, v_data, v_scales = section(0, 64), section(64, 8), section(72, 64), section(136, 8)
    if inputs.config["v_scales"] == "swizzled":  # scale (token, group) lies at token // 4 * 32 + 4 * group + token % 4
        v_scales = v_scales.reshape(-1, PAGE_TOKENS // 4, 8, 4).mT.reshape(v_scales.shape)
    return dequantized(k_data, k_scales), dequantized(v_data, v_scales)


def dequantized(data: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """fp32 [n, 128, 128] from E2M1 pairs uint8 [n, 128, 64], low nibble first, and e4m3 patterns uint8 [n, 128, 8]."""
    values = torch.tensor(E2M1_VALUES, device=data.device)
    values = torch.cat([values, -values])
    byte = torch.arange(256, device=data.device)
    pairs = torch.stack([values[byte & 15], values[byte >> 4]], dim=1)  # [256, 2]
    blocks = pairs[data.int()].flatten(-2).unflatten(-1, (8, 16))
    return (blocks * scales.view(torch.float8_e4m3fn).float()[..., None]).flatten(-2)
