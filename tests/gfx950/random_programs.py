"""Random C++ functions that mean the same on the host and on gfx950: no undefined behaviour, no contraction, one rounding per
operation. Compiled by clang for both, they are a test of everything between source and result."""

from __future__ import annotations

import random

VARIABLES = {
    "u32": ("a", "b", "c", "d"), "u64": ("p", "q"), "float": ("x", "y", "z"), "double": ("r", "s"), "half": ("h", "k"),
    "u16": ("e",), "u8": ("g",),
}  # fmt: skip

PREAMBLE = """
typedef unsigned u32; typedef unsigned long u64; typedef int i32; typedef long i64; typedef _Float16 half;
typedef unsigned short u16; typedef unsigned char u8;
#define FN static __attribute__((device))
#ifndef __HIP__
#undef FN
#define FN static
#endif
FN u32 bits(float x) { return x != x ? 0x7fc00000u : __builtin_bit_cast(u32, x); }
FN u64 bits(double x) { return x != x ? 0x7ff8000000000000ul : __builtin_bit_cast(u64, x); }
FN u16 bits(half x) { return x != x ? 0x7e00 : __builtin_bit_cast(u16, x); }
FN u32 fold(u64 x) { return u32(x) ^ u32(x >> 32); }
"""

UNARY = {
    "u32": (
        "~{}", "(0u - {})", "u32(__builtin_popcount({}))", "u32(__builtin_clz({} | 1))", "u32(__builtin_ctz({} | 0x80000000u))",
        "__builtin_bitreverse32({})", "__builtin_bswap32({})", "u32(i32({}) >> 5)", "u32(i16_({}))",
    ),
    "u64": (
        "~{}", "(0ul - {})", "u64(__builtin_popcountl({}))", "u64(__builtin_clzl({} | 1))", "__builtin_bitreverse64({})",
        "u64(i64({}) >> 9)",
    ),
    "float": (
        "-{}", "__builtin_fabsf({})", "__builtin_sqrtf(__builtin_fabsf({}))", "__builtin_floorf({})", "__builtin_truncf({})",
        "__builtin_ceilf({})", "__builtin_rintf({})",
    ),
    "double": ("-{}", "__builtin_fabs({})", "__builtin_floor({})", "__builtin_trunc({})"),
    "half": ("-{}",),
    "u16": ("u16(~{})", "u16({} >> 3)"),
    "u8": ("u8(~{})", "u8({} << 1)"),
}  # fmt: skip
BINARY = {
    "u32": (
        "({} + {})", "({} - {})", "({} * {})", "({} & {})", "({} | {})", "({} ^ {})", "({} << ({} & 31))", "({} >> ({} & 31))",
        "u32(i32({}) >> ({} & 31))", "({} / ({} | 1))", "({} % ({} | 1))", "u32(i32({}) / i32({} | 0x10001))",
        "u32((u64({}) * {}) >> 32)", "u32((i64(i32({})) * i32({})) >> 32)", "min_({}, {})", "max_({}, {})",
        "__builtin_rotateleft32({}, {} & 31)", "u32({} < {})", "u32(i32({}) >= i32({}))",
    ),
    "u64": (
        "({} + {})", "({} - {})", "({} * {})", "({} & {})", "({} ^ {})", "({} << ({} & 63))", "({} >> ({} & 63))",
        "({} / ({} | 1))", "u64(i64({}) % i64({} | 0x100000001ul))", "u64({} < {})", "u64(i64({}) > i64({}))",
    ),
    "float": ("({} + {})", "({} - {})", "({} * {})", "({} / {})", "min_({}, {})", "max_({}, {})"),
    "double": ("({} + {})", "({} - {})", "({} * {})", "({} / {})", "min_({}, {})"),
    "half": ("({} + {})", "({} - {})", "({} * {})"),
    "u16": ("u16({} + {})", "u16({} * {})", "u16({} ^ {})"),
    "u8": ("u8({} + {})", "u8({} * {})"),
}  # fmt: skip
CONVERT = {
    "u32": ("u32({u64})", "bits({float})", "u32(bits({half}))", "u32({u16})", "u32(i8_({u8}))", "fold(bits({double}))"),
    "u64": ("u64({u32})", "u64(i64(i32({u32})))", "bits({double})", "(u64({u32}) << 32 | {u32})"),
    "float": ("float({u32})", "float(i32({u32}))", "float({half})", "float({double})", "float({u8})", "float({u64})"),
    "double": ("double({float})", "double(i32({u32}))", "double({u32})"),
    "half": ("half({float})", "half({u8})"),
    "u16": ("u16({u32})", "bits({half})"),
    "u8": ("u8({u32})", "u8({u16} >> 8)"),
}  # fmt: skip
HELPERS = """
template <typename T> FN T min_(T a, T b) { return b < a ? b : a; }
template <typename T> FN T max_(T a, T b) { return a < b ? b : a; }
FN int i16_(u32 x) { return (short)x; }
FN int i8_(u32 x) { return (signed char)x; }
"""


class Generator:
    """Statements over the VARIABLES, drawn from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.loops = 0

    def variable(self, kind: str) -> str:
        return self.rng.choice(VARIABLES[kind])

    def constant(self, kind: str) -> str:
        value = self.rng.choice([self.rng.getrandbits(4), self.rng.getrandbits(8), self.rng.getrandbits(31)])
        if kind in ("float", "double", "half"):
            return f"{kind}({value % 1000 / 8})"
        return f"{kind}({value})"

    def leaf(self, kind: str) -> str:
        return self.variable(kind) if self.rng.random() < 0.8 else self.constant(kind)

    def expression(self, kind: str) -> str:
        roll = self.rng.random()
        if roll < 0.6:
            return self.rng.choice(BINARY[kind]).format(self.leaf(kind), self.leaf(kind))
        if roll < 0.75:
            return self.rng.choice(UNARY[kind]).format(self.leaf(kind))
        names = {other: self.variable(other) for other in VARIABLES}
        return self.rng.choice(CONVERT[kind]).format(**names)

    def condition(self) -> str:
        kind = self.rng.choice(("u32", "u64", "float", "double", "u16"))
        return f"{self.leaf(kind)} {self.rng.choice(('<', '==', '!=', '>='))} {self.leaf(kind)}"

    def statement(self, depth: int) -> str:
        roll = self.rng.random()
        if depth and roll < 0.15:
            return f"if ({self.condition()}) {{ {self.block(depth - 1)} }} else {{ {self.block(depth - 1)} }}"
        if depth and roll < 0.22:
            self.loops += 1
            i = f"i{self.loops}"
            body = self.block(depth - 1)
            leave = f"if ({self.condition()}) break;" if self.rng.random() < 0.5 else ""
            return f"for (u32 {i} = 0; {i} < ({self.variable('u32')} & 3) + 1; {i}++) {{ {body} {leave} }}"
        if roll < 0.30:
            return f"t[{self.variable('u32')} & 7] = {self.expression('u32')}; a ^= t[{self.variable('u32')} & 7];"
        if depth and roll < 0.34:
            cases = " ".join(f"case {k}: {self.block(0, 2)} break;" for k in range(4))
            return f"switch ({self.variable('u32')} & 3) {{ {cases} }}"
        kind = self.rng.choice(list(VARIABLES))
        return f"{self.variable(kind)} = {self.expression(kind)};"

    def block(self, depth: int, count: int | None = None) -> str:
        return " ".join(self.statement(depth) for _ in range(count or self.rng.randint(2, 5)))

    def function(self, name: str, statements: int) -> str:
        """void name(u32 index, const u32* in, u32* out): 8 words of input and of output for each index."""
        body = self.block(2, statements)
        leaf = self.rng.choice(BINARY["u32"]).format("a", "b")
        return f"""
FN __attribute__((noinline)) u32 {name}_leaf(u32 a, u32 b) {{ return (a ^ b) * 31 + {leaf}; }}
FN void {name}(u32 index, const u32* in, u32* out) {{
  u32 t[8];
  for (u32 k = 0; k < 8; k++) t[k] = in[8 * index + k];
  u32 a = t[0], b = t[1], c = t[2], d = t[3] + index;
  u64 p = u64(t[4]) << 32 | t[5], q = t[6];
  float x = float(i32(t[0])) / 65536.f, y = float(t[1] & 0xffff), z = 0.5f;
  double r = double(i32(t[2])), s = 3.25;
  half h = half(t[7] & 31), k = half(0.75f);
  u16 e = u16(t[3]); u8 g = u8(t[4]);
  {body}
  b ^= {name}_leaf(a, c);
  out[8 * index] = a; out[8 * index + 1] = b; out[8 * index + 2] = c ^ d; out[8 * index + 3] = fold(p);
  out[8 * index + 4] = fold(q) ^ e ^ g; out[8 * index + 5] = bits(x) ^ bits(y);
  out[8 * index + 6] = bits(z) ^ bits(h) ^ bits(k); out[8 * index + 7] = fold(bits(r)) ^ fold(bits(s));
}}
"""


def source(seeds: range, statements: int = 12) -> str:
    """Host functions f<seed>(in, out, count), and two kernels (in, out) of the same meaning for each.

    vector<seed>: one index a work-item; scalar<seed>: one index a workgroup, so that the scalar ALU does much of the work.
    """
    functions = [Generator(seed).function(f"g{seed}", statements) for seed in seeds]
    index = {"vector": "blockIdx.x * 64 + threadIdx.x", "scalar": "blockIdx.x"}
    device = [
        f'extern "C" __global__ void {kind}{seed}(const u32* in, u32* out) {{ g{seed}({index[kind]}, in, out); }}'
        for seed in seeds
        for kind in index
    ]
    host = [
        f'extern "C" void f{seed}(const u32* in, u32* out, u32 n) {{ for (u32 i = 0; i < n; i++) g{seed}(i, in, out); }}'
        for seed in seeds
    ]
    return "\n".join([PREAMBLE, HELPERS, *functions, "#ifdef __HIP__", *device, "#else", *host, "#endif", ""])
