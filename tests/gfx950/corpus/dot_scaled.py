"""Block-scaled matrix products (OCP MX): every pair of fp8, fp4 and bf16 operands, with random, non-uniform scales.

Uniform scales or equal formats on both sides would hide a wrong k order, because the same permutation of both operands
leaves the product unchanged; mixed formats with scales that differ from block to block do not.
"""

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from .case import Case, Expected, Problem, dot_bound

MX_BLOCK = 32  # elements that share one E8M0 scale
FP4_E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)
TORCH_TYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "bf16": torch.bfloat16, "fp16": torch.float16}


@triton.jit
def scaled_matmul(a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, c_ptr, k, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr,
                  A_FORMAT: tl.constexpr, B_FORMAT: tl.constexpr):  # fmt: skip
    A_PACK: tl.constexpr = 2 if A_FORMAT == "e2m1" else 1
    B_PACK: tl.constexpr = 2 if B_FORMAT == "e2m1" else 1
    rows, columns, blocks = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK_K // 32)
    a_at = a_ptr + rows[:, None] * (k // A_PACK) + tl.arange(0, BLOCK_K // A_PACK)[None, :]
    b_at = b_ptr + tl.arange(0, BLOCK_K // B_PACK)[:, None] + columns[None, :] * (k // B_PACK)
    a_scale_at = a_scale_ptr + rows[:, None] * (k // 32) + blocks[None, :]
    b_scale_at = b_scale_ptr + columns[:, None] * (k // 32) + blocks[None, :]
    acc = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        a, b = tl.load(a_at), tl.load(b_at)
        if A_FORMAT == "bf16":
            acc = tl.dot_scaled(a, None, A_FORMAT, b, tl.load(b_scale_at + start // 32), B_FORMAT, acc)
        elif B_FORMAT == "bf16":
            acc = tl.dot_scaled(a, tl.load(a_scale_at + start // 32), A_FORMAT, b, None, B_FORMAT, acc)
        else:
            a_scale, b_scale = tl.load(a_scale_at + start // 32), tl.load(b_scale_at + start // 32)
            acc = tl.dot_scaled(a, a_scale, A_FORMAT, b, b_scale, B_FORMAT, acc)
        a_at += BLOCK_K // A_PACK
        b_at += BLOCK_K // B_PACK
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc)


def random_values(rows: int, k: int, name: str, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Stored elements [rows, k or k/2] and their values [rows, k] fp64; fp4 packs two elements a byte, the even one low."""
    if name != "e2m1":
        stored = torch.randn(rows, k, generator=rng, dtype=torch.float64).to(TORCH_TYPES[name])
        return stored, stored.double()
    codes = torch.randint(0, 16, (rows, k), generator=rng, dtype=torch.uint8)
    return codes[:, 0::2] | codes[:, 1::2] << 4, FP4_E2M1[codes.long()]


def random_scales(rows: int, k: int, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """E8M0 bytes [rows, k/32], 2^-6 to 2^6, and the factors [rows, k] fp64."""
    scale = torch.randint(121, 134, (rows, k // MX_BLOCK), generator=rng, dtype=torch.uint8)
    return scale, torch.exp2(scale.double() - 127).repeat_interleave(MX_BLOCK, dim=1)


def scaled_product(m: int, n: int, k: int, a_format: str, b_format: str) -> Callable[[torch.Generator], Problem]:
    """C [m, n] fp32 = (A * A_scale) [m, k] @ (B * B_scale) [n, k]^T; a bf16 operand carries no scale."""

    def make(rng: torch.Generator) -> Problem:
        (a, a_value), (b, b_value) = random_values(m, k, a_format, rng), random_values(n, k, b_format, rng)
        (a_scale, a_factor), (b_scale, b_factor) = random_scales(m, k, rng), random_scales(n, k, rng)
        a_value = a_value if a_format == "bf16" else a_value * a_factor
        b_value = b_value if b_format == "bf16" else b_value * b_factor
        arguments = {"a_ptr": a, "a_scale_ptr": a_scale, "b_ptr": b, "b_scale_ptr": b_scale,
                     "c_ptr": torch.full((m, n), -7.0), "k": k}  # fmt: skip
        return Problem(arguments, {"c_ptr": Expected(a_value @ b_value.T, dot_bound(a_value, b_value.T, k))})

    return make


def case(a_format: str, b_format: str, shape: tuple[int, int, int] = (64, 64, 512), block_k: int = 256, *,
         num_warps: int = 4, nonkdim: int = 0, slow: bool = False, pins: str) -> Case:  # fmt: skip
    m, n, k = shape
    constants = {"M": m, "N": n, "BLOCK_K": block_k, "A_FORMAT": a_format, "B_FORMAT": b_format}
    name = f"scaled-{a_format}-{b_format}-{m}x{n}-{num_warps}warps" + (f"-mfma{nonkdim}" if nonkdim else "")
    options = {"matrix_instr_nonkdim": nonkdim}
    return Case(name, scaled_matmul, scaled_product(m, n, k, a_format, b_format), constants, num_warps, options, pins, slow)


FORMATS = ("e4m3", "e5m2", "e2m1")
FAST = {("e4m3", "e2m1"), ("e2m1", "e5m2")}
SCALES = "scale byte of the lane group, op_sel bytes 0 to 3"
SMALL = (32, 32, 128)
CONVERTED = "v_cvt_scalef32 to bf16 with block scales"  # one wave: Triton converts both operands instead of scaling in the MFMA

CASES = [
    *(case(a, b, nonkdim=nonkdim, slow=(a, b) not in FAST, pins=f"fp8 two-chunk and fp4 k order, {nonkdim} rows; {SCALES}")
      for nonkdim in (16, 32) for a in FORMATS for b in FORMATS),
    case("bf16", "e2m1", SMALL, 128, num_warps=1, pins=CONVERTED),
    case("e4m3", "e5m2", SMALL, 128, num_warps=1, pins=CONVERTED),
    *(case(a, b, SMALL, 128, num_warps=1, slow=True, pins=CONVERTED)
      for a, b in [("bf16", "e4m3"), ("bf16", "e5m2"), ("e2m1", "bf16"), ("e4m3", "bf16"), ("e5m2", "bf16"), ("e5m2", "e2m1")]),
    case("e4m3", "e2m1", (128, 128, 256), 128, slow=True, pins="several tiles of one wave share a scale register"),
    case("e5m2", "e2m1", (64, 128, 256), 128, num_warps=8, slow=True, pins="8 waves"),
    case("e2m1", "e4m3", (64, 64, 256), 128, num_warps=2, nonkdim=16, slow=True, pins="2 waves"),
]  # fmt: skip
