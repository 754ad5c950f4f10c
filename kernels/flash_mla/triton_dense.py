"""Triton device code of dense MLA decode over a paged bf16 cache.

The query rows (tokens x heads) that share a KV head of a sequence are the M operand of the products, a tile of its cached
tokens the N operand; a row is loaded once and serves as K (all its dims) and V (the first 512).
"""

# Device code is typed by Triton's compiler, not by pyright.
# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false

from __future__ import annotations

from kernels.flash_mla.triton_parts import attend_tile, in_place, jit_for_any_size, load_query, rounds, write_result
from kernels.triton_launch import jit, tl


@jit
def load_row(row_ptr, inside, has_rope: tl.constexpr, operand: tl.constexpr):
    """(nope [block_n, 512], rope [block_n, 64] or nope)."""
    nope = tl.load(row_ptr[:, None] + tl.arange(0, 512)[None, :], mask=inside[:, None], other=0.0).to(operand)
    rope = nope
    if has_rope:
        rope = tl.load(row_ptr[:, None] + 512 + tl.arange(0, 64)[None, :], mask=inside[:, None], other=0.0).to(operand)
    return nope, rope


@jit_for_any_size
def dense_kernel(
    q_ptr,  # bf16 [batch, q_len, heads, 512 or 576]
    cache_ptr,  # bf16 [pages, page_size, kv_heads, 512 or 576]
    block_table_ptr,  # i32 [batch, max_pages]
    seqlens_ptr,  # i32 [batch]: cached tokens, the last q_len of them being the query tokens themselves
    out_ptr,  # bf16 [batch, q_len, heads, 512], written if whole
    lse_ptr,  # fp32 [batch, heads, q_len], written if whole
    partial_ptr,  # fp32 [batch, q_len, heads, num_kv_splits, 512], written otherwise
    partial_lse_ptr,  # fp32 [batch, q_len, heads, num_kv_splits]
    sm_scale,
    heads,
    q_len,
    max_pages,
    page_stride_16b,  # of the cache, in units of 16 bytes
    token_stride_16b,
    head_stride_16b,
    kv_heads: tl.constexpr,
    page_size: tl.constexpr,
    has_rope: tl.constexpr,  # 576 dims
    causal: tl.constexpr,
    row_blocks: tl.constexpr,
    whole: tl.constexpr,  # num_kv_splits is 1
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    chained: tl.constexpr,  # see add_product
    operand: tl.constexpr,  # bf16; fp32 under the interpreter, whose product of bf16 is wrong
    overlap: tl.constexpr,
):
    if overlap:
        tl.extra.cuda.gdc_launch_dependents()
    dims: tl.constexpr = 576 if has_rope else 512
    sequence = (tl.program_id(0) // (row_blocks * kv_heads)).to(tl.int64)
    kv_head = tl.program_id(0) // row_blocks % kv_heads
    split = tl.program_id(1)
    num_kv_splits = tl.num_programs(1)

    group = heads // kv_heads
    place = tl.program_id(0) % row_blocks * block_m + tl.arange(0, block_m)  # (query token, head of the group)
    query = place // group
    row_valid = query < q_len
    row = (sequence * q_len + query) * heads + kv_head * group + place % group
    q_nope, q_rope, score_scale = load_query(
        q_ptr + row[:, None] * dims, row_valid, sm_scale * 1.4426950408889634, block_m, 512, has_rope, operand, operand
    )

    length = tl.minimum(tl.load(seqlens_ptr + sequence), max_pages * page_size)
    per_split = tl.cdiv(tl.cdiv(length, block_n), num_kv_splits)
    first = split * per_split
    last = tl.minimum(first + per_split, tl.cdiv(length, block_n))
    row_end = length - q_len + query + 1 if causal else tl.zeros((block_m,), tl.int32) + length

    peak = tl.full((block_m,), -float("inf"), tl.float32)
    total = tl.zeros((block_m,), tl.float32)
    acc = tl.zeros((block_m, 512), tl.float32)
    acc_rope = tl.zeros((block_m, 64), tl.float32)  # no part of V here
    for _ in range(rounds(heads, chained)):
        for tile in range(first, last):
            tokens = tile * block_n + tl.arange(0, block_n)
            inside = tokens < length
            page = tl.load(block_table_ptr + sequence * max_pages + tokens // page_size, mask=inside, other=0).to(tl.int64)
            slot = (tokens % page_size).to(tl.int64)
            at_16b = page * page_stride_16b + slot * token_stride_16b + kv_head * head_stride_16b
            nope, rope = load_row(cache_ptr + at_16b * 8, inside, has_rope, operand)
            peak, total, acc, acc_rope = attend_tile(
                q_nope, q_rope, nope, rope, tokens[None, :] < row_end[:, None], score_scale, length > 0,
                peak, total, acc, acc_rope, has_rope, False, chained,
            )  # fmt: skip
        q_nope = in_place(q_nope)
        if has_rope:
            q_rope = in_place(q_rope)
    write_result(
        acc, acc_rope, peak, total, row, row_valid, heads, q_len, split, num_kv_splits, out_ptr, out_ptr, lse_ptr,
        partial_ptr, partial_lse_ptr, 512, False, False, whole,
    )  # fmt: skip
