"""Further production kernels of AITER: bf16 and MXFP4 matrix products, paged attention, flash attention."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gfx950.emulator import Buffer

from .aiter_wheel import THREADS, arguments, code_object, read_only
from .case import Expected, Problem, dot_bound
from .dot_scaled import random_scales, random_values
from .running import Prepared

BF16_ROUNDING = 2.0**-8


@dataclass(frozen=True)
class OtherCase:
    """An object, how to prepare a launch of it, and the findings that AITER's habits earn it (none for most)."""

    path: str
    make: Any  # () -> Prepared
    findings: frozenset[str] = frozenset()


def prepared(path: str, slots: dict[int, Any], expected: dict[str, Expected], grid: tuple[int, int, int],
             block: int = THREADS) -> Prepared:  # fmt: skip
    code = code_object(path)
    args = arguments(code.kernel(), slots)
    names = tuple(arg.name if isinstance(arg, Buffer) else "" for arg in args)
    return Prepared(code, Problem({}, expected, grid), names, tuple(args), block)


def gemm_slots(m: int, n: int, k: int, output: torch.Tensor, a: torch.Tensor, b: torch.Tensor,
               strides: tuple[int, int, int]) -> dict[int, Any]:  # fmt: skip
    """KernelArgs of the GEMMs: D, C, A, B, alpha, beta, then strides of C, A and B, sizes."""
    return {
        0: Buffer(output, "d"), 32: read_only(a, "a"), 48: read_only(b, "b"), 64: np.float32(1), 80: np.float32(0),
        128: strides[0], 160: strides[1], 192: strides[2], 224: m, 240: n, 256: k,
    }  # fmt: skip


def bf16_gemm() -> Prepared:
    """D [m, n] fp32 = A [m, k] @ B [n, k]^T, bf16; strides in bytes."""
    m, n, k = 128, 128, 256
    rng = torch.Generator().manual_seed(1)
    a, b = torch.randn(m, k, generator=rng).bfloat16(), torch.randn(n, k, generator=rng).bfloat16()
    slots = gemm_slots(m, n, k, torch.zeros(m, n), a, b, (4 * n, 2 * k, 2 * k))
    expected = Expected(a.double() @ b.double().T, dot_bound(a, b.T, k))
    return prepared("bf16gemm/bf16gemm_outf32_tn_64x64_pf3.co", {**slots, 272: 1}, {"d": expected}, (n // 64, m // 64, 1))


def tiled_scales(scale: torch.Tensor) -> torch.Tensor:
    """E8M0 scales [rows, k/32] in AITER's order: tiles of 32 rows x 8 blocks, the four bytes of a word being two row halves of
    two block halves, so that op_sel walks through them."""
    rows, blocks = scale.shape
    tiles = scale.reshape(rows // 32, 2, 16, blocks // 8, 2, 4)
    return tiles.permute(0, 3, 5, 2, 4, 1).reshape(rows, blocks).contiguous()


def preshuffled(weight: torch.Tensor) -> torch.Tensor:
    """fp4 weights [n, k/2] in AITER's order: tiles of 16 rows x 32 bytes, each as two runs of 16 bytes for all 16 rows."""
    n, size = weight.shape
    return weight.reshape(n // 16, 16, size // 32, 2, 16).permute(0, 2, 3, 1, 4).reshape(n, size).contiguous()


def fp4_gemm(name: str, tile: tuple[int, int], shuffled: bool) -> Prepared:
    """D [m, n] bf16 = (A * scales) @ (B * scales)^T, both MXFP4; strides in elements, scale strides in bytes."""
    m, n, k = 256, 512, 512
    rng = torch.Generator().manual_seed(1)
    (a, a_value), (b, b_value) = random_values(m, k, "e2m1", rng), random_values(n, k, "e2m1", rng)
    (a_scale, a_factor), (b_scale, b_factor) = random_scales(m, k, rng), random_scales(n, k, rng)
    left, right = a_value * a_factor, (b_value * b_factor).T
    value = left @ right
    output = torch.zeros(m, n, dtype=torch.bfloat16)
    slots = gemm_slots(m, n, k, output, a, preshuffled(b) if shuffled else b, (n, k, k))
    slots |= {272: read_only(tiled_scales(a_scale), "a_scale"), 288: read_only(tiled_scales(b_scale), "b_scale"),
              304: k // 32, 336: k // 32}  # fmt: skip
    expected = Expected(value, dot_bound(left, right, k) + BF16_ROUNDING * value.abs())
    return prepared(f"f4gemm/{name}.co", slots, {"d": expected}, (n // tile[1], m // tile[0], 1))


def paged_attention(name: str, dtype: torch.dtype, gqa: int) -> Prepared:
    """One query token a sequence; K [blocks, heads, dim/8, 16, 8], V [blocks, heads, 2, dim, 8]; shuffled block table."""
    lengths, kv_heads, dim, block = (100, 33, 300), 2, 128, 16
    rng = torch.Generator().manual_seed(1)
    per_sequence = -(-max(lengths) // block)
    table = torch.randperm(len(lengths) * per_sequence, generator=rng).reshape(len(lengths), per_sequence)
    k, v = (torch.randn(table.numel(), kv_heads, block, dim, generator=rng).to(dtype) for _ in range(2))
    q = torch.randn(len(lengths), kv_heads * gqa, dim, generator=rng).to(dtype)
    k_paged = k.reshape(-1, kv_heads, block, dim // 8, 8).permute(0, 1, 3, 2, 4).contiguous()
    v_paged = v.reshape(-1, kv_heads, block // 8, 8, dim).permute(0, 1, 2, 4, 3).contiguous()
    slots = {
        0: Buffer(torch.zeros_like(q), "o"), 16: read_only(q, "q"), 32: read_only(k_paged, "k"), 48: read_only(v_paged, "v"),
        64: read_only(table.to(torch.int32), "block_table"), 80: read_only(torch.tensor(lengths, dtype=torch.int32), "lengths"),
        128: np.float32(math.log2(math.e) / dim**0.5), 144: per_sequence, 160: kv_heads, 176: 2 * q.stride(0),
        192: 2 * k_paged.stride(0), 208: 2 * k_paged.stride(1), 224: gqa,
    }  # fmt: skip
    out, bound = zip(*(attend(q[i].reshape(kv_heads, gqa, dim), k, v, table[i], n) for i, n in enumerate(lengths)), strict=True)
    expected = Expected(torch.stack(out).reshape(q.shape), torch.stack(bound).reshape(q.shape))
    return prepared(f"pa/{name}.co", slots, {"o": expected}, (kv_heads, len(lengths), 1))


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, blocks: torch.Tensor,
           length: int) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Output [kv_heads, gqa, dim] fp64 of one sequence, and the bound that rounding P and the output leaves."""
    rows = [x[blocks].double().transpose(0, 1).flatten(1, 2)[:, :length] for x in (k, v)]
    p = (q.double() @ rows[0].mT / q.shape[-1] ** 0.5).softmax(-1)
    value, half_ulp = p @ rows[1], 2.0**-8 if q.dtype == torch.bfloat16 else 2.0**-11
    return value, 1.5 * half_ulp * (p @ rows[1].abs()) + half_ulp * value.abs()


def flash_attention() -> Prepared:
    """o [tokens, heads, 128] bf16 and natural-log lse [heads, tokens] fp32 of one sequence; two query heads share a KV head."""
    tokens, heads, dim, tile = 300, 2, 128, 256
    rng = torch.Generator().manual_seed(1)
    q = torch.randn(tokens, heads, dim, generator=rng).bfloat16()
    k, v = (torch.randn(tokens, 1, dim, generator=rng).bfloat16() for _ in range(2))
    row, kv_row = 2 * heads * dim, 2 * dim
    slots = {
        0: Buffer(torch.zeros_like(q), "o"), 16: read_only(q, "q"), 32: read_only(k, "k"), 48: read_only(v, "v"),
        64: Buffer(torch.zeros(heads, tokens), "lse"), 80: np.float32(dim**-0.5), 96: tokens, 112: row, 128: tile * row,
        144: 2 * dim, 160: tokens * row, 176: heads, 192: kv_row, 208: 2 * dim, 224: tokens * kv_row, 256: 1, 272: tokens,
        288: dim, 304: dim, 320: heads, 336: kv_row, 352: 2 * dim, 368: tokens * kv_row, 384: row, 400: 2 * dim,
        416: tokens * row, 464: 4 * tokens,
    }  # fmt: skip
    score = torch.einsum("qhd,td->hqt", q.double(), k[:, 0].double()) * dim**-0.5
    p, values = score.softmax(-1), v[:, 0].double()
    value = (p @ values).transpose(0, 1)
    bound = 1.5 * BF16_ROUNDING * (p @ values.abs()).transpose(0, 1) + BF16_ROUNDING * value.abs()
    expected = {"o": Expected(value, bound), "lse": Expected(score.logsumexp(-1), 1e-5)}
    return prepared("fmha_v3_fwd/fwd_hd128_bf16.co", slots, expected, (-(-tokens // tile), heads, 1), block=512)


# The page indices of tiles behind the end are read before the wait that covers them; nothing depends on them.
EARLY_INDICES = frozenset({"in-flight-read"})
# One wait state between two lane swaps, where the table asks for two.
CLOSE_SWAPS = frozenset({"hazard"})
FP4 = "f4gemm_bf16_per1x32Fp4"

CASES = [
    OtherCase("bf16gemm/bf16gemm_outf32_tn_64x64_pf3.co", bf16_gemm),
    *(OtherCase(f"f4gemm/{name}.co", lambda name=name, tile=tile, shuffled=shuffled: fp4_gemm(name, tile, shuffled))
      for name, tile, shuffled in [(f"{FP4}_noBpreShuffle_256x256", (256, 256), False),
                                   (f"{FP4}_BpreShuffle_128x128", (128, 128), True),
                                   (f"{FP4}_BpreShuffle_128x512", (128, 512), True)]),
    *(OtherCase(f"pa/{name}.co", lambda name=name, dtype=dtype, gqa=gqa: paged_attention(name, dtype, gqa), EARLY_INDICES)
      for name, dtype, gqa in [("pa_bf16_noquant_gqa16_1tg_4w", torch.bfloat16, 16),
                               ("pa_fp16_noquant_gqa8_1tg_4w", torch.float16, 8)]),
    OtherCase("fmha_v3_fwd/fwd_hd128_bf16.co", flash_attention, CLOSE_SWAPS),
]  # fmt: skip
