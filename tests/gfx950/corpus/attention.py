"""Attention: flash attention, and split-KV MLA decode over a paged cache with a second stage that combines the splits."""

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from .case import Case, Expected, Problem

LOG2_E = 1.4426950408889634


@triton.jit
def flash_attention(q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, tokens, scale_log2,
                    CAUSAL: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):  # fmt: skip
    head = tl.program_id(1) * tokens
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    keys, dims = tl.arange(0, BLOCK_N), tl.arange(0, HEAD_DIM)
    q_at = (head + rows)[:, None] * HEAD_DIM + dims[None, :]
    q = tl.load(q_ptr + q_at, mask=rows[:, None] < tokens, other=0.0)
    largest = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, HEAD_DIM), tl.float32)
    end = tl.minimum(tokens, (tl.program_id(0) + 1) * BLOCK_M) if CAUSAL else tokens
    for start in range(0, end, BLOCK_N):
        at = (head + start + keys)[:, None] * HEAD_DIM + dims[None, :]
        inside = (start + keys)[:, None] < tokens
        k = tl.load(k_ptr + at, mask=inside, other=0.0)
        score = tl.dot(q, tl.trans(k)) * scale_log2
        visible = (start + keys)[None, :] < tokens
        if CAUSAL:
            visible = visible & (rows[:, None] >= (start + keys)[None, :])
        score = tl.where(visible, score, -float("inf"))
        new_largest = tl.maximum(largest, tl.max(score, 1))
        p = tl.exp2(score - new_largest[:, None])
        rescale = tl.exp2(largest - new_largest)
        total = total * rescale + tl.sum(p, 1)
        v = tl.load(v_ptr + at, mask=inside, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None])
        largest = new_largest
    tl.store(o_ptr + q_at, acc / total[:, None], mask=rows[:, None] < tokens)
    tl.store(lse_ptr + head + rows, largest + tl.log2(total), mask=rows < tokens)


@triton.jit
def mla_decode_split(q_ptr, kv_ptr, page_ptr, length_ptr, o_ptr, lse_ptr, max_pages, scale_log2, NUM_SPLITS: tl.constexpr,
                     PAGE_SIZE: tl.constexpr, HEADS: tl.constexpr, LATENT: tl.constexpr, ROPE: tl.constexpr,
                     BLOCK_N: tl.constexpr):  # fmt: skip
    batch, split = tl.program_id(0), tl.program_id(1)
    length = tl.load(length_ptr + batch)
    per_split = tl.cdiv(tl.cdiv(length, BLOCK_N), NUM_SPLITS) * BLOCK_N
    first, last = split * per_split, tl.minimum(length, (split + 1) * per_split)
    heads, tokens = tl.arange(0, HEADS), tl.arange(0, BLOCK_N)
    latent, rope = tl.arange(0, LATENT), LATENT + tl.arange(0, ROPE)
    q_at = q_ptr + (batch * HEADS + heads)[:, None] * (LATENT + ROPE)
    q_latent, q_rope = tl.load(q_at + latent[None, :]), tl.load(q_at + rope[None, :])
    largest = tl.full((HEADS,), -float("inf"), tl.float32)
    total = tl.zeros((HEADS,), tl.float32)
    acc = tl.zeros((HEADS, LATENT), tl.float32)
    for start in range(first, last, BLOCK_N):
        token = start + tokens
        inside = token < last
        page = tl.load(page_ptr + batch * max_pages + token // PAGE_SIZE, mask=inside, other=0)
        row = kv_ptr + (page * PAGE_SIZE + token % PAGE_SIZE)[:, None] * (LATENT + ROPE)
        c = tl.load(row + latent[None, :], mask=inside[:, None], other=0.0)
        k_rope = tl.load(row + rope[None, :], mask=inside[:, None], other=0.0)
        score = tl.dot(q_rope, tl.trans(k_rope), tl.dot(q_latent, tl.trans(c))) * scale_log2
        score = tl.where(inside[None, :], score, -float("inf"))
        new_largest = tl.maximum(largest, tl.max(score, 1))
        p = tl.exp2(score - new_largest[:, None])
        rescale = tl.exp2(largest - new_largest)
        total = total * rescale + tl.sum(p, 1)
        acc = tl.dot(p.to(c.dtype), c, acc * rescale[:, None])
        largest = new_largest
    out = (batch * NUM_SPLITS + split) * HEADS + heads
    tl.store(o_ptr + out[:, None] * LATENT + latent[None, :], tl.where(total[:, None] > 0, acc / total[:, None], 0.0))
    tl.store(lse_ptr + out, tl.where(total > 0, largest + tl.log2(total), -float("inf")))


@triton.jit
def combine_splits(partial_ptr, lse_ptr, o_ptr, NUM_SPLITS: tl.constexpr, HEADS: tl.constexpr, LATENT: tl.constexpr):
    batch, head = tl.program_id(0), tl.program_id(1)
    latent = tl.arange(0, LATENT)
    largest = tl.load(lse_ptr + batch * NUM_SPLITS * HEADS + head)
    for split in tl.static_range(1, NUM_SPLITS):
        largest = tl.maximum(largest, tl.load(lse_ptr + (batch * NUM_SPLITS + split) * HEADS + head))
    acc = tl.zeros((LATENT,), tl.float32)
    total = 0.0
    for split in range(NUM_SPLITS):
        at = (batch * NUM_SPLITS + split) * HEADS + head
        weight = tl.exp2(tl.load(lse_ptr + at) - largest)
        acc += weight * tl.load(partial_ptr + at * LATENT + latent)
        total += weight
    tl.store(o_ptr + (batch * HEADS + head) * LATENT + latent, (acc / total).to(o_ptr.dtype.element_ty))


def rounding_of_p(p: torch.Tensor, v: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Bound of the error that rounding the unnormalised weights (<= 1) to `dtype` leaves in p @ v, p normalised fp64.

    Half an ulp relative (2^-8 bf16, 2^-4 e4m3) plus half the smallest e4m3 number where weights underflow, twice for the
    score's own rounding; `v` is the magnitude of the values.
    """
    relative, absolute = {torch.bfloat16: (2.0**-8, 0.0), torch.float8_e4m3fn: (2.0**-4, 2.0**-10)}[dtype]
    return 1.5 * (relative * (p @ v) + absolute * v.sum(-2, keepdim=True))


def flash_problem(heads: int, tokens: int, dim: int, causal: bool, dtype: torch.dtype, block: int) -> Callable:
    def make(rng: torch.Generator) -> Problem:
        q, k, v = (torch.randn(heads, tokens, dim, generator=rng).to(dtype) for _ in range(3))
        score = q.double() @ k.double().mT / dim**0.5
        if causal:
            score = score.masked_fill(torch.ones(tokens, tokens).triu(1).bool(), -torch.inf)
        p = score.softmax(-1)
        bound = rounding_of_p(p, v.double().abs(), dtype)
        arguments = {"q_ptr": q, "k_ptr": k, "v_ptr": v, "o_ptr": torch.full((heads, tokens, dim), -7.0),
                     "lse_ptr": torch.full((heads, tokens), -7.0), "tokens": tokens,
                     "scale_log2": LOG2_E / dim**0.5}  # fmt: skip
        lse = score.logsumexp(-1) * LOG2_E
        expected = {"o_ptr": Expected(p @ v.double(), bound), "lse_ptr": Expected(lse, 1e-4)}
        return Problem(arguments, expected, (triton.cdiv(tokens, block), heads, 1))

    return make


LATENT, ROPE, HEADS, PAGE_SIZE, NUM_SPLITS = 128, 32, 16, 8, 4
LENGTHS = (100, 7, 256)


def paged_cache(rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """kv [pages, PAGE_SIZE, LATENT + ROPE] bf16, NaN where unused; shuffled pages [batch, max_pages], lengths [batch] int32."""
    max_pages = max(LENGTHS) // PAGE_SIZE
    pages = torch.randperm(len(LENGTHS) * max_pages, generator=rng).reshape(len(LENGTHS), max_pages).to(torch.int32)
    kv = torch.full((pages.numel(), PAGE_SIZE, LATENT + ROPE), torch.nan)
    for sequence, length in enumerate(LENGTHS):
        token = torch.arange(length)
        kv[pages[sequence, token // PAGE_SIZE].long(), token % PAGE_SIZE] = torch.randn(length, LATENT + ROPE, generator=rng)
    return kv.bfloat16(), pages, torch.tensor(LENGTHS, dtype=torch.int32)


def sequence_rows(kv: torch.Tensor, pages: torch.Tensor, sequence: int) -> torch.Tensor:
    token = torch.arange(LENGTHS[sequence])
    return kv[pages[sequence, token // PAGE_SIZE].long(), token % PAGE_SIZE].double()


def split_oracle(q: torch.Tensor, rows: torch.Tensor, block: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Partial outputs [NUM_SPLITS, HEADS, LATENT], base-2 lse [NUM_SPLITS, HEADS] and bounds, one sequence, fp64."""
    per_split = triton.cdiv(triton.cdiv(len(rows), block), NUM_SPLITS) * block
    out = torch.zeros(NUM_SPLITS, HEADS, LATENT, dtype=torch.float64)
    lse, bound = torch.full((NUM_SPLITS, HEADS), -torch.inf, dtype=torch.float64), torch.zeros_like(out)
    for split, part in enumerate(rows.split(per_split)):
        score = q.double() @ part.T / (LATENT + ROPE) ** 0.5
        p, value = score.softmax(-1), part[:, :LATENT]
        out[split], lse[split] = p @ value, score.logsumexp(-1) * LOG2_E
        bound[split] = rounding_of_p(p, value.abs(), torch.bfloat16)
    return out, lse, bound


def decode_problem(block: int) -> Callable[[torch.Generator], Problem]:
    def make(rng: torch.Generator) -> Problem:
        kv, pages, lengths = paged_cache(rng)
        q = torch.randn(len(LENGTHS), HEADS, LATENT + ROPE, generator=rng).bfloat16()
        parts = [split_oracle(q[s], sequence_rows(kv, pages, s), block) for s in range(len(LENGTHS))]
        out, lse, bound = (torch.stack(column) for column in zip(*parts, strict=True))
        arguments = {
            "q_ptr": q, "kv_ptr": kv, "page_ptr": pages, "length_ptr": lengths, "max_pages": pages.shape[1],
            "o_ptr": torch.full(out.shape, -7.0), "lse_ptr": torch.full(lse.shape, -7.0),
            "scale_log2": LOG2_E / (LATENT + ROPE) ** 0.5,
        }  # fmt: skip
        expected = {"o_ptr": Expected(out, bound), "lse_ptr": Expected(lse, 1e-4)}
        return Problem(arguments, expected, (len(LENGTHS), NUM_SPLITS, 1))

    return make


def combine_problem(rng: torch.Generator) -> Problem:
    partial = torch.randn(2, NUM_SPLITS, HEADS, LATENT, generator=rng)
    lse = 3 * torch.randn(2, NUM_SPLITS, HEADS, generator=rng)
    lse[0, 2], partial[0, 2] = -torch.inf, 0.0  # an empty split
    weight = (lse.double() / LOG2_E).softmax(1)[..., None]
    value, size = (weight * partial.double()).sum(1), (weight * partial.double().abs()).sum(1)
    arguments = {"partial_ptr": partial, "lse_ptr": lse, "o_ptr": torch.full(value.shape, -7.0, dtype=torch.bfloat16)}
    bound = 2.0**-8 * value.abs() + 64 * 2.0**-24 * size  # bf16 output; exp2 of a rounded difference, NUM_SPLITS additions
    return Problem(arguments, {"o_ptr": Expected(value, bound)}, (2, HEADS, 1))


def flash(name: str, tokens: int, dim: int, causal: bool, dtype: torch.dtype, num_warps: int, block: tuple[int, int],
          slow: bool = False, **options: int) -> Case:  # fmt: skip
    constants = {"CAUSAL": causal, "HEAD_DIM": dim, "BLOCK_M": block[0], "BLOCK_N": block[1]}
    problem = flash_problem(2, tokens, dim, causal, dtype, block[0])
    return Case(f"flash-{name}", flash_attention, problem, constants, num_warps, options, "MFMA to MFMA layout, rescale", slow)


BF16, E4M3 = torch.bfloat16, torch.float8_e4m3fn
DECODE = {"NUM_SPLITS": NUM_SPLITS, "PAGE_SIZE": PAGE_SIZE, "HEADS": HEADS, "LATENT": LATENT, "ROPE": ROPE, "BLOCK_N": 32}
COMBINE = {"NUM_SPLITS": NUM_SPLITS, "HEADS": HEADS, "LATENT": LATENT}

CASES = [
    flash("bf16-causal", 100, 64, True, BF16, 4, (64, 32)),
    flash("bf16-full", 96, 64, False, BF16, 4, (64, 32), slow=True, num_stages=1),
    flash("bf16-d128", 80, 128, True, BF16, 8, (128, 64), slow=True),
    flash("bf16-16x16", 64, 64, False, BF16, 2, (32, 32), slow=True, matrix_instr_nonkdim=16),
    flash("fp8-full", 64, 64, False, E4M3, 4, (64, 64), slow=True),
    Case("mla-decode-split", mla_decode_split, decode_problem(32), DECODE, 4, pins="paged loads, split-KV, empty splits"),
    Case("mla-decode-split-1stage", mla_decode_split, decode_problem(32), DECODE, 2, {"num_stages": 1}, "2 waves", slow=True),
    Case("mla-combine", combine_splits, combine_problem, COMBINE, 2, pins="second stage: weights from lse, an empty split"),
]  # fmt: skip
