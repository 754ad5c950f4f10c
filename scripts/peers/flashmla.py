"""FlashMLA's dense decode on fp8 KV (Hopper), as vLLM or sglang-kernel package it.

q is quantised with one scale in every call: it arrives in bf16.
API: vllm/v1/attention/ops/flashmla.py (older: vllm/attention/ops), sgl-kernel/python/sgl_kernel/flash_mla.py.
"""

import importlib
from collections.abc import Callable
from typing import Any

import torch

from scripts.peers.common import KV_RANK, Kernel, Shape, lengths, need_gpu, page_table, planned
from task import input_t, output_t

PAGE_SIZE = 64  # the only one that its kernels know
FP8_MAX = 448.0
VLLM = ("vllm.v1.attention.ops.flashmla", "vllm.attention.ops.flashmla")
Interface = tuple[str, Callable[..., Any], Callable[..., Any]]  # package, metadata, attention


def find_interface() -> Interface:
    """The packaged functions. Raises ImportError saying what was looked for."""
    reasons = []
    for name in (*VLLM, "sgl_kernel.flash_mla"):
        try:
            module = importlib.import_module(name)
            return of_vllm(module) if name in VLLM else of_sglang(module)
        except (ImportError, AttributeError) as error:
            reasons.append(f"{name}: {error}")
    raise ImportError(f"no FlashMLA with fp8 KV ({'; '.join(reasons)}); pip install vllm or sglang-kernel")


def of_vllm(module: Any) -> Interface:
    return "vllm", module.get_mla_metadata_dense_fp8, module.flash_mla_with_kvcache_fp8


def of_sglang(module: Any) -> Interface:
    def metadata(cache_seqlens: torch.Tensor, q_tokens_per_head_k: int, heads_k: int) -> Any:
        return module.get_mla_metadata(cache_seqlens, q_tokens_per_head_k, heads_k, is_fp8_kvcache=True)

    return "sgl_kernel", metadata, module.flash_mla_with_kvcache


PACKAGE, METADATA, ATTENTION = find_interface()


def plan(data: input_t, shape: Shape) -> Kernel:
    """Metadata depends on the lengths alone."""
    device = need_gpu(data)
    table, cache_seqlens = page_table(shape, PAGE_SIZE, device), lengths(shape, device)
    tiles, num_splits = METADATA(cache_seqlens, shape.q_len * shape.heads, 1)

    def run(data: input_t) -> torch.Tensor:
        kv, descale_k = data[1]["fp8"]
        q, descale_q = quantised(data[0])
        out, _ = ATTENTION(
            q.view(shape.batch, shape.q_len, shape.heads, -1),
            kv.view(-1, PAGE_SIZE, 1, kv.shape[-1]),
            table,
            cache_seqlens,
            KV_RANK,
            tiles,
            num_splits,
            softmax_scale=shape.sm_scale,
            causal=False,
            descale_q=descale_q,
            descale_k=descale_k.view(1),
        )
        return out.view(-1, shape.heads, KV_RANK)

    return run


def quantised(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """q in e4m3, and its scale fp32 [1]."""
    scale = (q.abs().amax().float() / FP8_MAX).clamp_(min=1e-12).view(1)
    return (q.float() / scale).to(torch.float8_e4m3fn), scale


def custom_kernel(data: input_t) -> output_t:
    """bf16 [total_q, heads, 512]."""
    return planned(data, plan)(data)


def describe(data: input_t) -> dict:
    """What is measured."""
    return {"backend": "FlashMLA", "params": {"format": "fp8", "package": PACKAGE}}
