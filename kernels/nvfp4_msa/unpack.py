"""PTX that turns four 16-bit words of E2M1 codes and their four e4m3 scales into sixteen products, exact in f16.

A word holds four neighbouring dims of a token. Word and scale j give element j of four results: result i has dim i of
every word, times a power of two that is the same for all (UNPACK_UNITS). Each pair of f16 below serves two words.
"""

from __future__ import annotations

# How codes become f16. "cvt": widened to e4m3 bytes, four at once, then converted by the hardware (sm_89 and later).
# "shift": sign and magnitude moved into f16 patterns, two at once. "portable": as "shift", by Triton's own operators.
UNPACK_MODES = ("cvt", "shift", "portable")
# Value of a product in these units: e2m1's exponent bias of 1 becomes e4m3's of 7, or f16's of 15.
UNPACK_UNITS = {"cvt": 2.0**6, "shift": 2.0**14, "portable": 2.0**14}
UNPACK_CONSTRAINTS = ",".join(["=&r"] * 8 + ["r"] * 3)  # results 0 to 3 as two pairs each; words as two pairs; four scales

E2M1_IN_F16 = "0x0E000E00"  # the three bits of a magnitude as lowest exponent bits and first mantissa bit
E2M1_IN_E4M3 = "0x1C1C1C1C"
LARGEST_E4M3 = "0x5F005F00"  # 448.0 twice
AND_OR = "0xEA"  # lop3: a & b | c


def unpack_ptx(mode: str, nan_to_finite: bool) -> str:
    """The assembly for tl.inline_asm_elementwise, pack=4; empty for "portable".

    nan_to_finite: scales that are NaN become finite. Values of keys that nobody sees have the weight 0, and 0 * NaN is NaN.
    """
    if mode == "portable":
        return ""
    pair = cvt_pair if mode == "cvt" else shift_pair
    lines = [
        "{ .reg .b32 word, low, high, part, scale0, scale1, largest; .reg .b16 h0, h1;",
        "mov.b32 {h0, h1}, $10; cvt.rn.f16x2.e4m3x2 scale0, h0; cvt.rn.f16x2.e4m3x2 scale1, h1;",
    ]
    if nan_to_finite:  # min returns the operand that is a number
        lines.append(f"mov.b32 largest, {LARGEST_E4M3}; min.f16x2 scale0, scale0, largest; min.f16x2 scale1, scale1, largest;")
    return "\n".join([*lines, *pair("$8", "scale0", 0), *pair("$9", "scale1", 1), "}"])


def shift_pair(words: str, scales: str, output: int) -> list[str]:
    """Two words -> pair `output` of each result."""
    lines = []
    for dim in range(4):
        magnitude = f"shl.b32 part, {words}, {9 - 4 * dim};" if dim < 3 else f"shr.u32 part, {words}, 3;"
        lines.append(f"{magnitude} and.b32 part, part, {E2M1_IN_F16}; shl.b32 high, {words}, {12 - 4 * dim};")
        lines.append(f"lop3.b32 part, high, 0x80008000, part, {AND_OR}; mul.rn.f16x2 ${2 * dim + output}, part, {scales};")
    return lines


def cvt_pair(words: str, scales: str, output: int) -> list[str]:
    """Two words -> pair `output` of each result."""
    lines = [
        f"prmt.b32 word, {words}, 0, 0x3120;",  # so that equal dims of the two words are neighbours
        f"shl.b32 part, word, 2; and.b32 part, part, {E2M1_IN_E4M3};",
        f"shl.b32 low, word, 4; lop3.b32 low, low, 0x80808080, part, {AND_OR};",  # dims 0 and 2
        f"shr.u32 part, word, 2; and.b32 part, part, {E2M1_IN_E4M3};",
        f"lop3.b32 high, word, 0x80808080, part, {AND_OR};",  # dims 1 and 3
    ]
    for source, dim in (("low", 0), ("high", 1)):
        lines.append(f"mov.b32 {{h0, h1}}, {source}; cvt.rn.f16x2.e4m3x2 part, h0; cvt.rn.f16x2.e4m3x2 {source}, h1;")
        lines.append(f"mul.rn.f16x2 ${2 * dim + output}, part, {scales};")
        lines.append(f"mul.rn.f16x2 ${2 * dim + 4 + output}, {source}, {scales};")
    return lines
