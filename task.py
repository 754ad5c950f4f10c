"""Types of the mixed-MLA decode problem: the inner attention of DeepSeek R1's `forward_absorb`.

A submission imports `input_t` and `output_t` from here and nothing else: on a public runner this module holds no more than
them. Sizes are read from `config`; the values beside them are those of the official cases.

    scores = softmax(sm_scale * q @ K^T)   K = all 576 dims of a KV row, no causal mask, softmax in fp32
    output = scores @ V                    V = the first 512 dims of the same row
"""

from typing import TypeAlias, TypedDict

import torch


class MlaConfig(TypedDict):
    """Sizes of one case."""

    batch_size: int
    num_heads: int  # 16 query heads after tensor parallelism
    num_kv_heads: int  # 1: every query head reads the same latent cache
    qk_head_dim: int  # 576 = kv_lora_rank + qk_rope_head_dim
    kv_lora_rank: int  # 512
    qk_rope_head_dim: int  # 64
    v_head_dim: int  # 512
    q_seq_len: int  # query tokens per sequence
    kv_seq_len: int  # cached tokens per sequence; the longest one where lengths differ
    sm_scale: float  # 1 / sqrt(576)


class KvData(TypedDict):
    """One KV cache in three formats; total_kv = kv_indptr[-1]."""

    bf16: torch.Tensor  # bf16 [total_kv, 1, 576]
    # values fp8 [total_kv, 1, 576] (e4m3fnuz on gfx942, e4m3fn elsewhere), scale fp32 [1]; x = value * scale
    fp8: tuple[torch.Tensor, torch.Tensor]
    # values float4_e2m1fn_x2 [total_kv, 1, 288], even dim in the low nibble, scales float8_e8m0fnu [>= total_kv, >= 18], one
    # per 32 dims of a row. The scale buffer may be padded (rows to 256, columns to 24): take its row stride from the tensor.
    # Both are uint8 where torch lacks the dtype.
    mxfp4: tuple[torch.Tensor, torch.Tensor]


# (q, kv_data, qo_indptr, kv_indptr, config)
#   q          bf16  [total_q, num_heads, 576]     total_q = batch_size * q_seq_len
#   qo_indptr  int32 [batch_size + 1]              query rows of sequence i: qo_indptr[i] .. qo_indptr[i + 1]
#   kv_indptr  int32 [batch_size + 1]              KV rows of sequence i:    kv_indptr[i] .. kv_indptr[i + 1], possibly none
input_t: TypeAlias = tuple[torch.Tensor, KvData, torch.Tensor, torch.Tensor, MlaConfig]

# bf16 [total_q, num_heads, 512]; rows of a sequence without KV are zero
output_t: TypeAlias = torch.Tensor
