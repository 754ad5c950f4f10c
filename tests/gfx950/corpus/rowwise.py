"""Reductions, scans and normalisations: lane permutes, DPP, partial EXEC masks, and LDS traffic between waves."""

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from .case import Case, Expected, Problem

FP32_EPS = 2.0**-24
BF16_EPS = 2.0**-8


@triton.jit
def load_tile(x_ptr, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, other):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_N)
    at = rows[:, None] * n + columns[None, :]
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    return tl.load(x_ptr + at, mask=mask, other=other), at, mask


@triton.jit
def softmax(x_ptr, y_ptr, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    x, at, mask = load_tile(x_ptr, m, n, BLOCK_M, BLOCK_N, -float("inf"))
    x = x.to(tl.float32)
    p = tl.exp(x - tl.max(x, axis=1)[:, None])
    tl.store(y_ptr + at, (p / tl.sum(p, axis=1)[:, None]).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def layer_norm(x_ptr, weight_ptr, bias_ptr, y_ptr, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    x, at, mask = load_tile(x_ptr, m, n, BLOCK_M, BLOCK_N, 0.0)
    x = x.to(tl.float32)
    mean = tl.sum(x, axis=1) / n
    centred = tl.where(mask, x - mean[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=1) / n + 1e-5)
    columns = tl.arange(0, BLOCK_N)
    weight = tl.load(weight_ptr + columns, mask=columns < n).to(tl.float32)
    bias = tl.load(bias_ptr + columns, mask=columns < n).to(tl.float32)
    y = centred * scale[:, None] * weight[None, :] + bias[None, :]
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def reduce(x_ptr, y_ptr, m, n, OP: tl.constexpr, AXIS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    x, _, _ = load_tile(x_ptr, m, n, BLOCK_M, BLOCK_N, 0)
    if OP == "sum":
        y = tl.sum(x, axis=AXIS)
    elif OP == "max":
        y = tl.max(x, axis=AXIS)
    elif OP == "min":
        y = tl.min(x, axis=AXIS)
    elif OP == "argmax":
        y = tl.argmax(x, axis=AXIS)
    elif OP == "argmin":
        y = tl.argmin(x, axis=AXIS)
    else:
        y = tl.xor_sum(x, axis=AXIS)
    tl.store(y_ptr + tl.arange(0, BLOCK_N if AXIS == 0 else BLOCK_M), y)


@triton.jit
def linear_recurrence(decay_left, value_left, decay_right, value_right):
    return decay_left * decay_right, value_left * decay_right + value_right


@triton.jit
def scan(x_ptr, decay_ptr, y_ptr, m, n, OP: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr,
         BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):  # fmt: skip
    x, at, mask = load_tile(x_ptr, m, n, BLOCK_M, BLOCK_N, 0)
    if OP == "cumsum":
        y = tl.cumsum(x, axis=AXIS, reverse=REVERSE)
    elif OP == "cumprod":
        y = tl.cumprod(x, axis=AXIS, reverse=REVERSE)
    else:
        decay = tl.load(decay_ptr + at, mask=mask, other=0)
        _, y = tl.associative_scan((decay, x), AXIS, linear_recurrence, reverse=REVERSE)
    tl.store(y_ptr + at, y, mask=mask)


def softmax_problem(m: int, n: int, dtype: torch.dtype, block_m: int) -> Callable[[torch.Generator], Problem]:
    def make(rng: torch.Generator) -> Problem:
        x = (4 * torch.randn(m, n, generator=rng)).to(dtype)
        value = x.double().softmax(dim=1)
        # exp(x - max) carries the rounding of x - max (|x - max| < 64) and of exp2; the sum of n terms adds n roundings.
        bound = (128 + n) * FP32_EPS * value + (BF16_EPS * value + 2.0**-133 if dtype == torch.bfloat16 else 2.0**-126)
        arguments = {"x_ptr": x, "y_ptr": torch.full_like(x, -7), "m": m, "n": n}
        return Problem(arguments, {"y_ptr": Expected(value, bound)}, (triton.cdiv(m, block_m), 1, 1))

    return make


def layer_norm_problem(m: int, n: int, dtype: torch.dtype, block_m: int) -> Callable[[torch.Generator], Problem]:
    def make(rng: torch.Generator) -> Problem:
        x = (3 + 2 * torch.randn(m, n, generator=rng)).to(dtype)
        weight, bias = (torch.randn(n, generator=rng).to(dtype) for _ in range(2))
        value = torch.nn.functional.layer_norm(x.double(), (n,), weight.double(), bias.double(), 1e-5)
        size = value.abs() + 4 * weight.double().abs() + bias.double().abs()
        # mean and variance: n roundings each, of numbers up to 4 standard deviations; the rest a few roundings.
        bound = (2 * n + 16) * FP32_EPS * size + (BF16_EPS * value.abs() if dtype == torch.bfloat16 else 0.0)
        arguments = {"x_ptr": x, "weight_ptr": weight, "bias_ptr": bias, "y_ptr": torch.full_like(x, -7), "m": m, "n": n}
        return Problem(arguments, {"y_ptr": Expected(value, bound)}, (triton.cdiv(m, block_m), 1, 1))

    return make


def random_numbers(m: int, n: int, dtype: torch.dtype, rng: torch.Generator) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.randn(m, n, generator=rng).to(dtype)
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max, (m, n), generator=rng, dtype=dtype)


def reduced(op: str, x: torch.Tensor, axis: int) -> torch.Tensor:
    if op == "sum":
        return x.double().sum(axis) if x.is_floating_point() else x.sum(axis, dtype=x.dtype)
    if op == "xor":
        rows = x if axis == 0 else x.T
        total = torch.zeros_like(rows[0])
        for row in rows:
            total ^= row
        return total
    return {"max": torch.amax, "min": torch.amin, "argmax": torch.argmax, "argmin": torch.argmin}[op](x, dim=axis)


def reduce_problem(m: int, n: int, op: str, axis: int, dtype: torch.dtype) -> Callable[[torch.Generator], Problem]:
    def make(rng: torch.Generator) -> Problem:
        x = random_numbers(m, n, dtype, rng)
        value = reduced(op, x, axis)
        out = torch.int32 if op.startswith("arg") else dtype
        rounding = x.double().abs().sum(axis) * (m, n)[axis] * FP32_EPS  # one rounding an addition, any order
        bound = rounding if op == "sum" and dtype.is_floating_point else 0.0
        arguments = {"x_ptr": x, "y_ptr": torch.full(value.shape, -7, dtype=out), "m": m, "n": n}
        return Problem(arguments, {"y_ptr": Expected(value, bound)})

    return make


def scanned(op: str, x: torch.Tensor, decay: torch.Tensor, axis: int) -> torch.Tensor:
    """The scan along `axis` in float64 (integers: in their own arithmetic, modulo 2^bits)."""
    if op == "cumsum":
        return x.cumsum(axis, dtype=torch.float64 if x.is_floating_point() else x.dtype)
    if op == "cumprod":
        return x.double().cumprod(axis)
    state, rows = torch.zeros_like(x.select(axis, 0), dtype=torch.float64), []
    for i in range(x.shape[axis]):
        state = state * decay.select(axis, i).double() + x.select(axis, i).double()
        rows.append(state)
    return torch.stack(rows, axis)


def scan_problem(m: int, n: int, op: str, axis: int, dtype: torch.dtype, reverse: bool) -> Callable[[torch.Generator], Problem]:
    def make(rng: torch.Generator) -> Problem:
        x = random_numbers(m, n, dtype, rng)
        x = 1 + x / 16 if op == "cumprod" else x
        decay = torch.rand(m, n, generator=rng)
        flip = (lambda t: t.flip(axis)) if reverse else (lambda t: t)
        value = flip(scanned(op, flip(x), flip(decay), axis))
        size = flip(scanned(op, flip(x.abs()), flip(decay), axis)).double()
        bound = 2 * (m, n)[axis] * FP32_EPS * size if dtype.is_floating_point else 0.0  # a product and a sum a step
        arguments = {"x_ptr": x, "decay_ptr": decay, "y_ptr": torch.full_like(x, -7), "m": m, "n": n}
        return Problem(arguments, {"y_ptr": Expected(value, bound)})

    return make


def reduction(op: str, axis: int, dtype: torch.dtype = torch.float32, m: int = 32, n: int = 128, num_warps: int = 4,
              slow: bool = False) -> Case:  # fmt: skip
    constants = {"OP": op, "AXIS": axis, "BLOCK_M": m, "BLOCK_N": n}
    name = f"reduce-{op}-axis{axis}-{str(dtype).removeprefix('torch.')}-{num_warps}warps"
    pins = "permutes inside a wave, LDS between waves" if num_warps > 1 else "DPP and permutes inside a wave"
    return Case(name, reduce, reduce_problem(m, n, op, axis, dtype), constants, num_warps, {}, pins, slow)


def scan_case(op: str, axis: int, dtype: torch.dtype = torch.float32, m: int = 32, n: int = 128, num_warps: int = 4,
              reverse: bool = False, slow: bool = False) -> Case:  # fmt: skip
    constants = {"OP": op, "AXIS": axis, "REVERSE": reverse, "BLOCK_M": m, "BLOCK_N": n}
    name = f"scan-{op}-axis{axis}-{str(dtype).removeprefix('torch.')}" + ("-reverse" if reverse else "")
    problem = scan_problem(m, n, op, axis, dtype, reverse)
    return Case(name, scan, problem, constants, num_warps, {}, "lane shifts under partial EXEC, carries through LDS", slow)


def softmax_case(name: str, m: int, n: int, dtype: torch.dtype, block: tuple[int, int], num_warps: int,
                 slow: bool = False) -> Case:  # fmt: skip
    constants = {"BLOCK_M": block[0], "BLOCK_N": block[1]}
    problem = softmax_problem(m, n, dtype, block[0])
    return Case(f"softmax-{name}", softmax, problem, constants, num_warps, pins="exp2, division, row reductions", slow=slow)


def layer_norm_case(name: str, dtype: torch.dtype, num_warps: int, slow: bool = False) -> Case:
    problem = layer_norm_problem(6, 500, dtype, 2)
    constants = {"BLOCK_M": 2, "BLOCK_N": 512}
    return Case(f"layernorm-{name}", layer_norm, problem, constants, num_warps, pins="rsqrt, division, broadcasts", slow=slow)


FP32, BF16, INT32, INT64 = torch.float32, torch.bfloat16, torch.int32, torch.int64

CASES = [
    softmax_case("fp32", 5, 1000, FP32, (1, 1024), 4),
    softmax_case("bf16", 30, 250, BF16, (8, 256), 8, slow=True),
    softmax_case("1warp", 7, 60, FP32, (8, 64), 1, slow=True),
    layer_norm_case("fp32", FP32, 4, slow=True),
    layer_norm_case("bf16", BF16, 2),
    reduction("sum", 1),
    reduction("sum", 0, num_warps=8, slow=True),
    reduction("sum", 1, num_warps=1, slow=True),
    reduction("sum", 1, INT64, slow=True),
    reduction("max", 0, num_warps=1, slow=True),
    reduction("max", 1, INT32, num_warps=2, slow=True),
    reduction("min", 1, slow=True),
    reduction("argmax", 0, slow=True),
    reduction("argmax", 1),
    reduction("argmin", 1, INT32, slow=True),
    reduction("xor", 0, INT32, slow=True),
    scan_case("cumsum", 1),
    scan_case("cumsum", 0, INT32, slow=True),
    scan_case("cumsum", 1, INT32, num_warps=1, reverse=True, slow=True),
    scan_case("cumsum", 1, INT64, slow=True),
    scan_case("cumprod", 0, reverse=True, slow=True),
    scan_case("recurrence", 1, slow=True),
    scan_case("recurrence", 0, reverse=True, slow=True),
]  # fmt: skip
