"""Lane values that are likely to break arithmetic, mixed with random ones."""

from __future__ import annotations

import numpy as np
from arith_call import LANES
from numpy.typing import NDArray

INTEGERS = [0, 1, 2, 31, 32, 33, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFF, 0x800000, 0xFFFFFF]
INTEGERS += [0x1000000, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF, 0x80008000, 0x7FFF7FFF, 0xC0C0C0C0]

# Zeros, denormals, the smallest and largest normals, ones, halves, infinities, quiet and signalling NaNs, of both signs.
F32 = [0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3F000000, 0x3FC00000, 0x40490FDB]
F32 += [0x4B000000, 0x4B7FFFFF, 0x4B800001, 0x4EFFFFFF, 0x4F000000, 0x4F7FFFFF, 0x4F800000, 0x7F000000, 0x7F7FFFFF]
F32 += [0x7F800000, 0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FFFFFFF, 0x00400000, 0x0C000000, 0x72000000]
F32 += [value | 0x80000000 for value in F32]

F64 = [0, 1, 0xFFFFFFFFFFFFF, 0x10000000000000, 0x3FEFFFFFFFFFFFFF, 0x3FF0000000000000, 0x3FF0000000000001]
F64 += [0x3FE0000000000000, 0x4330000000000000, 0x43E0000000000000, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000]
F64 += [0x7FF0000000000001, 0x7FF8000000000000, 0x7FFFFFFFFFFFFFFF, 0x400921FB54442D18]
F64 += [value | 1 << 63 for value in F64]

F16 = [0, 1, 0x3FF, 0x400, 0x401, 0x3BFF, 0x3C00, 0x3C01, 0x3800, 0x6400, 0x67FF, 0x7BFF, 0x7C00, 0x7C01, 0x7E00, 0x7FFF]
F16 += [value | 0x8000 for value in F16]


def _mix(rng: np.random.Generator, corners: list[int], bits: int) -> NDArray[np.uint64]:
    """64 values: half corners, half random bit patterns, shuffled."""
    random = rng.integers(0, 1 << bits, LANES, dtype=np.uint64, endpoint=False) if bits < 64 else None
    if random is None:
        random = rng.integers(0, 1 << 63, LANES, dtype=np.uint64) * np.uint64(2) + rng.integers(0, 2, LANES, dtype=np.uint64)
    chosen = rng.choice(np.array(corners, np.uint64), LANES)
    return np.where(rng.random(LANES) < 0.5, random, chosen)


def u32(rng: np.random.Generator) -> NDArray[np.uint32]:
    return _mix(rng, INTEGERS, 32).astype(np.uint32)


def u64(rng: np.random.Generator) -> NDArray[np.uint64]:
    return u32(rng).astype(np.uint64) | u32(rng).astype(np.uint64) << np.uint64(32)


def f32(rng: np.random.Generator) -> NDArray[np.uint32]:
    """Bit patterns of f32."""
    return _mix(rng, F32, 32).astype(np.uint32)


def f64(rng: np.random.Generator) -> NDArray[np.uint64]:
    return _mix(rng, F64, 64)


def f16(rng: np.random.Generator) -> NDArray[np.uint32]:
    """f16 patterns in the low halves, junk in the high ones."""
    junk = rng.integers(0, 1 << 16, LANES, dtype=np.uint32) << np.uint32(16)
    return _mix(rng, F16, 16).astype(np.uint32) | junk


def pairs_f16(rng: np.random.Generator) -> NDArray[np.uint32]:
    return _mix(rng, F16, 16).astype(np.uint32) | _mix(rng, F16, 16).astype(np.uint32) << np.uint32(16)


def nearby_f32(rng: np.random.Generator, spread: int = 4) -> NDArray[np.float32]:
    """Finite f32 of moderate exponents, so that sums and products round rather than overflow."""
    return (rng.standard_normal(LANES) * 2.0 ** rng.integers(-spread, spread + 1, LANES)).astype(np.float32)


def same_floats(got: NDArray, want: NDArray) -> bool:
    """Equal bit patterns, except that any NaN matches any NaN."""
    uint = np.dtype(f"u{want.dtype.itemsize}")
    got, want = got.astype(uint, copy=False) if got.dtype.kind == "u" else got.view(uint), want
    nan = np.isnan(want)
    return bool(np.all(np.isnan(got.view(want.dtype)) == nan) and np.all((got == want.view(uint)) | nan))
