"""AITER's MLA decode interface in torch, both generations: paged KV, a schedule of works, normalised partials, reduction.

Refuses what AITER's kernels could not take, so that a wrong argument either changes the result or raises.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import torch

COMPUTE_UNITS = 8
FP8 = torch.float8_e4m3fn
PAD = 7  # column of work_info_set that the stand-in uses to tell the decode what the schedule was made for


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def require_int32(**tensors: torch.Tensor) -> None:
    for name, tensor in tensors.items():
        require(tensor.dtype == torch.int32 and tensor.is_contiguous(), f"{name} must be contiguous int32, is {tensor.dtype}")


def fingerprint(page_size: int, splits: int, equal: bool) -> int:
    return page_size * 1000 + splits * 2 + equal


def info(batch: int, max_seqlen_qo: int, heads: int, q_dtype: torch.dtype, kv_dtype: torch.dtype) -> tuple:
    require(heads % 16 == 0 and max_seqlen_qo == 1, f"{heads=}, {max_seqlen_qo=}")
    require(q_dtype == kv_dtype == FP8, f"fp8 throughout, not {q_dtype} and {kv_dtype}")
    works = batch * COMPUTE_UNITS
    sizes = ((2,), (COMPUTE_UNITS + 1,), (works, 8), (batch + 1,), (batch, 2), (works,))
    return tuple((size, torch.uint64 if number == 0 else torch.int32) for number, size in enumerate(sizes))


def cuts(pages: int, granularity_pages: int, splits: int) -> list[tuple[int, int]]:
    """[start, end) in pages of each part: multiples of the granularity."""
    chunk = -(-max(-(-pages // splits), 1) // granularity_pages) * granularity_pages
    return [(start, min(start + chunk, pages)) for start in range(0, pages, chunk)]


def fill_schedule(parts: dict[str, torch.Tensor], kv_indptr: list[int], granularity_pages: int, splits: int, mark: int) -> None:
    """Works in order of the sequences, dealt evenly to the compute units."""
    works, reduce_indptr, partial_map = [], [0], []
    for batch, (begin, end) in enumerate(itertools.pairwise(kv_indptr)):
        ranges = cuts(end - begin, granularity_pages, min(splits, COMPUTE_UNITS))
        for start, stop in ranges:
            partial = -1 if len(ranges) == 1 else len(partial_map)
            partial_map += [partial] if partial >= 0 else []
            works.append([batch, partial, batch, batch + 1, begin + start, begin + stop, end - begin - stop, mark])
        reduce_indptr.append(len(partial_map))
    share = -(-len(works) // COMPUTE_UNITS)
    bounds = [min(unit * share, len(works)) for unit in range(COMPUTE_UNITS + 1)]
    parts["work_indptr"].copy_(torch.tensor(bounds, dtype=torch.int32))
    parts["work_info_set"].zero_()
    parts["work_info_set"][: len(works)] = torch.tensor(works, dtype=torch.int32).view(-1, 8)
    parts["reduce_indptr"].copy_(torch.tensor(reduce_indptr, dtype=torch.int32))
    tiles = [[batch, batch + 1] for batch in range(len(kv_indptr) - 1)]
    parts["reduce_final_map"].copy_(torch.tensor(tiles, dtype=torch.int32).view(-1, 2))
    parts["reduce_partial_map"].fill_(-1)[: len(partial_map)] = torch.tensor(partial_map, dtype=torch.int32)
    addresses = [parts["work_indptr"].data_ptr(), parts["work_info_set"].data_ptr()]
    parts["pointers"].copy_(torch.tensor(addresses, dtype=torch.int64).view(torch.uint64))


def check_decode(a: dict[str, Any], page_size: int, mark: int) -> None:
    tokens = a["o"].shape[0]
    require_int32(**{name: a[name] for name in ("qo_indptr", "kv_indptr", "kv_indices", "kv_last_page_lens")})
    require(a["q"].dtype == a["kv_buffer"].dtype == FP8 and a["q"].is_contiguous(), "fp8 q and KV")
    require(a["o"].dtype == torch.bfloat16, "bf16 output")
    require(a["q"].shape == (tokens, a["o"].shape[1], 576), "q [tokens, heads, 576]")
    require(tuple(a["kv_buffer"].shape[1:]) == (page_size, 1, 576), "KV [pages, page_size, 1, 576]")
    require(a["max_seqlen_q"] == 1 and a["qo_indptr"].tolist() == list(range(tokens + 1)), "one-token sequences")
    require(int(a["kv_indptr"][-1]) == a["kv_indices"].numel(), "kv_indptr counts the entries of kv_indices")
    for name in ("q_scale", "kv_scale"):
        require(a[name].dtype == torch.float32 and a[name].shape == (1,), f"{name} is fp32 [1]")
    addresses = [a["work_indptr"].data_ptr(), a["work_info_set"].data_ptr()]
    require(a["work_meta_data"].tolist() == addresses, "pointers of the schedule")
    used = int(a["work_indptr"][-1])
    require(set(a["work_info_set"][:used, PAD].tolist()) <= {mark}, "the schedule was made for other parameters")


def partial_attention(a: dict[str, Any], work: list[int], page_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalised rows fp32 [heads, 512] and natural-log lse [heads] of one work."""
    batch, _, q_start, _, start, stop, _, _ = work
    pages = a["kv_buffer"][a["kv_indices"][start:stop].long()].float().view(-1, 576)
    last = int(a["kv_indptr"][batch + 1]) == stop
    count = (stop - start) * page_size - (page_size - int(a["kv_last_page_lens"][batch]) if last else 0)
    require(0 < count <= len(pages), f"{count} tokens in {stop - start} pages of {page_size}")
    k = pages[:count] * a["kv_scale"]
    scores = (a["q"][q_start].float() * a["q_scale"]) @ k.T * a["sm_scale"]
    if a["logit_cap"]:
        scores = a["logit_cap"] * torch.tanh(scores / a["logit_cap"])
    return torch.softmax(scores, dim=-1) @ k[:, :512], torch.logsumexp(scores, dim=-1)


def decode(a: dict[str, Any], page_size: int, mark: int) -> None:
    check_decode(a, page_size, mark)
    partials: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    for unit in range(COMPUTE_UNITS):
        for work in a["work_info_set"][int(a["work_indptr"][unit]) : int(a["work_indptr"][unit + 1])].tolist():
            if work[4] == work[5]:
                continue
            rows, lse = partial_attention(a, work, page_size)
            if work[1] < 0:
                a["o"][work[2]] = rows.bfloat16()
            else:
                partials[work[1]] = rows, lse
    for tile, (begin, end) in enumerate(itertools.pairwise(a["reduce_indptr"].tolist())):
        if end > begin:
            parts = [partials[index] for index in a["reduce_partial_map"][begin:end].tolist()]
            lse = torch.stack([part[1] for part in parts])
            weights = torch.softmax(lse, dim=0)[..., None]
            a["o"][int(a["reduce_final_map"][tile, 0])] = (weights * torch.stack([part[0] for part in parts])).sum(0).bfloat16()


def paged() -> SimpleNamespace:
    """The newer generation, as ROCm/aiter's main branch has had it since 2026."""

    def mla_decode_fwd(
        q,
        kv_buffer,
        o,
        qo_indptr,
        kv_indptr,
        kv_indices,
        kv_last_page_lens,
        max_seqlen_q,
        page_size=1,
        nhead_kv=1,
        sm_scale=None,
        logit_cap=0.0,
        num_kv_splits=None,
        num_kv_splits_indptr=None,
        work_meta_data=None,
        work_indptr=None,
        work_info_set=None,
        reduce_indptr=None,
        reduce_final_map=None,
        reduce_partial_map=None,
        q_scale=None,
        kv_scale=None,
        intra_batch_mode=False,
        return_logits=False,
        return_lse=False,
    ):
        arguments = dict(locals())
        require(nhead_kv == 1, f"{nhead_kv=}")
        decode(arguments, page_size, fingerprint(page_size, num_kv_splits, intra_batch_mode))

    def get_mla_metadata_info_v1(
        batch_size,
        max_seqlen_qo,
        num_head_qo,
        q_dtype,
        kv_dtype,
        is_sparse,
        fast_mode=True,
        num_kv_splits=32,
        intra_batch_mode=False,
        max_split_per_batch=-1,
    ):
        require(not is_sparse and intra_batch_mode != fast_mode and num_kv_splits > 0, "dense; equal splits are the slow mode")
        return info(batch_size, max_seqlen_qo, num_head_qo, q_dtype, kv_dtype)

    def get_mla_metadata_v1(
        seqlens_qo_indptr,
        seqlens_kv_indptr,
        kv_last_page_lens,
        num_heads_per_head_k,
        num_heads_k,
        is_causal,
        work_metadata_ptrs,
        work_info_set,
        work_indptr,
        reduce_indptr,
        reduce_final_map,
        reduce_partial_map,
        page_size=1,
        kv_granularity=16,
        max_seqlen_qo=-1,
        uni_seqlen_qo=-1,
        fast_mode=True,
        topk=-1,
        max_split_per_batch=-1,
        intra_batch_mode=False,
        dtype_q=None,
        dtype_kv=None,
    ):
        require_int32(qo=seqlens_qo_indptr, kv=seqlens_kv_indptr, last=kv_last_page_lens)
        tokens = seqlens_kv_indptr.numel() - 1
        require(seqlens_qo_indptr.tolist() == list(range(tokens + 1)), "one-token sequences")
        require(kv_last_page_lens.numel() == tokens, "a last page for each")
        require(dtype_q == dtype_kv == FP8, "without dtypes the schedule is made for bf16")
        require(num_heads_per_head_k % 16 == 0 and num_heads_k == 1 and not is_causal, "16 heads a group, no mask")
        require(max_seqlen_qo == uni_seqlen_qo == 1 and topk == -1, "one token each")
        require(power_of_two(page_size) and power_of_two(kv_granularity), "powers of two")
        require(kv_granularity >= max(page_size, 16), "granularity")
        require(int(kv_last_page_lens.max()) <= page_size, "a last page holds at most a page")
        require(intra_batch_mode != fast_mode, "equal splits are the slow mode")
        counts = (seqlens_kv_indptr[1:] - seqlens_kv_indptr[:-1]) * page_size
        require(fast_mode or int(counts[counts > 0].min()) >= 196, "division by zero: kv / 196")
        require(max_split_per_batch > 0, "the number of splits")
        parts = dict(locals()) | {"pointers": work_metadata_ptrs}
        mark = fingerprint(page_size, max_split_per_batch, intra_batch_mode)
        fill_schedule(parts, seqlens_kv_indptr.tolist(), max(kv_granularity // page_size, 1), max_split_per_batch, mark)

    return SimpleNamespace(**{f.__name__: f for f in (mla_decode_fwd, get_mla_metadata_info_v1, get_mla_metadata_v1)})


def token() -> SimpleNamespace:
    """The older generation, as PyPI's amd-aiter 0.1.7 has it: pages of one token."""

    def mla_decode_fwd(
        q,
        kv_buffer,
        o,
        qo_indptr,
        kv_indptr,
        kv_indices,
        kv_last_page_lens,
        max_seqlen_q,
        sm_scale=None,
        logit_cap=0.0,
        num_kv_splits=None,
        num_kv_splits_indptr=None,
        work_meta_data=None,
        work_indptr=None,
        work_info_set=None,
        reduce_indptr=None,
        reduce_final_map=None,
        reduce_partial_map=None,
        q_scale=None,
        kv_scale=None,
    ):
        decode(dict(locals()), 1, fingerprint(1, num_kv_splits, False))

    def get_mla_metadata_info_v1(batch_size, max_seqlen_qo, num_head_qo, q_dtype, kv_dtype, is_sparse, fast_mode=True):
        require(not is_sparse and fast_mode, "dense, greedy")
        return info(batch_size, max_seqlen_qo, num_head_qo, q_dtype, kv_dtype)

    def get_mla_metadata_v1(
        seqlens_qo_indptr,
        seqlens_kv_indptr,
        num_heads_per_head_k,
        num_heads_k,
        is_causal,
        work_metadata_ptrs,
        work_indptr,
        work_info,
        reduce_indptr,
        reduce_final_map,
        reduce_partial_map,
        kv_granularity=16,
        max_seqlen_qo=-1,
        uni_seqlen_qo=-1,
        fast_mode=True,
        topk=-1,
        max_split_per_batch=-1,
    ):
        require_int32(qo=seqlens_qo_indptr, kv=seqlens_kv_indptr)
        require(num_heads_per_head_k % 16 == 0 and num_heads_k == 1 and not is_causal, "16 heads a group, no mask")
        require(max_seqlen_qo == uni_seqlen_qo == 1 and topk == -1 and fast_mode, "one token each, greedy")
        require(power_of_two(kv_granularity) and kv_granularity >= 16 and max_split_per_batch > 0, "granularity and splits")
        require(work_info.dim() == 2 and work_indptr.numel() == COMPUTE_UNITS + 1, "work_indptr comes before work_info")
        parts = dict(locals()) | {"pointers": work_metadata_ptrs, "work_info_set": work_info}
        mark = fingerprint(1, max_split_per_batch, False)
        fill_schedule(parts, seqlens_kv_indptr.tolist(), kv_granularity, max_split_per_batch, mark)

    return SimpleNamespace(**{f.__name__: f for f in (mla_decode_fwd, get_mla_metadata_info_v1, get_mla_metadata_v1)})
