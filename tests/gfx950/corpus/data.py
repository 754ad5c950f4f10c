"""Data movement, atomics, integer and control code, conversions and elementwise mathematics."""

import math
from collections.abc import Callable

import torch
import triton
import triton.language as tl

from .case import Case, Expected, Problem

Make = Callable[[torch.Generator], Problem]


@triton.jit
def transpose(x_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr):
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + rows[:, None] * N + columns[None, :])
    tl.store(y_ptr + columns[:, None] * M + rows[None, :], tl.trans(x))


@triton.jit
def permute(x_ptr, y_ptr, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, A * B * C)).reshape(A, B, C)
    tl.store(y_ptr + tl.arange(0, A * B * C), tl.permute(x, (2, 0, 1)).reshape(A * B * C))


@triton.jit
def interleave(x_ptr, y_ptr, N: tl.constexpr):
    even, odd = tl.split(tl.load(x_ptr + tl.arange(0, 2 * N)).reshape(N, 2))
    tl.store(y_ptr + tl.arange(0, 2 * N), tl.interleave(odd, even))


@triton.jit
def gather(x_ptr, index_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(y_ptr + at, tl.gather(tl.load(x_ptr + at), tl.load(index_ptr + at), axis=AXIS))


@triton.jit
def histogram(x_ptr, y_ptr, N: tl.constexpr, BINS: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, BINS), tl.histogram(tl.load(x_ptr + tl.arange(0, N)), BINS))


@triton.jit
def sort(x_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr, DESCENDING: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(y_ptr + at, tl.sort(tl.load(x_ptr + at), dim=1, descending=DESCENDING))


@triton.jit
def atomics(x_ptr, bin_ptr, sum_ptr, count_ptr, max_ptr, bits_ptr, last_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    where = tl.load(bin_ptr + at, mask=mask, other=0)
    tl.atomic_add(sum_ptr + where, x, mask=mask)
    tl.atomic_add(count_ptr + where, 1, mask=mask)
    tl.atomic_max(max_ptr + where, x, mask=mask)
    tl.atomic_or(bits_ptr + where, 1 << (at % 32), mask=mask)
    tl.atomic_cas(last_ptr + at, at % 2, where + 100)


@triton.jit
def ticket_sum(x_ptr, partial_ptr, ticket_ptr, y_ptr, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    """Every program writes a partial sum; whichever takes the last ticket adds them up."""
    program = tl.program_id(0)
    x = tl.load(x_ptr + program * BLOCK + tl.arange(0, BLOCK))
    tl.store(partial_ptr + program, tl.sum(x))
    tl.debug_barrier()
    if tl.atomic_add(ticket_ptr, 1) == PROGRAMS - 1:
        tl.store(y_ptr, tl.sum(tl.load(partial_ptr + tl.arange(0, PROGRAMS), volatile=True)))


@triton.jit
def collatz(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    steps = tl.zeros((BLOCK,), dtype=tl.int32)
    while tl.max(x) > 1:
        steps += (x > 1).to(tl.int32)
        x = tl.where(x <= 1, x, tl.where(x % 2 == 0, x // 2, 3 * x + 1))
    tl.store(y_ptr + at, steps)


@triton.jit
def integer_mix(a_ptr, b_ptr, y_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(a_ptr + at), tl.load(b_ptr + at)
    tl.store(y_ptr + at, a // b)
    tl.store(y_ptr + N + at, a % b)
    tl.store(y_ptr + 2 * N + at, a * b + (a >> 3))
    tl.store(y_ptr + 3 * N + at, (a ^ (b << 5)) & ~(a | b))


@triton.jit
def philox(y_ptr, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.randint(seed, at))


@triton.jit
def convert(x_ptr, y_ptr, z_ptr, N: tl.constexpr):
    """x -> the type of y, and back to the type of z."""
    y = tl.load(x_ptr + tl.arange(0, N)).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + tl.arange(0, N), y)
    tl.store(z_ptr + tl.arange(0, N), y.to(z_ptr.dtype.element_ty))


@triton.jit
def elementwise(x_ptr, y_ptr, OP: tl.constexpr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    if OP == "exp":
        y = tl.exp(x)
    elif OP == "log":
        y = tl.log(x)
    elif OP == "sin":
        y = tl.sin(x)
    elif OP == "cos":
        y = tl.cos(x)
    elif OP == "erf":
        y = tl.erf(x)
    elif OP == "sqrt":
        y = tl.sqrt_rn(x)
    elif OP == "sqrt-fast":
        y = tl.sqrt(x)
    elif OP == "rsqrt":
        y = tl.rsqrt(x)
    elif OP == "reciprocal":
        y = tl.div_rn(1.0, x)
    elif OP == "floor-ceil":
        y = tl.floor(x) + 1024 * tl.ceil(x)
    else:
        y = tl.fma(x, x, tl.abs(x)) / (1 + tl.maximum(x, 0.25))
    tl.store(y_ptr + tl.arange(0, N), y)


def bits(shape: tuple[int, ...], dtype: torch.dtype, rng: torch.Generator) -> torch.Tensor:
    """Every bit pattern is equally likely: moving data must not depend on what the data mean."""
    size = math.prod(shape) * dtype.itemsize
    return torch.randint(0, 256, (size,), generator=rng, dtype=torch.uint8).view(dtype).reshape(shape)


def blank(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.full(shape, 77, dtype=dtype)


def transpose_problem(m: int, n: int, dtype: torch.dtype) -> Make:
    def make(rng: torch.Generator) -> Problem:
        x = bits((m, n), dtype, rng)
        return Problem({"x_ptr": x, "y_ptr": blank((n, m), dtype)}, {"y_ptr": Expected(x.T)})

    return make


def permute_problem(a: int, b: int, c: int) -> Make:
    def make(rng: torch.Generator) -> Problem:
        x = bits((a, b, c), torch.int16, rng)
        return Problem({"x_ptr": x, "y_ptr": blank((c, a, b), x.dtype)}, {"y_ptr": Expected(x.permute(2, 0, 1))})

    return make


def interleave_problem(rng: torch.Generator) -> Problem:
    x = bits((256, 2), torch.int32, rng)
    return Problem({"x_ptr": x, "y_ptr": blank((256, 2), x.dtype)}, {"y_ptr": Expected(x.flip(1))})


def gather_problem(m: int, n: int, axis: int) -> Make:
    def make(rng: torch.Generator) -> Problem:
        x, index = bits((m, n), torch.int32, rng), torch.randint(0, (m, n)[axis], (m, n), generator=rng, dtype=torch.int32)
        arguments = {"x_ptr": x, "index_ptr": index, "y_ptr": blank((m, n), x.dtype)}
        return Problem(arguments, {"y_ptr": Expected(x.gather(axis, index.long()))})

    return make


def histogram_problem(rng: torch.Generator) -> Problem:
    x = torch.randint(0, 64, (1024,), generator=rng, dtype=torch.int32)
    return Problem({"x_ptr": x, "y_ptr": blank((64,), torch.int32)}, {"y_ptr": Expected(x.bincount(minlength=64))})


def sort_problem(m: int, n: int, descending: bool, dtype: torch.dtype) -> Make:
    def make(rng: torch.Generator) -> Problem:
        x = torch.randint(-99, 99, (m, n), generator=rng).to(dtype)
        value = x.sort(dim=1, descending=descending).values
        return Problem({"x_ptr": x, "y_ptr": blank((m, n), dtype)}, {"y_ptr": Expected(value)})

    return make


def atomics_problem(rng: torch.Generator) -> Problem:
    n, bins, block = 900, 16, 256
    x = torch.randint(-50, 50, (n,), generator=rng).float()  # small integers: fp32 sums are exact in any order
    where = torch.randint(0, bins, (n,), generator=rng, dtype=torch.int32)
    at = where.long()
    bit = (1 << (torch.arange(n) % 32)).to(torch.int32)
    padded = triton.cdiv(n, block) * block
    padded_bins = torch.cat([at, torch.zeros(padded - n, dtype=torch.int64)])
    mask = torch.zeros(bins, dtype=torch.int32)
    for b, i in zip(bit, at, strict=True):
        mask[i] |= b
    expected = {
        "sum_ptr": torch.zeros(bins).index_add(0, at, x),
        "count_ptr": at.bincount(minlength=bins),
        "max_ptr": torch.full((bins,), -1e30).scatter_reduce(0, at, x, "amax"),
        "bits_ptr": mask,
        "last_ptr": torch.where(torch.arange(padded) % 2 == 0, padded_bins + 100, 0),  # zeros: only even ones match
    }
    arguments = {"x_ptr": x, "bin_ptr": where, "sum_ptr": torch.zeros(bins), "max_ptr": torch.full((bins,), -1e30), "n": n,
                 **{name: torch.zeros(size, dtype=torch.int32) for name, size in
                    [("count_ptr", bins), ("bits_ptr", bins), ("last_ptr", padded)]}}  # fmt: skip
    return Problem(arguments, {k: Expected(v) for k, v in expected.items()}, (triton.cdiv(n, block), 1, 1))


def ticket_problem(rng: torch.Generator) -> Problem:
    x = torch.randint(-50, 50, (8, 256), generator=rng).float()
    arguments = {"x_ptr": x, "partial_ptr": torch.full((8,), -7.0), "ticket_ptr": torch.zeros(1, dtype=torch.int32),
                 "y_ptr": torch.full((1,), -7.0)}  # fmt: skip
    expected = {"y_ptr": Expected(x.double().sum()[None]), "ticket_ptr": Expected(torch.tensor([8]))}
    return Problem(arguments, expected, (8, 1, 1), ("partial_ptr",))


def collatz_steps(x: int) -> int:
    steps = 0
    while x > 1:
        x, steps = (x // 2 if x % 2 == 0 else 3 * x + 1), steps + 1
    return steps


def collatz_problem(rng: torch.Generator) -> Problem:
    x = torch.randint(1, 500, (256,), generator=rng, dtype=torch.int32)
    value = torch.tensor([collatz_steps(v) for v in x.tolist()])
    return Problem({"x_ptr": x, "y_ptr": blank((256,), torch.int32)}, {"y_ptr": Expected(value)}, (2, 1, 1))


def integer_problem(dtype: torch.dtype) -> Make:
    def make(rng: torch.Generator) -> Problem:
        a, b = bits((256,), dtype, rng), bits((256,), dtype, rng) >> dtype.itemsize * 4 | 1
        remainder = torch.fmod(a, b)  # C semantics: truncation towards zero
        value = torch.stack([(a - remainder) // b, remainder, a * b + (a >> 3), (a ^ (b << 5)) & ~(a | b)])
        return Problem({"a_ptr": a, "b_ptr": b, "y_ptr": blank((4, 256), dtype)}, {"y_ptr": Expected(value)})

    return make


def philox4x32(counter: int, seed: int, rounds: int = 10) -> int:
    """First word of Philox-4x32 (Salmon et al., SC11), key (seed, 0), counter (n, 0, 0, 0)."""
    word, mask = [counter, 0, 0, 0], 0xFFFFFFFF
    key = [seed & mask, seed >> 32 & mask]
    for _ in range(rounds):
        left, right = 0xD2511F53 * word[0], 0xCD9E8D57 * word[2]
        word = [(right >> 32) ^ word[1] ^ key[0], right & mask, (left >> 32) ^ word[3] ^ key[1], left & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return word[0] - (1 << 32) * (word[0] >> 31)


def philox_problem(rng: torch.Generator) -> Problem:
    value = torch.tensor([philox4x32(n, 12345) for n in range(512)])
    return Problem({"y_ptr": blank((512,), torch.int32), "seed": 12345}, {"y_ptr": Expected(value)}, (2, 1, 1))


def spread(n: int, dtype: torch.dtype, rng: torch.Generator) -> torch.Tensor:
    """Numbers of every magnitude, ties and signed zeros among them, inside the range of the narrow types."""
    x = torch.randn(n, generator=rng, dtype=torch.float64) * torch.exp2(torch.randint(-12, 6, (n,), generator=rng).double())
    x[:8] = torch.tensor([0.0, -0.0, 1.0, 1.0625, 1.1875, 2.0**-9, 3 * 2.0**-10, -448.0])
    return x.to(dtype)


def convert_problem(source: torch.dtype, target: torch.dtype) -> Make:
    def make(rng: torch.Generator) -> Problem:
        x = spread(512, torch.float64, rng)
        x = x.mul(64).clamp(-126, 126).to(source) if not target.is_floating_point else x.to(source)
        y = x.to(target)
        arguments = {"x_ptr": x, "y_ptr": blank((512,), target), "z_ptr": blank((512,), torch.float32)}
        return Problem(arguments, {"y_ptr": Expected(y.double()), "z_ptr": Expected(y.float())})

    return make


# name: (exact function, low, high, ulps). ROCm's device library promises these fp32 errors (OpenCL full profile limits,
# section 7.4); exp and log compile to the native base-2 instruction and one multiplication, which adds |argument| roundings.
FUNCTIONS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float, float, float]] = {
    "exp": (torch.exp, -20, 20, 32),
    "log": (torch.log, 0.01, 100, 16),
    "sin": (torch.sin, -50, 50, 4),
    "cos": (torch.cos, -50, 50, 4),
    "erf": (torch.erf, -3, 3, 16),
    "sqrt": (torch.sqrt, 0, 100, 0.5),
    "sqrt-fast": (torch.sqrt, 0.01, 100, 2),
    "rsqrt": (torch.rsqrt, 0.01, 100, 2),
    "reciprocal": (torch.reciprocal, 0.01, 100, 0.5),
    "floor-ceil": (lambda x: x.floor() + 1024 * x.ceil(), -100, 100, 0),
    "rational": (lambda x: (x * x + x.abs()) / (1 + x.clamp_min(0.25)), -4, 4, 4),
}


def elementwise_problem(op: str, dtype: torch.dtype) -> Make:
    function, low, high, ulps = FUNCTIONS[op]

    def make(rng: torch.Generator) -> Problem:
        x = (low + (high - low) * torch.rand(1024, generator=rng, dtype=torch.float64)).to(dtype)
        value = function(x.double())
        ulp = torch.exp2(torch.floor(torch.log2(value.abs().clamp_min(2.0**-100))) - 23)
        # near a zero of sin, cos and log the reduced argument's own rounding counts, not the result's ulp
        floor = 2.0**-22 if op in ("sin", "cos", "log") else 0.0
        bound = (ulps * ulp).clamp_min(floor) if dtype == torch.float32 else ulps * 2.0**-29 * ulp
        return Problem({"x_ptr": x, "y_ptr": blank((1024,), dtype)}, {"y_ptr": Expected(value, bound)})

    return make


FP32, FP16, BF16, FP64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
INT8, INT16, INT32, INT64 = torch.int8, torch.int16, torch.int32, torch.int64
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def type_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def conversion(source: torch.dtype, target: torch.dtype, slow: bool = True) -> Case:
    name = f"convert-{type_name(source)}-{type_name(target)}"
    return Case(name, convert, convert_problem(source, target), {"N": 512}, 2, pins="rounding to nearest even", slow=slow)


def function(op: str, dtype: torch.dtype = FP32, slow: bool = True) -> Case:
    constants = {"OP": op, "N": 1024}
    pins = "native transcendental or correctly rounded sequence"
    return Case(f"{op}-{type_name(dtype)}", elementwise, elementwise_problem(op, dtype), constants, 4, {}, pins, slow)


def transposition(dtype: torch.dtype, m: int, n: int, num_warps: int, slow: bool = True) -> Case:
    name = f"transpose-{type_name(dtype)}-{num_warps}warps"
    return Case(name, transpose, transpose_problem(m, n, dtype), {"M": m, "N": n}, num_warps, pins="LDS swizzles", slow=slow)


CASES = [
    transposition(INT8, 64, 128, 4),
    transposition(INT16, 64, 64, 1),
    transposition(INT32, 64, 32, 4, slow=False),
    transposition(INT64, 32, 32, 2),
    Case("permute-int16", permute, permute_problem(8, 16, 32), {"A": 8, "B": 16, "C": 32}, 4, pins="LDS swizzles", slow=True),
    Case("interleave", interleave, interleave_problem, {"N": 256}, 4, pins="register moves", slow=True),
    Case("gather-axis0", gather, gather_problem(64, 32, 0), {"M": 64, "N": 32, "AXIS": 0}, 4, pins="LDS gather", slow=True),
    Case("gather-axis1", gather, gather_problem(16, 64, 1), {"M": 16, "N": 64, "AXIS": 1}, 4, pins="gather in LDS or lanes"),
    Case("histogram", histogram, histogram_problem, {"N": 1024, "BINS": 64}, 4, pins="ballots, LDS atomics"),
    Case("sort-int32", sort, sort_problem(4, 128, False, INT32), {"M": 4, "N": 128, "DESCENDING": False}, 4, pins="lane swaps"),
    Case("sort-fp32", sort, sort_problem(8, 64, True, FP32), {"M": 8, "N": 64, "DESCENDING": True}, 1, pins="lane swaps",
         slow=True),
    Case("atomics", atomics, atomics_problem, {"BLOCK": 256}, 4, pins="atomics: add, max, or, compare and swap"),
    Case("ticket-sum", ticket_sum, ticket_problem, {"BLOCK": 256, "PROGRAMS": 8}, 4, pins="last-arriver protocol"),
    Case("collatz", collatz, collatz_problem, {"BLOCK": 128}, 2, pins="loops with run-time exit, LDS broadcast", slow=True),
    Case("integer-int32", integer_mix, integer_problem(INT32), {"N": 256}, 4, pins="integer division, carries", slow=True),
    Case("integer-int64", integer_mix, integer_problem(INT64), {"N": 256}, 4, pins="64-bit division and multiplication"),
    Case("integer-int16", integer_mix, integer_problem(INT16), {"N": 256}, 4, pins="16-bit arithmetic", slow=True),
    Case("philox", philox, philox_problem, {"BLOCK": 256}, 4, pins="mul_hi, xor3", slow=True),
    conversion(FP32, BF16), conversion(FP32, FP16), conversion(FP32, E4M3, slow=False), conversion(FP32, E5M2),
    conversion(FP16, E4M3), conversion(BF16, E5M2), conversion(E4M3, FP16), conversion(E5M2, BF16), conversion(FP64, FP32),
    conversion(FP32, INT8), conversion(FP32, INT32), conversion(INT32, FP32), conversion(FP64, INT64), conversion(INT64, FP64),
    *(function(op) for op in FUNCTIONS if op != "erf"), function("erf", slow=False),
    function("sqrt-fast", FP64), function("rational", FP64, slow=False), function("floor-ceil", FP64),
]  # fmt: skip
