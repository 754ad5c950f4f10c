"""Types of the NVFP4 block-sparse decode problem: decode attention of a GQA model over the KV blocks that a top-k row lists.

    row r belongs to request r // q_len and stands at pos = seq_lens[request] - q_len + r % q_len
    its keys: for every valid slot of topk[kv_head, r], the 128 tokens of that block, those past pos left out
    output = softmax(sm_scale * q @ K^T) @ V over those keys, duplicates counted as often as they are listed

A slot is valid if 0 <= block <= pos // 128; anything else may stand in any slot and means nothing. Rows with pos < 0,
rows without a valid slot and padding rows (r >= requests * q_len) are exactly zero.
"""

from typing import TypeAlias, TypedDict

import torch


class MsaConfig(TypedDict):
    """Sizes of one case."""

    num_kv_heads: int
    group_size: int  # query heads per KV head; query head h reads KV head h // group_size
    q_len: int  # query tokens per request
    topk: int  # slots of a top-k row, 1 to 64
    head_dim: int  # 128
    page_size: int  # 128 tokens; block = page
    max_seq_len: int  # no seq_lens is larger
    v_scales: str  # "swizzled" or "linear": how V scales lie in a page
    sm_scale: float  # 1 / sqrt(128)


# (q, cache, topk, block_table, seq_lens, k_scale, v_scale, config)
#   q            bf16  [rows, num_kv_heads * group_size, 128]  rows >= requests * q_len
#   cache        uint8 [pages, 2 * num_kv_heads, 128, 72]      NVFP4 pages; pages.py says which byte is what
#   topk         int32 [num_kv_heads, >= rows, topk]           block ids of each (KV head, row)
#   block_table  int32 [requests, >= max_seq_len / 128]        page of each block; undefined past the end of a sequence
#   seq_lens     int32 [requests]                              KV tokens, those of the q_len query tokens included
#   k_scale      fp32  [1]                                     global scale of K
#   v_scale      fp32  [1]                                     global scale of V
# All contiguous. Tokens of the last page past the end of a sequence hold any bytes, NaN scales included.
input_t: TypeAlias = tuple[
    torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, MsaConfig
]

# bf16 [rows, num_kv_heads * group_size, 128]
output_t: TypeAlias = torch.Tensor
