"""Triton device code of sparse MLA decode: the rows that a token's indices select, from a cache that is read in place.

The query heads of a token are the M operand of the products, a tile of selected rows the N operand; a row is loaded once and
serves as K and V. FP8 values are widened and multiplied by their scales once per tile.

An index that is -1, out of range or past the row's length is never followed: its row is zeros, since an unused cache entry may
hold NaN, and 0 * NaN is not 0.
"""

# Device code is typed by Triton's compiler, not by pyright.
# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false

from __future__ import annotations

from kernels.flash_mla.triton_parts import attend_tile, in_place, jit_for_any_size, load_query, rounds, write_result
from kernels.triton_launch import jit, tl


@jit
def list_length(length_ptr, sequence, topk, has_length: tl.constexpr):
    """How many of the leftmost entries of a token's index row count."""
    length = topk
    if has_length:
        length = tl.minimum(tl.maximum(tl.load(length_ptr + sequence), 0), topk)
    return length


@jit
def select(indices_ptr, positions, length, cache_tokens):
    """(index u32, valid) of index row entries; 0 where invalid. Read unsigned, a negative index is out of range too."""
    index = tl.load(indices_ptr + positions, mask=positions < length, other=-1).to(tl.uint32, bitcast=True)
    valid = index < cache_tokens.to(tl.uint32)
    return tl.where(valid, index, 0), valid


@jit
def e8m0_to_fp32(exponents):
    """2^(e - 127) of int32 exponents, NaN for 255 (OCP MX 1.0, section 5.4.1)."""
    bits = tl.where(exponents == 0, 0x00400000, exponents << 23)
    return tl.where(exponents == 255, 0x7FC00000, bits).to(tl.float32, bitcast=True)


@jit
def load_scales(page_ptr, slot, valid, page_size: tl.constexpr, model1: tl.constexpr):
    """Scales of equal runs of the 512 columns: fp32 [block_n, 4] (V32) or [block_n, 8] (MODEL1, the last run being empty)."""
    if model1:
        run = tl.arange(0, 8)[None, :]
        exponent_ptr = (page_ptr + page_size * 576 + slot * 8)[:, None] + run
        exponents = tl.load(exponent_ptr, mask=valid[:, None] & (run < 7), other=127)
        scales = e8m0_to_fp32(exponents.to(tl.int32))
    else:
        scale_ptr = (page_ptr + slot * 656 + 512).to(tl.pointer_type(tl.float32))[:, None] + tl.arange(0, 4)[None, :]
        scales = tl.load(scale_ptr, mask=valid[:, None], other=0.0)
    return scales


@jit
def dequantise(values, scales, block_n: tl.constexpr, runs: tl.constexpr, operand: tl.constexpr):
    """e4m3 [block_n, 512] times fp32 [block_n, runs]. A power of two within 2^-15 .. 2^7 loses nothing in f16."""
    grouped = tl.reshape(values, (block_n, runs, 512 // runs))
    if operand == tl.float16:
        grouped = grouped.to(tl.float16) * scales.to(tl.float16)[:, :, None]
    else:
        grouped = (grouped.to(tl.float32) * scales[:, :, None]).to(operand)
    return tl.reshape(grouped, (block_n, 512))


@jit
def load_rows(
    cache_ptr, page_stride_16b, index, valid, page_size: tl.constexpr, layout: tl.constexpr, block_n: tl.constexpr,
    operand: tl.constexpr, rope_operand: tl.constexpr,
):  # fmt: skip
    """(nope [block_n, 512], rope [block_n, 64] or nope) of rows `index`; zeros where not valid."""
    columns = tl.arange(0, 512)[None, :]
    rope_columns = tl.arange(0, 64)[None, :]
    row_valid = valid[:, None]
    slot = (index % page_size).to(tl.int64)
    page = (index // page_size).to(tl.int64) * page_stride_16b
    if layout == "bf16_512" or layout == "bf16_576":
        row_ptr = cache_ptr + page * 8 + slot * (512 if layout == "bf16_512" else 576)
        nope = tl.load(row_ptr[:, None] + columns, mask=row_valid, other=0.0).to(operand)
        rope = nope
        if layout == "bf16_576":
            rope = tl.load(row_ptr[:, None] + 512 + rope_columns, mask=row_valid, other=0.0).to(rope_operand)
    else:
        page_ptr = cache_ptr + page * 16
        row_ptr = page_ptr + slot * (576 if layout == "model1" else 656)
        rope_ptr = (row_ptr + (448 if layout == "model1" else 528)).to(tl.pointer_type(tl.bfloat16))
        mask = row_valid & (columns < 448) if layout == "model1" else row_valid
        values = tl.load(row_ptr.to(tl.pointer_type(tl.float8e4nv))[:, None] + columns, mask=mask, other=0.0)
        rope = tl.load(rope_ptr[:, None] + rope_columns, mask=row_valid, other=0.0).to(rope_operand)
        scales = load_scales(page_ptr, slot, valid, page_size, layout == "model1")
        nope = dequantise(values, scales, block_n, 8 if layout == "model1" else 4, operand)
    return nope, rope


@jit
def attend_list(
    first,  # tiles of the index row
    last,
    length,  # its entries that count
    indices_ptr,
    cache_ptr,
    cache_tokens,
    page_stride_16b,
    q_nope,
    q_rope,
    score_scale,
    peak,
    total,
    acc,
    acc_rope,
    page_size: tl.constexpr,
    layout: tl.constexpr,
    block_n: tl.constexpr,
    chained: tl.constexpr,
    operand: tl.constexpr,
    rope_operand: tl.constexpr,
):
    """Attend to tiles [first, last) of one index row."""
    for tile in range(first, last):
        index, valid = select(indices_ptr, tile * block_n + tl.arange(0, block_n), length, cache_tokens)
        nope, rope = load_rows(cache_ptr, page_stride_16b, index, valid, page_size, layout, block_n, operand, rope_operand)
        peak, total, acc, acc_rope = attend_tile(
            q_nope, q_rope, nope, rope, valid[None, :], score_scale, length > 0, peak, total, acc, acc_rope,
            layout != "bf16_512", layout == "model1", chained,
        )  # fmt: skip
    return peak, total, acc, acc_rope


@jit_for_any_size
def sparse_kernel(
    q_ptr,  # bf16 [batch, q_len, heads, dims]
    cache_ptr,  # u8 (v32, model1) or bf16
    indices_ptr,  # i32 [batch, q_len, topk]
    length_ptr,  # i32 [batch], read if has_length
    extra_cache_ptr,  # as the three above, read if has_extra
    extra_indices_ptr,
    extra_length_ptr,
    sink_ptr,  # fp32 [heads], read if has_sink
    out_ptr,  # bf16 [batch, q_len, heads, 512], written if whole
    lse_ptr,  # fp32 [batch, heads, q_len], written if whole
    partial_ptr,  # fp32 [batch, q_len, heads, num_kv_splits, 512], written otherwise
    partial_lse_ptr,  # fp32 [batch, q_len, heads, num_kv_splits]
    sm_scale,
    heads,
    q_len,
    topk,
    cache_tokens,
    page_stride_16b,  # of the cache, in units of 16 bytes
    extra_topk,
    extra_cache_tokens,
    extra_page_stride_16b,
    layout: tl.constexpr,  # v32, model1, bf16_576 or bf16_512
    page_size: tl.constexpr,
    extra_page_size: tl.constexpr,
    has_length: tl.constexpr,
    has_extra: tl.constexpr,
    has_extra_length: tl.constexpr,
    has_sink: tl.constexpr,
    row_blocks: tl.constexpr,
    whole: tl.constexpr,  # num_kv_splits is 1
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    chained: tl.constexpr,  # see add_product
    operand: tl.constexpr,  # f16 or bf16; fp32 under the interpreter, whose product of bf16 is wrong
    rope_operand: tl.constexpr,  # bf16, or fp32 likewise
    overlap: tl.constexpr,
):
    if overlap:
        tl.extra.cuda.gdc_launch_dependents()
    has_rope: tl.constexpr = layout != "bf16_512"
    nope: tl.constexpr = 448 if layout == "model1" else 512
    token = (tl.program_id(0) // row_blocks).to(tl.int64)
    split = tl.program_id(1)
    num_kv_splits = tl.num_programs(1)
    head = tl.program_id(0) % row_blocks * block_m + tl.arange(0, block_m)
    row_valid = head < heads
    row = token * heads + head
    q_row = q_ptr + row[:, None] * (nope + 64 if has_rope else 512)
    q_nope, q_rope, score_scale = load_query(
        q_row, row_valid, sm_scale * 1.4426950408889634, block_m, nope, has_rope, operand, rope_operand
    )

    length = list_length(length_ptr, token // q_len, topk, has_length)
    tiles = tl.cdiv(length, block_n)
    all_tiles = tiles
    if has_extra:
        extra_length = list_length(extra_length_ptr, token // q_len, extra_topk, has_extra_length)
        all_tiles = tiles + tl.cdiv(extra_length, block_n)
    per_split = tl.cdiv(all_tiles, num_kv_splits)
    first = split * per_split
    last = tl.minimum(first + per_split, all_tiles)

    peak = tl.full((block_m,), -float("inf"), tl.float32)
    total = tl.zeros((block_m,), tl.float32)
    acc = tl.zeros((block_m, 512), tl.float32)
    acc_rope = tl.zeros((block_m, 64), tl.float32)
    for _ in range(rounds(heads, chained)):
        peak, total, acc, acc_rope = attend_list(
            first, tl.minimum(last, tiles), length, indices_ptr + token * topk, cache_ptr, cache_tokens, page_stride_16b,
            q_nope, q_rope, score_scale, peak, total, acc, acc_rope, page_size, layout, block_n, chained, operand, rope_operand,
        )  # fmt: skip
        if has_extra:
            peak, total, acc, acc_rope = attend_list(
                tl.maximum(first - tiles, 0), last - tiles, extra_length, extra_indices_ptr + token * extra_topk,
                extra_cache_ptr, extra_cache_tokens, extra_page_stride_16b, q_nope, q_rope, score_scale,
                peak, total, acc, acc_rope, extra_page_size, layout, block_n, chained, operand, rope_operand,
            )  # fmt: skip
        q_nope = in_place(q_nope)
        if has_rope:
            q_rope = in_place(q_rope)
    write_result(
        acc, acc_rope, peak, total, row, row_valid, heads, q_len, split, num_kv_splits, sink_ptr, out_ptr, lse_ptr,
        partial_ptr, partial_lse_ptr, nope, layout == "model1", has_sink, whole,
    )  # fmt: skip
