"""Stand-ins for the packages behind scripts/peers/: their signatures, what they require of arguments, and fp32 arithmetic.

Signatures: vllm/v1/attention/ops/flashmla.py, sgl-kernel/python/sgl_kernel/flash_mla.py, flashinfer/mla.py,
flag_gems/fused/flash_mla.py, tilelang/examples/deepseek_mla/example_mla_decode.py.
"""

from __future__ import annotations

import sys
import types

import torch

PAGE = 64


def install(monkeypatch, name: str, **members) -> types.ModuleType:
    """A module of this name, and packages for what stands before its dots."""
    parts = name.split(".")
    for index in range(1, len(parts) + 1):
        path = ".".join(parts[:index])
        module = types.ModuleType(path)
        module.__path__ = []
        monkeypatch.setitem(sys.modules, path, module)
        if index > 1:
            setattr(sys.modules[".".join(parts[: index - 1])], parts[index - 1], module)
    vars(sys.modules[name]).update(members)
    return sys.modules[name]


def attend(q: torch.Tensor, k: torch.Tensor, scale: float) -> torch.Tensor:
    """q fp32 [rows, heads, 576], k fp32 [tokens, 576] -> fp32 [rows, heads, 512]."""
    return torch.softmax(q @ k.T * scale, dim=-1) @ k[:, :512]


def paged(q, k_cache, block_table, cache_seqlens, scale) -> torch.Tensor:
    """q fp32 [batch, q_len, heads, 576], k_cache fp32 [pages, page, 1, 576]."""
    assert block_table.dtype == cache_seqlens.dtype == torch.int32
    rows = [k_cache[pages.long()].reshape(-1, k_cache.shape[-1]) for pages in block_table]
    return torch.stack([attend(q[i], rows[i][: int(cache_seqlens[i])], scale) for i in range(len(q))])


def metadata(cache_seqlens, num_q_tokens_per_head_k, num_heads_k):
    assert num_heads_k == 1
    tiles = torch.zeros(4, 8, dtype=torch.int32)
    tiles[0, 0] = num_q_tokens_per_head_k
    return tiles, torch.zeros(len(cache_seqlens) + 1, dtype=torch.int32)


def flash_mla_fp8(
    q,
    k_cache,
    block_table,
    cache_seqlens,
    head_dim_v,
    tile_scheduler_metadata,
    num_splits,
    softmax_scale=None,
    causal=False,
    descale_q=None,
    descale_k=None,
):
    batch, q_len, heads, dim = q.shape
    assert q.dtype == k_cache.dtype == torch.float8_e4m3fn
    assert (dim, head_dim_v, tuple(k_cache.shape[1:])) == (576, 512, (PAGE, 1, 576))
    assert descale_q.shape == descale_k.shape == (1,)
    assert descale_q.dtype == descale_k.dtype == torch.float32
    assert int(tile_scheduler_metadata[0, 0]) == q_len * heads
    assert num_splits.shape == (batch + 1,)
    assert not causal or q_len == 1
    out = paged(q.float() * descale_q, k_cache.float() * descale_k, block_table, cache_seqlens, softmax_scale)
    return out.bfloat16(), torch.zeros(batch, heads, q_len)


def vllm(monkeypatch) -> None:
    members = {"get_mla_metadata_dense_fp8": metadata, "flash_mla_with_kvcache_fp8": flash_mla_fp8}
    install(monkeypatch, "vllm.v1.attention.ops.flashmla", **members)


def sglang(monkeypatch) -> None:
    def get_mla_metadata(
        cache_seqlens=None,
        num_q_tokens_per_head_k=None,
        num_heads_k=None,
        num_heads_q=None,
        is_fp8_kvcache=False,
        topk=None,
    ):
        assert is_fp8_kvcache
        return metadata(cache_seqlens, num_q_tokens_per_head_k, num_heads_k)

    install(monkeypatch, "sgl_kernel.flash_mla", get_mla_metadata=get_mla_metadata, flash_mla_with_kvcache=flash_mla_fp8)


class Wrapper:
    """flashinfer.mla.BatchMLAPagedAttentionWrapper."""

    def __init__(self, float_workspace_buffer, use_cuda_graph=False, qo_indptr=None, kv_indptr=None, kv_indices=None,
                 kv_len_arr=None, backend="auto"):  # fmt: skip
        assert float_workspace_buffer.numel() == 128 << 20
        assert backend == "fa3"

    def plan(
        self,
        qo_indptr,
        kv_indptr,
        kv_indices,
        kv_len_arr,
        num_heads,
        head_dim_ckv,
        head_dim_kpe,
        page_size,
        causal,
        sm_scale,
        q_data_type,
        kv_data_type,
        use_profiler=False,
    ):
        assert (head_dim_ckv, head_dim_kpe, causal) == (512, 64, False)
        assert q_data_type == kv_data_type == torch.bfloat16
        assert {qo_indptr.dtype, kv_indptr.dtype, kv_indices.dtype, kv_len_arr.dtype} == {torch.int32}
        assert len(kv_indices) == int(kv_indptr[-1])
        self.made = qo_indptr.tolist(), kv_indptr.tolist(), kv_indices.long(), kv_len_arr.tolist(), page_size, sm_scale

    def run(self, q_nope, q_pe, ckv_cache, kpe_cache, out=None, lse=None, return_lse=False):
        qo, kv, indices, counts, page_size, scale = self.made
        assert tuple(ckv_cache.shape[1:]) == (page_size, 512)
        q, k = torch.cat([q_nope, q_pe], -1).float(), torch.cat([ckv_cache, kpe_cache], -1).float()
        parts = []
        for i, count in enumerate(counts):
            rows = k[indices[kv[i] : kv[i + 1]]].reshape(-1, 576)[:count]
            parts.append(attend(q[qo[i] : qo[i + 1]], rows, scale))
        return torch.cat(parts).bfloat16()


def flashinfer(monkeypatch) -> None:
    install(monkeypatch, "flashinfer.mla", BatchMLAPagedAttentionWrapper=Wrapper)
    sys.modules["flashinfer"].__version__ = "0.0"


def flash_mla_gems(q, block_table, blocked_k, max_seqlen_pad, block_size, b, s_q, cache_seqlens, h_q, h_kv, d, dv, causal):
    assert causal
    assert s_q == 1  # else the mask matters
    assert (q.shape, h_kv, d, dv, block_size) == ((b, s_q, h_q, d), 1, 576, 512, PAGE)
    assert max_seqlen_pad == block_table.shape[1] * block_size
    return paged(q.float(), blocked_k.float(), block_table, cache_seqlens, d**-0.5).bfloat16()


def flag_gems(monkeypatch) -> None:
    install(monkeypatch, "flag_gems.fused", flash_mla=flash_mla_gems)
    sys.modules["flag_gems"].flash_mla = flash_mla_gems


TILELANG_EXAMPLE = '''
import torch
import tilelang.language as T

DTYPE = {"float16": torch.float16, "bfloat16": torch.bfloat16}["float16"]
MADE = []


def flashattn(batch, heads, kv_head_num, seqlen_kv, dim, pe_dim, block_N, block_H, num_split, softmax_scale):
    assert kv_head_num == 1 and heads % block_H == 0 and seqlen_kv % (num_split * block_N) == 0
    MADE.append(num_split)

    def kernel(Q, Q_pe, KV, K_pe, glse, Output_partial):
        shapes = [(batch, heads, dim), (batch, heads, pe_dim), (batch, seqlen_kv, 1, dim), (batch, seqlen_kv, 1, pe_dim)]
        shapes += [(batch, heads, num_split), (batch, heads, num_split, dim)]
        for tensor, shape in zip((Q, Q_pe, KV, K_pe, glse, Output_partial), shapes, strict=True):
            assert tuple(tensor.shape) == shape and tensor.is_contiguous() and tensor.dtype == DTYPE == T.float16
        q, k = torch.cat([Q, Q_pe], -1).float(), torch.cat([KV, K_pe], -1)[:, :, 0].float()
        return (torch.softmax(q @ k.mT * softmax_scale, dim=-1) @ k[..., :dim]).to(DTYPE)

    return kernel
'''


def tilelang(monkeypatch, folder) -> None:
    install(monkeypatch, "tilelang.language", float16=torch.float16, bfloat16=torch.bfloat16)
    (folder / "example_mla_decode.py").write_text(TILELANG_EXAMPLE)
    monkeypatch.syspath_prepend(str(folder))
