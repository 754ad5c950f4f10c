"""Triton device code: split-KV MLA decode for bf16 and fp8 KV, and the combine of its splits.

The query rows (tokens x heads) of a sequence are the M operand of the tensor-core products, a tile of its KV rows the
N operand. A tile is loaded once and serves as K (576 columns) and V (the first 512).

An fp8 row is loaded as 16-bit words, each two neighbouring columns, and widened to f16 in the registers of the products'
operands: 8-bit elements could not take the transposed shared-memory loads that V needs. All even columns form one operand
and all odd ones another.
"""

# Device code is typed by Triton's compiler, not by pyright.
# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false

from __future__ import annotations

from kernels.triton_launch import jit, tl


@jit
def split_range(kv_indptr_ptr, sequence, split, num_kv_splits, block_n: tl.constexpr):
    """KV rows [begin, end) of a split: an equal number of whole tiles each, the last ones shorter or empty."""
    first = tl.load(kv_indptr_ptr + sequence)
    last = tl.load(kv_indptr_ptr + sequence + 1)
    rows = tl.cdiv(tl.cdiv(last - first, block_n), num_kv_splits) * block_n
    begin = first + split * rows
    return begin, tl.minimum(begin + rows, last)


@jit
def softmax_step(scores, columns_valid, peak, total):
    """One step of the online softmax in base 2: (p, rescale, peak, total). A NaN score makes its row NaN."""
    scores = tl.where(columns_valid[None, :], scores, -float("inf"))
    new_peak = tl.maximum(peak, tl.max(scores, 1))
    p = tl.exp2(scores - new_peak[:, None])
    rescale = tl.exp2(peak - new_peak)
    return p, rescale, new_peak, total * rescale + tl.sum(p, 1)


@jit
def store_rows(
    acc,  # fp32 [block_m, 512]: sum of p * V
    peak,  # fp32 [block_m]: largest score, base 2
    total,  # fp32 [block_m]: sum of p
    first_row,  # of the sequence, in rows of q
    rows,
    rows_valid,
    split,
    num_kv_splits,
    out_ptr,
    partial_ptr,
    lse_ptr,
    whole: tl.constexpr,
):
    """Write the output if the sequence is whole, else this split's normalised part and its base-2 log-sum-exp."""
    columns = tl.arange(0, 512)[None, :]
    row = (first_row + rows).to(tl.int64)
    if whole:
        result = tl.where(total[:, None] == 0, 0.0, acc / total[:, None])  # a sequence without KV gives zeros
        tl.store(out_ptr + row[:, None] * 512 + columns, result.to(tl.bfloat16), mask=rows_valid[:, None])
    else:
        part = row * num_kv_splits + split
        tl.store(partial_ptr + part[:, None] * 512 + columns, acc / total[:, None], mask=rows_valid[:, None])
        tl.store(lse_ptr + part, peak + tl.log2(total), mask=rows_valid)


@jit
def decode_bf16_kernel(
    q_ptr,  # bf16 [total_q, heads, 576]
    kv_ptr,  # bf16 [total_kv, 1, 576]
    kv_scale_ptr,  # unused
    qo_indptr_ptr,  # i32 [batch + 1]
    kv_indptr_ptr,  # i32 [batch + 1]
    out_ptr,  # bf16 [total_q, heads, 512], written if whole
    partial_ptr,  # fp32 [total_q, heads, num_kv_splits, 512], written otherwise
    lse_ptr,  # fp32 [total_q, heads, num_kv_splits]
    sm_scale,
    heads: tl.constexpr,
    kv_row_bytes: tl.constexpr,
    row_blocks: tl.constexpr,
    whole: tl.constexpr,  # num_kv_splits is 1
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    overlap: tl.constexpr,
    operand: tl.constexpr,  # bf16; fp32 under the interpreter, whose product of bf16 is wrong
):
    if overlap:
        tl.extra.cuda.gdc_launch_dependents()
    sequence = tl.program_id(0) // row_blocks
    split = tl.program_id(1)
    num_kv_splits = tl.num_programs(1)
    begin, end = split_range(kv_indptr_ptr, sequence, split, num_kv_splits, block_n)
    q_begin = tl.load(qo_indptr_ptr + sequence)
    q_end = tl.load(qo_indptr_ptr + sequence + 1)
    rows = tl.program_id(0) % row_blocks * block_m + tl.arange(0, block_m)
    rows_valid = rows < (q_end - q_begin) * heads

    q_row = q_ptr + (q_begin * heads + rows).to(tl.int64)[:, None] * 576
    q_latent = tl.load(q_row + tl.arange(0, 512)[None, :], mask=rows_valid[:, None], other=0.0).to(operand)
    q_rope = tl.load(q_row + 512 + tl.arange(0, 64)[None, :], mask=rows_valid[:, None], other=0.0).to(operand)
    score_scale = sm_scale * 1.4426950408889634  # log2(e)

    peak = tl.full((block_m,), -float("inf"), tl.float32)
    total = tl.zeros((block_m,), tl.float32)
    acc = tl.zeros((block_m, 512), tl.float32)
    for tile in range(begin, end, block_n):
        tokens = tile + tl.arange(0, block_n)
        # Rows past the end repeat the last one: finite unless the sequence is not, and their p is 0.
        kv_row = kv_ptr + tl.minimum(tokens, end - 1).to(tl.int64)[:, None] * (kv_row_bytes // 2)
        latent = tl.load(kv_row + tl.arange(0, 512)[None, :]).to(operand)
        rope = tl.load(kv_row + 512 + tl.arange(0, 64)[None, :]).to(operand)
        scores = tl.dot(q_rope, tl.trans(rope), tl.dot(q_latent, tl.trans(latent))) * score_scale
        p, rescale, peak, total = softmax_step(scores, tokens < end, peak, total)
        acc = tl.dot(p.to(operand), latent, acc * rescale[:, None])

    first_row = q_begin * heads
    store_rows(acc, peak, total, first_row, rows, rows_valid, split, num_kv_splits, out_ptr, partial_ptr, lse_ptr, whole)


@jit
def widen_low(words, convert: tl.constexpr):
    """e4m3 in the low bytes of u16 words -> f16, exactly: by "cvt" (sm_89 and later) the value, by "shift" the value times
    2^(fp8_bias - 15), subnormals included."""
    if convert == "cvt":
        return tl.inline_asm_elementwise(
            "{.reg .b32 t; .reg .b16 l, h; prmt.b32 t, $1, 0, 0x4420; mov.b32 {l, h}, t; cvt.rn.f16x2.e4m3x2 $0, l;}",
            "=r,r",
            [words],
            tl.float16,
            is_pure=True,
            pack=2,
        )
    return (((words & 0x80) << 8) | ((words & 0x7F) << 7)).to(tl.float16, bitcast=True)


@jit
def widen_high(words, convert: tl.constexpr):
    """As widen_low, for the high bytes."""
    if convert == "cvt":
        return tl.inline_asm_elementwise(
            "{.reg .b32 t; .reg .b16 l, h; prmt.b32 t, $1, 0, 0x4431; mov.b32 {l, h}, t; cvt.rn.f16x2.e4m3x2 $0, l;}",
            "=r,r",
            [words],
            tl.float16,
            is_pure=True,
            pack=2,
        )
    return ((words & 0x8000) | ((words & 0x7F00) >> 1)).to(tl.float16, bitcast=True)


@jit
def row_powers(largest):
    """The power of two at or below each |largest|, 1 for 0: dividing by it is exact and keeps q inside the range of f16."""
    power = (largest.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
    return tl.where(power == 0, 1.0, power)


@jit
def even_odd(x, rows: tl.constexpr, columns: tl.constexpr):
    """The even and the odd columns of [rows, columns], as f16."""
    return tl.split(tl.reshape(x.to(tl.float16), (rows, columns // 2, 2)))


@jit
def decode_fp8_kernel(
    q_ptr,  # bf16 [total_q, heads, 576]
    kv_ptr,  # e4m3 [total_kv, 1, 576]
    kv_scale_ptr,  # fp32 [1]
    qo_indptr_ptr,  # i32 [batch + 1]
    kv_indptr_ptr,  # i32 [batch + 1]
    out_ptr,  # bf16 [total_q, heads, 512], written if whole
    partial_ptr,  # fp32 [total_q, heads, num_kv_splits, 512], written otherwise
    lse_ptr,  # fp32 [total_q, heads, num_kv_splits]
    sm_scale,
    heads: tl.constexpr,
    kv_row_bytes: tl.constexpr,
    row_blocks: tl.constexpr,
    whole: tl.constexpr,  # num_kv_splits is 1
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    overlap: tl.constexpr,
    convert: tl.constexpr,
    fp8_bias: tl.constexpr,
):
    if overlap:
        tl.extra.cuda.gdc_launch_dependents()
    sequence = tl.program_id(0) // row_blocks
    split = tl.program_id(1)
    num_kv_splits = tl.num_programs(1)
    begin, end = split_range(kv_indptr_ptr, sequence, split, num_kv_splits, block_n)
    q_begin = tl.load(qo_indptr_ptr + sequence)
    q_end = tl.load(qo_indptr_ptr + sequence + 1)
    rows = tl.program_id(0) % row_blocks * block_m + tl.arange(0, block_m)
    rows_valid = rows < (q_end - q_begin) * heads

    q_row = q_ptr + (q_begin * heads + rows).to(tl.int64)[:, None] * 576
    q_latent = tl.load(q_row + tl.arange(0, 512)[None, :], mask=rows_valid[:, None], other=0.0).to(tl.float32)
    q_rope = tl.load(q_row + 512 + tl.arange(0, 64)[None, :], mask=rows_valid[:, None], other=0.0).to(tl.float32)
    powers = row_powers(tl.maximum(tl.max(tl.abs(q_latent), 1), tl.max(tl.abs(q_rope), 1)))
    q_even, q_odd = even_odd(q_latent / powers[:, None], block_m, 512)
    q_rope_even, q_rope_odd = even_odd(q_rope / powers[:, None], block_m, 64)
    kv_scale = tl.load(kv_scale_ptr)
    if convert == "shift":
        kv_scale *= 1 << (15 - fp8_bias)
    score_scale = powers * (sm_scale * 1.4426950408889634 * kv_scale)  # log2(e)

    peak = tl.full((block_m,), -float("inf"), tl.float32)
    total = tl.zeros((block_m,), tl.float32)
    acc_even = tl.zeros((block_m, 256), tl.float32)
    acc_odd = tl.zeros((block_m, 256), tl.float32)
    words_ptr = kv_ptr.to(tl.pointer_type(tl.uint16))
    for tile in range(begin, end, block_n):
        tokens = tile + tl.arange(0, block_n)
        # Rows past the end repeat the last one: finite unless the sequence is not, and their p is 0.
        kv_row = words_ptr + tl.minimum(tokens, end - 1).to(tl.int64)[:, None] * (kv_row_bytes // 2)
        words = tl.load(kv_row + tl.arange(0, 256)[None, :])
        rope_words = tl.load(kv_row + 256 + tl.arange(0, 32)[None, :])
        even = widen_low(words, convert)
        odd = widen_high(words, convert)
        scores = tl.dot(q_even, tl.trans(even))
        scores = tl.dot(q_odd, tl.trans(odd), scores)
        scores = tl.dot(q_rope_even, tl.trans(widen_low(rope_words, convert)), scores)
        scores = tl.dot(q_rope_odd, tl.trans(widen_high(rope_words, convert)), scores)
        p, rescale, peak, total = softmax_step(scores * score_scale[:, None], tokens < end, peak, total)
        p = p.to(tl.float16)
        acc_even = tl.dot(p, even, acc_even * rescale[:, None])
        acc_odd = tl.dot(p, odd, acc_odd * rescale[:, None])

    acc = tl.interleave(acc_even, acc_odd) * kv_scale
    first_row = q_begin * heads
    store_rows(acc, peak, total, first_row, rows, rows_valid, split, num_kv_splits, out_ptr, partial_ptr, lse_ptr, whole)


@jit
def combine_kernel(
    partial_ptr,  # fp32 [rows, num_kv_splits, 512]
    lse_ptr,  # fp32 [rows, num_kv_splits], base 2; -inf marks an empty split, whose part is undefined
    out_ptr,  # bf16 [rows, 512]
    num_kv_splits: tl.constexpr,
    padded_splits: tl.constexpr,  # the next power of two
    block_d: tl.constexpr,
    overlap: tl.constexpr,
):
    if overlap:
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * block_d + tl.arange(0, block_d)
    splits = tl.arange(0, padded_splits)
    lse = tl.load(lse_ptr + row * num_kv_splits + splits, mask=splits < num_kv_splits, other=-float("inf"))
    filled = lse != -float("inf")  # true for NaN, which must reach the output
    weights = tl.where(filled, tl.exp2(lse - tl.max(lse, 0)), 0.0)
    parts = partial_ptr + (row * num_kv_splits + splits)[:, None] * 512 + columns[None, :]
    part = tl.load(parts, mask=filled[:, None], other=0.0)
    total = tl.sum(weights, 0)
    result = tl.where(total == 0, 0.0, tl.sum(part * weights[:, None], 0) / total)
    tl.store(out_ptr + row * 512 + columns, result.to(tl.bfloat16))
