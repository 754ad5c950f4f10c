"""Types of the flash_mla problem: MLA decode over a paged cache, dense, or sparse over FP8 and bf16 caches.

    out = softmax(softmax_scale * q K^T) V     over the tokens that a query token attends to, softmax in fp32
    lse = log(sum(exp(softmax_scale * q K^T))) natural
Without any such token out = 0 and lse = +inf.
"""

from typing import TypeAlias, TypedDict

import torch


class Options(TypedDict):
    """The further arguments of flash_mla_with_kvcache, by its names; None where a case has none."""

    head_dim_v: int  # 512
    softmax_scale: float | None  # dims^-0.5 if None
    causal: bool  # dense only: query i of q_len sees tokens up to cache_seqlens - q_len + i
    is_fp8_kvcache: bool
    # dense
    block_table: torch.Tensor | None  # int32 [batch, max_pages]
    cache_seqlens: torch.Tensor | None  # int32 [batch]
    # sparse
    indices: torch.Tensor | None  # int32 [batch, q_len, topk]: page * page_size + offset; -1 or out of range: none
    topk_length: torch.Tensor | None  # int32 [batch]: only the leftmost entries count
    attn_sink: torch.Tensor | None  # fp32 [heads]: out is multiplied by 1 / (1 + e^(sink - lse)), lse is not
    extra_k_cache: torch.Tensor | None  # tokens of a second cache join the same softmax
    extra_indices_in_kvcache: torch.Tensor | None
    extra_topk_length: torch.Tensor | None


# (q, k_cache, options)
#   q        bf16 [batch, q_len, heads, dims]; dims 576 or 512
#   k_cache  [pages, page_size, kv_heads, last]; cache.py has every byte. Entries that no query token attends to are NaN.
#              bf16    last = dims; K is the row, V its first 512
#              v32     float8_e4m3fn, last = 656, dims 576
#              model1  float8_e4m3fn, last = 584 (nominal: see cache.py), dims 512
#            Take the page stride from the tensor: pages need not follow each other closely.
input_t: TypeAlias = tuple[torch.Tensor, torch.Tensor, Options]

# (out bf16 [batch, q_len, heads, 512], lse fp32 [batch, heads, q_len])
output_t: TypeAlias = tuple[torch.Tensor, torch.Tensor]
