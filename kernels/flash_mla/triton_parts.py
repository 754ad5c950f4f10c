"""Pieces that the dense and the sparse Triton kernels of flash_mla_with_kvcache share: one tile, results, the combine.

Scores and log-sum-exps are in base 2 inside; what leaves is natural. A row without a valid token ends with total = 0 and gives
out = 0, lse = +inf.
"""

# Device code is typed by Triton's compiler, not by pyright.
# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportCallIssue=false

from __future__ import annotations

from kernels.triton_launch import jit, tl

# Arguments that vary from call to call: no variant of the code for values that are 1 or multiples of 16.
RUN_TIME_SIZES = [
    "heads", "q_len", "num_kv_splits", "topk", "cache_tokens", "page_stride_16b", "extra_topk", "extra_cache_tokens",
    "extra_page_stride_16b", "token_stride_16b", "head_stride_16b", "max_pages",
]  # fmt: skip


def jit_for_any_size(function):
    if tl is None:
        return function
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    return jit(function, do_not_specialize=[name for name in RUN_TIME_SIZES if name in arguments])


@jit
def power_of_two(largest):
    """The power of two at or below each |largest|, 1 for 0: dividing by it is exact and keeps q inside the range of f16."""
    power = (largest.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
    return tl.where(power == 0, 1.0, power)


@jit
def load_query(
    q_row,  # pointers [block_m, 1] to bf16 rows of `dims`
    row_valid,
    scale_log2,  # sm_scale * log2(e)
    block_m: tl.constexpr,
    nope: tl.constexpr,  # 512, or 448 of MODEL1
    has_rope: tl.constexpr,
    operand: tl.constexpr,
    rope_operand: tl.constexpr,
):
    """(q_nope [block_m, 512], q_rope [block_m, 64], score_scale [block_m]). f16 holds q over a power of two of its row."""
    columns = tl.arange(0, 512)[None, :]
    mask = row_valid[:, None] if nope == 512 else row_valid[:, None] & (columns < nope)
    q_nope = tl.load(q_row + columns, mask=mask, other=0.0)
    score_scale = tl.full((block_m,), 1.0, tl.float32) * scale_log2
    q_rope = q_nope  # in its place where there is none
    if has_rope:
        q_rope = tl.load(q_row + nope + tl.arange(0, 64)[None, :], mask=row_valid[:, None], other=0.0)
    if operand == tl.float16:
        largest = tl.max(tl.abs(q_nope.to(tl.float32)), 1)
        if has_rope:
            largest = tl.maximum(largest, tl.max(tl.abs(q_rope.to(tl.float32)), 1))
        powers = power_of_two(largest)
        score_scale *= powers
        q_nope = q_nope.to(tl.float32) / powers[:, None]
        if has_rope:
            q_rope = q_rope.to(tl.float32) / powers[:, None]
    if has_rope:
        q_rope = q_rope.to(rope_operand)
    return q_nope.to(operand), q_rope, score_scale


@jit
def rounds(heads, chained: tl.constexpr):
    """1, which the compiler cannot know for warp groups.

    Around the loop over tiles goes a loop of one round that carries q. What a loop carries is an operand that Triton puts into
    shared memory, once; any other computed one it would load into registers again for every tile.
    """
    return 1 if chained else tl.minimum(heads, 1)


@jit
def add_product(a, b, acc, always, chained: tl.constexpr):
    """acc + a b. `always` is true, but the compiler cannot know.

    Where Triton sees that one product feeds another, it gives every warp its own rows of the first. With 64 rows and 8 warps
    two warp groups would then compute the same scores; behind a branch they share the columns instead.
    """
    if chained:
        return tl.dot(a, b, acc)
    if always:
        acc = tl.dot(a, b, acc)
    return acc


@jit
def first_of(a, b):
    return a


@jit
def in_place(x):
    """x [m, n] itself. Triton moves a change of layout above anything elementwise, which would compute p twice; it does not
    cross a reduction, and this one costs no instruction; to the interpreter, the one that has fp32 here, it would be long."""
    return x if x.dtype == tl.float32 else tl.reduce(tl.join(x, x), 2, first_of)


@jit
def softmax_in_base_2(scores, valid, peak, total):
    """One step of the online softmax: (p, rescale, peak, total). `valid` is broadcast over `scores` [block_m, block_n].

    While a row has seen no valid token its peak is -inf; exponents are then taken from 0, since -inf - -inf is NaN. A NaN
    score of a valid token makes its row NaN.
    """
    scores = tl.where(valid, scores, -float("inf"))
    new_peak = tl.maximum(peak, tl.max(scores, 1))
    base = tl.where(new_peak == -float("inf"), 0.0, new_peak)
    p = tl.exp2(scores - base[:, None])
    rescale = tl.exp2(peak - base)
    return p, rescale, new_peak, total * rescale + tl.sum(p, 1)


@jit
def attend_tile(
    q_nope,  # [block_m, 512] in `operand`
    q_rope,  # [block_m, 64] in `rope_operand`, if has_rope
    nope,  # [block_n, 512] in `operand`: K and V
    rope,  # [block_n, 64] in `rope_operand`: K, and of MODEL1 V too
    valid,  # broadcast over [block_m, block_n]
    score_scale,
    always,
    peak,
    total,
    acc,  # fp32 [block_m, 512]
    acc_rope,  # fp32 [block_m, 64], if rope_is_value
    has_rope: tl.constexpr,
    rope_is_value: tl.constexpr,
    chained: tl.constexpr,
):
    scores = tl.zeros((q_nope.shape[0], nope.shape[0]), tl.float32)
    if has_rope:
        scores = add_product(q_rope, tl.trans(rope), scores, always, chained)
    scores = add_product(q_nope, tl.trans(nope), scores, always, chained)
    p, rescale, peak, total = softmax_in_base_2(scores * score_scale[:, None], valid, peak, total)
    acc = tl.dot(in_place(p.to(nope.dtype)), nope, acc * rescale[:, None])
    if rope_is_value:
        acc_rope = tl.dot(in_place(p.to(rope.dtype)), rope, acc_rope * rescale[:, None])
    return peak, total, acc, acc_rope


@jit
def sink_factor(sink_ptr, head, head_valid, lse):
    """1 / (1 + e^(sink - lse)), lse in base 2: a sink of -inf gives 1, +inf gives 0, and nothing overflows into NaN."""
    sink = tl.load(sink_ptr + head, mask=head_valid, other=0.0) * 1.4426950408889634  # log2(e)
    return 1.0 / (1.0 + tl.exp2(sink - lse))


@jit
def write_columns(
    acc,  # fp32 [block_m, block_d]: sum of p * V
    columns,  # [block_d]
    columns_end: tl.constexpr,  # those from here on are not written
    factor,  # [block_m]: of the sink
    total,  # fp32 [block_m]: sum of p
    row,  # int64 [block_m]: (token, head) rows of q
    row_valid,
    split,
    num_kv_splits,
    out_ptr,
    partial_ptr,
    whole: tl.constexpr,
):
    """Write columns of the output if there is one split, else of this split's normalised part."""
    mask = row_valid[:, None] & (columns < columns_end)[None, :]
    result = tl.where(total[:, None] != 0, acc * (factor / total)[:, None], 0.0)
    if whole:
        tl.store(out_ptr + row[:, None] * 512 + columns[None, :], result.to(tl.bfloat16), mask=mask)
    else:
        tl.store(partial_ptr + (row * num_kv_splits + split)[:, None] * 512 + columns[None, :], result, mask=mask)


@jit
def lse_place(row, heads, q_len):
    """Where row (token, head) stands in [batch, heads, q_len]."""
    token = row // heads
    return (token // q_len * heads + row % heads) * q_len + token % q_len


@jit
def write_result(
    acc,
    acc_rope,
    peak,  # fp32 [block_m]: largest score, base 2
    total,
    row,
    row_valid,
    heads,
    q_len,
    split,
    num_kv_splits,
    sink_ptr,
    out_ptr,
    lse_ptr,
    partial_ptr,
    partial_lse_ptr,
    nope: tl.constexpr,
    rope_is_value: tl.constexpr,
    has_sink: tl.constexpr,
    whole: tl.constexpr,
):
    """Write out and the natural lse, or this split's part and its lse in base 2, where -inf marks an empty one."""
    lse = peak + tl.log2(total)
    factor = tl.full(total.shape, 1.0, tl.float32)
    if has_sink and whole:
        factor = sink_factor(sink_ptr, row % heads, row_valid, lse)
    columns = tl.arange(0, 512)
    write_columns(acc, columns, nope, factor, total, row, row_valid, split, num_kv_splits, out_ptr, partial_ptr, whole)
    if rope_is_value:
        columns = nope + tl.arange(0, 64)
        write_columns(acc_rope, columns, 512, factor, total, row, row_valid, split, num_kv_splits, out_ptr, partial_ptr, whole)
    if whole:
        natural = lse * 0.6931471805599453  # ln(2)
        lse = tl.where(total == 0, float("inf"), natural)
        tl.store(lse_ptr + lse_place(row, heads, q_len), lse, mask=row_valid)
    else:
        tl.store(partial_lse_ptr + row * num_kv_splits + split, lse, mask=row_valid)


@jit_for_any_size
def merge_splits_kernel(
    partial_ptr,  # fp32 [rows, num_kv_splits, 512], rows = batch * q_len * heads
    partial_lse_ptr,  # fp32 [rows, num_kv_splits], base 2; -inf marks an empty split
    sink_ptr,  # fp32 [heads], read if has_sink
    out_ptr,  # bf16 [rows, 512]
    lse_ptr,  # fp32 [batch, heads, q_len]
    heads,
    q_len,
    num_kv_splits,
    padded_splits: tl.constexpr,  # the next power of two
    block_d: tl.constexpr,
    has_sink: tl.constexpr,
    overlap: tl.constexpr,
):
    if overlap:
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * block_d + tl.arange(0, block_d)
    splits = tl.arange(0, padded_splits)
    part_lse = tl.load(partial_lse_ptr + row * num_kv_splits + splits, mask=splits < num_kv_splits, other=-float("inf"))
    filled = part_lse != -float("inf")  # true for NaN, which must reach the output
    peak = tl.max(part_lse, 0)
    weights = tl.where(filled, tl.exp2(part_lse - peak), 0.0)
    parts = partial_ptr + (row * num_kv_splits + splits)[:, None] * 512 + columns[None, :]
    part = tl.load(parts, mask=filled[:, None], other=0.0)
    total = tl.sum(weights, 0)
    lse = peak + tl.log2(total)
    result = tl.sum(part * weights[:, None], 0) / total
    if has_sink:
        result *= sink_factor(sink_ptr, row % heads, True, lse)
    tl.store(out_ptr + row * 512 + columns, tl.where(total == 0, 0.0, result).to(tl.bfloat16))
    if tl.program_id(1) == 0:
        lse = tl.where(total == 0, float("inf"), lse * 0.6931471805599453)  # ln(2)
        tl.store(lse_ptr + lse_place(row, heads, q_len), lse)
