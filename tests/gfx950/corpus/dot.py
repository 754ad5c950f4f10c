"""Plain matrix products: every MFMA shape that Triton picks for gfx950, through direct, LDS and LDS-DMA operand paths."""

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from .case import Case, Expected, Problem, dot_bound


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, m, n, k, stride_ak, stride_am, stride_bk, stride_bn,
           BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a_at = a_ptr + rows[:, None] * stride_am + inner[None, :] * stride_ak
    b_at = b_ptr + inner[:, None] * stride_bk + columns[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=c_ptr.dtype.element_ty)
    for start in range(0, k, BLOCK_K):
        a = tl.load(a_at, mask=(rows[:, None] < m) & (inner[None, :] + start < k), other=0.0)
        b = tl.load(b_at, mask=(columns[None, :] < n) & (inner[:, None] + start < k), other=0.0)
        acc = tl.dot(a, b, acc, out_dtype=acc.dtype)
        a_at += BLOCK_K * stride_ak
        b_at += BLOCK_K * stride_bk
    c_at = c_ptr + rows[:, None] * n + columns[None, :]
    tl.store(c_at, acc, mask=(rows[:, None] < m) & (columns[None, :] < n))


def random_operand(rows: int, columns: int, dtype: torch.dtype, rng: torch.Generator) -> torch.Tensor:
    if dtype == torch.int8:
        return torch.randint(-128, 128, (rows, columns), generator=rng, dtype=torch.int8)
    return torch.randn(rows, columns, generator=rng, dtype=torch.float64).to(dtype)


def product(
    shape: tuple[int, int, int],
    block: tuple[int, int],
    a_dtype: torch.dtype,
    b_dtype: torch.dtype | None = None,
    *,
    a_transposed: bool = False,
    b_transposed: bool = False,
) -> Callable[[torch.Generator], Problem]:
    """C [m, n] = A [m, k] @ B [k, n]; a transposed operand is stored with its other dimension contiguous."""
    m, n, k = shape
    out = {torch.int8: torch.int32, torch.float64: torch.float64}.get(a_dtype, torch.float32)
    ulps = 2.0**-29 if a_dtype == torch.float64 else 1.0

    def make(rng: torch.Generator) -> Problem:
        a, b = random_operand(m, k, a_dtype, rng), random_operand(k, n, b_dtype or a_dtype, rng)
        arguments = {
            "a_ptr": a.T.contiguous() if a_transposed else a,
            "b_ptr": b.T.contiguous() if b_transposed else b,
            "c_ptr": torch.full((m, n), -7, dtype=out),
            "m": m, "n": n, "k": k,
            "stride_ak": m if a_transposed else 1, "stride_am": 1 if a_transposed else k,
            "stride_bk": 1 if b_transposed else n, "stride_bn": k if b_transposed else 1,
        }  # fmt: skip
        bound = 0.0 if out == torch.int32 else ulps * dot_bound(a, b, k)
        grid = (triton.cdiv(m, block[0]), triton.cdiv(n, block[1]), 1)
        return Problem(arguments, {"c_ptr": Expected(a.double() @ b.double(), bound)}, grid)

    return make


def case(name: str, shape: tuple[int, int, int], block: tuple[int, int, int], *dtypes: torch.dtype, pins: str,
         num_warps: int = 4, slow: bool = False, num_stages: int = 2, nonkdim: int = 0, **layout: bool) -> Case:  # fmt: skip
    constants = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), block, strict=True))
    options = {"num_stages": num_stages, "matrix_instr_nonkdim": nonkdim}
    return Case(name, matmul, product(shape, block[:2], *dtypes, **layout), constants, num_warps, options, pins, slow)


BF16, FP16, FP32, FP64, INT8 = torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int8
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
OUT16, OUT32 = "16x16 output rows 4*(l/16)+r", "32x32 output rows 8*(r/4)+4*(l/32)+r%4"

CASES = [
    case("dot-bf16-16x16", (16, 16, 64), (16, 16, 32), BF16, num_warps=1, nonkdim=16, pins=f"16x16x32 bf16 k order; {OUT16}"),
    case("dot-bf16-32x32", (64, 32, 128), (32, 32, 64), BF16, num_warps=1, nonkdim=32, pins=f"32x32x16 bf16 k order; {OUT32}"),
    case("dot-bf16-ragged", (50, 70, 90), (64, 64, 32), BF16, pins="masked loads, buffer ranges, K tail"),
    case("dot-bf16-2warps", (64, 64, 128), (64, 32, 64), BF16, num_warps=2, slow=True, pins="2 waves"),
    case("dot-bf16-8warps", (128, 128, 128), (128, 128, 64), BF16, num_warps=8, num_stages=3, pins="8 waves, 3 stages"),
    case("dot-bf16-1stage", (64, 64, 128), (64, 64, 64), BF16, num_stages=1, slow=True, pins="LDS without a pipeline"),
    case("dot-bf16-tr", (64, 64, 128), (64, 64, 64), BF16, a_transposed=True, nonkdim=16, pins="ds_read_b64_tr_b16"),
    case("dot-bf16-tr32", (64, 64, 64), (64, 64, 64), BF16, a_transposed=True, b_transposed=True, nonkdim=32, slow=True,
         pins="ds_read_b64_tr_b16 feeding 32x32x16"),
    case("dot-fp16", (64, 64, 96), (64, 64, 32), FP16, pins="f16 MFMA"),
    case("dot-fp16-small", (16, 16, 16), (16, 16, 16), FP16, num_warps=1, slow=True, pins="16x16x16 f16 MFMA"),
    case("dot-e4m3", (64, 64, 256), (64, 64, 128), E4M3, nonkdim=16, pins="fp8 MFMA 16x16, two-chunk k order"),
    case("dot-e4m3-32x32", (64, 64, 128), (64, 64, 64), E4M3, nonkdim=32, pins=f"fp8 MFMA 32x32; {OUT32}"),
    case("dot-e4m3-k32", (32, 32, 64), (32, 32, 32), E4M3, num_warps=1, slow=True, pins="fp8 MFMA with k = 32"),
    case("dot-e4m3-tr", (64, 64, 128), (64, 64, 128), E4M3, a_transposed=True, nonkdim=16, pins="ds_read_b64_tr_b8"),
    case("dot-e5m2", (64, 64, 128), (64, 64, 128), E5M2, slow=True, pins="bf8 decoding"),
    case("dot-e4m3-e5m2", (64, 64, 128), (64, 64, 64), E4M3, E5M2, pins="fp8 x bf8 format codes"),
    case("dot-e5m2-e4m3", (64, 64, 128), (64, 64, 64), E5M2, E4M3, slow=True, pins="bf8 x fp8 format codes"),
    case("dot-int8", (64, 64, 128), (64, 64, 64), INT8, nonkdim=16, pins="i32 16x16x64 i8 k order"),
    case("dot-int8-32x32", (64, 64, 64), (64, 64, 32), INT8, nonkdim=32, slow=True, pins="i32 32x32x32 i8 k order"),
    case("dot-fp32", (32, 32, 32), (32, 32, 16), FP32, pins="f32 MFMA, no tf32"),
    case("dot-fp64", (16, 16, 32), (16, 16, 16), FP64, num_warps=1, slow=True, pins="f64 arithmetic"),
]  # fmt: skip
