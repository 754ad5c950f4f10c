"""Triton device code: block-sparse split-KV decode over NVFP4 pages, in one launch.

A program serves one (row, KV head) and a contiguous share of its valid slots. Its warps are the batch dimension of every
product: warp w owns keys [w * keys, (w + 1) * keys) of each tile, with a softmax and an output of its own, so the loop
over tiles exchanges nothing between warps; they merge once, at the end. Query heads are the M operand, padded to 16.

A token's 128 codes are loaded as 32 words of 16 bits: the unit in which shared memory feeds tensor cores. One word holds
dims 4w .. 4w + 3, so a tile is four operands, dims 0 mod 4 to dims 3 mod 4, and so are q and the output.
"""

# Device code is typed by Triton's compiler, not by pyright.
# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# pyright: reportCallIssue=false

from __future__ import annotations

from kernels.triton_launch import jit, tl


@jit
def listed_pages(topk_row_ptr, table_row_ptr, pos, topk: tl.constexpr, slots: tl.constexpr):
    """The pages of a row's valid slots: (codes, ranks, count). Slot j holds the ranks[j]-th page (-1: not valid); the code
    of a page p is p, or -1 - p if it is the row's own block, where later keys are hidden."""
    slot = tl.arange(0, slots)
    block = tl.load(topk_row_ptr + slot, mask=slot < topk, other=-1)
    own = pos >> 7  # pos // 128; -1 if pos is negative
    valid = (block >= 0) & (block <= own)
    page = tl.load(table_row_ptr + block, mask=valid, other=0)
    codes = tl.where(block == own, -1 - page, page)
    ranks = tl.where(valid, tl.cumsum(valid.to(tl.int32), 0) - 1, -1)
    return codes, ranks, tl.sum(valid.to(tl.int32), 0)


@jit
def quarters(x, rows: tl.constexpr):
    """[rows, 128] -> dims 0, 1, 2, 3 mod 4, f16 [rows, 32] each."""
    even, odd = tl.split(tl.reshape(x.to(tl.float16), (rows, 64, 2)))
    x0, x2 = tl.split(tl.reshape(even, (rows, 32, 2)))
    x1, x3 = tl.split(tl.reshape(odd, (rows, 32, 2)))
    return x0, x1, x2, x3


@jit
def joined(x0, x1, x2, x3):
    """The inverse of quarters, in the dtype of its arguments."""
    return tl.interleave(tl.interleave(x0, x2), tl.interleave(x1, x3))


@jit
def widened(words, bits: tl.constexpr):
    """E2M1 codes in bits [bits, bits + 4) of u16 words -> f16, times 2^-14."""
    code = words >> bits
    return (((code & 7) << 9) | ((code & 8) << 12)).to(tl.float16, bitcast=True)


@jit
def unpacked(words, scales, assembly: tl.constexpr, constraints: tl.constexpr):
    """The four operands of a tile, f16 [warps, keys, 32] each, from words u16 and e4m3 patterns u8 of that shape."""
    if assembly == "":
        # As f16 patterns the bits of e4m3, NaN included, are finite, subnormals exact, and 2^8 too small.
        scale = ((scales & 0x7F).to(tl.uint16) << 7).to(tl.float16, bitcast=True) * 256.0
        x0, x1, x2, x3 = widened(words, 0), widened(words, 4), widened(words, 8), widened(words, 12)
        return x0 * scale, x1 * scale, x2 * scale, x3 * scale
    return tl.inline_asm_elementwise(
        assembly,
        constraints,
        [words, scales],
        (tl.float16, tl.float16, tl.float16, tl.float16),  # a variable would turn its elements into constexprs
        is_pure=True,
        pack=4,
    )


@jit
def repeated(scales, warps: tl.constexpr, keys: tl.constexpr):
    """[warps, keys, 8], one scale for 16 dims -> [warps, keys, 32], one for every word."""
    return tl.reshape(tl.broadcast_to(scales[:, :, :, None], (warps, keys, 8, 4)), (warps, keys, 32))


@jit
def load_scales(ptr, first, warps: tl.constexpr, keys: tl.constexpr, swizzled: tl.constexpr):
    """The scale patterns, u8 [warps, keys, 8], of the tokens from `first` on; `ptr` is their section of a page."""
    group = tl.arange(0, 8)
    if swizzled:
        four = first // 4 + tl.arange(0, warps)[:, None] * (keys // 4) + tl.arange(0, keys // 4)[None, :]
        place = four[:, :, None, None] * 32 + group[None, None, :, None] * 4 + tl.arange(0, 4)[None, None, None, :]
        return tl.reshape(tl.permute(tl.load(ptr + place), (0, 1, 3, 2)), (warps, keys, 8))
    token = first + tl.arange(0, warps)[:, None] * keys + tl.arange(0, keys)[None, :]
    return tl.load(ptr + token[:, :, None] * 8 + group[None, None, :])


@jit
def query_operands(q_ptr, place, heads_valid, warps: tl.constexpr):
    """A group's query rows as four operands, f16 [warps, 16, 32] each, divided by `powers`, fp32 [16]."""
    q = tl.load(q_ptr + place, mask=heads_valid, other=0.0).to(tl.float32)
    # The power of two at or below a row's largest |element|: dividing by it is exact and keeps q inside the range of f16.
    powers = (tl.max(tl.abs(q), 1).to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
    powers = tl.where(powers == 0, 1.0, powers)
    q0, q1, q2, q3 = quarters(q / powers[:, None], 16)
    q0 = tl.broadcast_to(q0[None, :, :], (warps, 16, 32))
    q1 = tl.broadcast_to(q1[None, :, :], (warps, 16, 32))
    q2 = tl.broadcast_to(q2[None, :, :], (warps, 16, 32))
    q3 = tl.broadcast_to(q3[None, :, :], (warps, 16, 32))
    return q0, q1, q2, q3, powers


@jit
def load_tile(
    page_ptr,
    kv_head,
    first,  # token of the page
    num_kv_heads: tl.constexpr,
    warps: tl.constexpr,
    keys: tl.constexpr,
    swizzled: tl.constexpr,
):
    """Words u16 [warps, keys, 32] and scales u8 [warps, keys, 8] of K and of V."""
    token = first + tl.arange(0, warps)[:, None] * keys + tl.arange(0, keys)[None, :]
    word = token[:, :, None] * 32 + tl.arange(0, 32)[None, None, :]
    k_words_ptr = (page_ptr + kv_head * 8192).to(tl.pointer_type(tl.uint16))
    v_words_ptr = (page_ptr + num_kv_heads * 9216 + kv_head * 8192).to(tl.pointer_type(tl.uint16))
    k_words = tl.load(k_words_ptr + word)
    k_scales = load_scales(page_ptr + num_kv_heads * 8192 + kv_head * 1024, first, warps, keys, False)
    v_words = tl.load(v_words_ptr + word)
    v_scales = load_scales(page_ptr + num_kv_heads * 17408 + kv_head * 1024, first, warps, keys, swizzled)
    return k_words, k_scales, v_words, v_scales


@jit
def softmax_step(scores, row_scale, peak, total):
    """One step of the online softmax: (p, rescale, peak, total). Scores and peaks become exponents of two by * row_scale.

    A warp may not have seen a key yet: exponents are then taken from 0, since -inf - -inf is NaN.
    """
    new_peak = tl.maximum(peak, tl.max(scores, 2))
    base = tl.where(new_peak == -float("inf"), 0.0, new_peak) * row_scale
    p = tl.exp2(scores * row_scale[:, :, None] - base[:, :, None])
    rescale = tl.exp2(peak * row_scale - base)
    return p, rescale, new_peak, total * rescale + tl.sum(p, 2)


@jit
def merge_warps(out0, out1, out2, out3, peak, total, row_scale):
    """(out fp32 [16, 128], peak [16], total [16]) of all warps."""
    whole_peak = tl.max(peak, 0)
    base = tl.where(whole_peak == -float("inf"), 0.0, whole_peak)
    weights = tl.exp2((peak - base[None, :]) * row_scale)
    whole_total = tl.sum(total * weights, 0)
    weights = weights[:, :, None]
    out0, out1 = tl.sum(out0 * weights, 0), tl.sum(out1 * weights, 0)
    out2, out3 = tl.sum(out2 * weights, 0), tl.sum(out3 * weights, 0)
    return joined(out0, out1, out2, out3), whole_peak, whole_total


@jit
def combined(partial_ptr, lse_ptr, first_part, active, num_kv_splits: tl.constexpr):
    """The output of all active splits, fp32 [16, 128]. Loads pass by L1, which may hold what was there before."""
    heads = tl.arange(0, 16)
    element = heads[:, None] * 128 + tl.arange(0, 128)[None, :]
    peak = tl.full((16,), -float("inf"), tl.float32)
    for split in tl.static_range(num_kv_splits):
        there = heads < tl.where(split < active, 16, 0)
        lse = tl.load(lse_ptr + (first_part + split) * 16 + heads, mask=there, other=-float("inf"), cache_modifier=".cg")
        peak = tl.maximum(peak, lse)
    total = tl.zeros((16,), tl.float32)
    out = tl.zeros((16, 128), tl.float32)
    for split in tl.static_range(num_kv_splits):
        there = heads < tl.where(split < active, 16, 0)
        lse = tl.load(lse_ptr + (first_part + split) * 16 + heads, mask=there, other=-float("inf"), cache_modifier=".cg")
        part_ptr = partial_ptr + (first_part + split) * 2048 + element
        part = tl.load(part_ptr, mask=there[:, None], other=0.0, cache_modifier=".cg")
        weight = tl.exp2(lse - peak)
        total += weight
        out += weight[:, None] * part.to(tl.float32)
    return out / total[:, None]


@jit
def hand_in(out, lse, partial_ptr, lse_ptr, ticket_ptr, first_part, split, active):
    """Store a split's normalised output and its base-2 log-sum-exp; whether all active splits have now done so."""
    heads = tl.arange(0, 16)
    element = heads[:, None] * 128 + tl.arange(0, 128)[None, :]
    tl.store(partial_ptr + (first_part + split) * 2048 + element, out.to(tl.float16))
    tl.store(lse_ptr + (first_part + split) * 16 + heads, lse)
    tl.debug_barrier()  # every warp's stores happen before the ticket, which releases them
    return tl.atomic_add(ticket_ptr, 1, sem="acq_rel", scope="gpu") == active - 1


@jit(do_not_specialize=("requests", "table_stride", "topk_rows"))
def nvfp4_decode_kernel(
    q_ptr,  # bf16 [rows, num_kv_heads * group_size, 128]
    cache_ptr,  # u8, pages of num_kv_heads * 18432 bytes
    topk_ptr,  # i32 [num_kv_heads, topk_rows, topk]
    block_table_ptr,  # i32 [requests, table_stride]
    seq_lens_ptr,  # i32 [requests]
    k_scale_ptr,  # fp32 [1]
    v_scale_ptr,  # fp32 [1]
    out_ptr,  # bf16, as q
    partial_ptr,  # f16 [rows * num_kv_heads, num_kv_splits, 16, 128]
    lse_ptr,  # fp32 [rows * num_kv_heads, num_kv_splits, 16], base 2
    tickets_ptr,  # i32 [rows * num_kv_heads], zeros before and after
    requests,
    table_stride,
    topk_rows,
    sm_scale,
    q_len: tl.constexpr,
    num_kv_heads: tl.constexpr,
    group_size: tl.constexpr,
    topk: tl.constexpr,
    slots: tl.constexpr,  # the next power of two, at least 16
    swizzled: tl.constexpr,
    num_kv_splits: tl.constexpr,
    warps: tl.constexpr,  # num_warps: the batch dimension of the products
    keys: tl.constexpr,  # of a tile, for each warp: 16, 32 or 64
    k_assembly: tl.constexpr,
    v_assembly: tl.constexpr,
    constraints: tl.constexpr,
    unit: tl.constexpr,  # what a product of unpacked() is to be multiplied by
):
    pair = tl.program_id(0) // num_kv_splits  # of a row and a KV head
    split = tl.program_id(0) % num_kv_splits
    row = pair // num_kv_heads
    kv_head = pair % num_kv_heads
    request = row // q_len
    seq_len = tl.load(seq_lens_ptr + request, mask=request < requests, other=0)
    pos = tl.where(request < requests, seq_len - q_len + row % q_len, -1)
    topk_row_ptr = topk_ptr + (kv_head.to(tl.int64) * topk_rows + row) * topk
    table_row_ptr = block_table_ptr + request.to(tl.int64) * table_stride
    codes, ranks, count = listed_pages(topk_row_ptr, table_row_ptr, pos, topk, slots)
    chunk = tl.cdiv(count, num_kv_splits)
    active = tl.maximum(tl.cdiv(count, tl.maximum(chunk, 1)), 1)  # without a valid slot, split 0 writes zeros
    if split >= active:
        return

    heads = tl.arange(0, 16)
    heads_valid = (heads < group_size)[:, None]
    place = (pair.to(tl.int64) * group_size + heads)[:, None] * 128 + tl.arange(0, 128)[None, :]
    q0, q1, q2, q3, powers = query_operands(q_ptr, place, heads_valid, warps)
    score_scale = powers * (sm_scale * 1.4426950408889634 * unit * tl.load(k_scale_ptr))  # log2(e)
    row_scale = score_scale[None, :]

    tile: tl.constexpr = warps * keys
    tiles_per_page: tl.constexpr = 128 // tile
    token = tl.arange(0, warps)[:, None] * keys + tl.arange(0, keys)[None, :]
    peak = tl.full((warps, 16), -float("inf"), tl.float32)
    total = tl.zeros((warps, 16), tl.float32)
    out0 = tl.zeros((warps, 16, 32), tl.float32)
    out1 = tl.zeros((warps, 16, 32), tl.float32)
    out2 = tl.zeros((warps, 16, 32), tl.float32)
    out3 = tl.zeros((warps, 16, 32), tl.float32)
    last_tile = tl.minimum((split + 1) * chunk, count) * tiles_per_page
    for i in range(split * chunk * tiles_per_page, last_tile):
        code = tl.sum(tl.where(ranks == i // tiles_per_page, codes, 0), 0)
        first = i % tiles_per_page * tile
        last_visible = tl.where(code < 0, pos % 128, 127) - first
        page_ptr = cache_ptr + tl.where(code < 0, -1 - code, code).to(tl.int64) * (num_kv_heads * 18432)
        k_words, k_scales, v_words, v_scales = load_tile(page_ptr, kv_head, first, num_kv_heads, warps, keys, swizzled)

        k0, k1, k2, k3 = unpacked(k_words, repeated(k_scales, warps, keys), k_assembly, constraints)
        scores = tl.dot(q0, tl.permute(k0, (0, 2, 1)))
        scores = tl.dot(q1, tl.permute(k1, (0, 2, 1)), scores)
        scores = tl.dot(q2, tl.permute(k2, (0, 2, 1)), scores)
        scores = tl.dot(q3, tl.permute(k3, (0, 2, 1)), scores)
        if last_visible < tile - 1:
            scores = tl.where((token <= last_visible)[:, None, :], scores, -float("inf"))
        p, rescale, peak, total = softmax_step(scores, row_scale, peak, total)

        p = p.to(tl.float16)
        rescale = rescale[:, :, None]
        v0, v1, v2, v3 = unpacked(v_words, repeated(v_scales, warps, keys), v_assembly, constraints)
        out0 = tl.dot(p, v0, out0 * rescale)
        out1 = tl.dot(p, v1, out1 * rescale)
        out2 = tl.dot(p, v2, out2 * rescale)
        out3 = tl.dot(p, v3, out3 * rescale)

    out, whole_peak, whole_total = merge_warps(out0, out1, out2, out3, peak, total, row_scale)
    out = tl.where(whole_total[:, None] == 0, 0.0, out * unit / whole_total[:, None])
    v_scale = tl.load(v_scale_ptr)
    if num_kv_splits == 1 or active == 1:
        tl.store(out_ptr + place, (out * v_scale).to(tl.bfloat16), mask=heads_valid)
    else:
        first_part = pair.to(tl.int64) * num_kv_splits
        lse = whole_peak * score_scale + tl.log2(whole_total)
        if hand_in(out, lse, partial_ptr, lse_ptr, tickets_ptr + pair, first_part, split, active):
            out = combined(partial_ptr, lse_ptr, first_part, active, num_kv_splits)
            tl.store(out_ptr + place, (out * v_scale).to(tl.bfloat16), mask=heads_valid)
            tl.store(tickets_ptr + pair, 0)
