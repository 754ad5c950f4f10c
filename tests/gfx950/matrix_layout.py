"""Matrix operands as register contents, element by element from AMD's published equations."""

from __future__ import annotations

import re
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from arith_call import LANES

# Formats of v_mfma_*_f8f6f4, by the value of cbsz and blgp.
FORMATS = {
    0: ml_dtypes.float8_e4m3fn,
    1: ml_dtypes.float8_e5m2,
    2: ml_dtypes.float6_e2m3fn,
    3: ml_dtypes.float6_e3m2fn,
    4: ml_dtypes.float4_e2m1fn,
}
FORMAT_BITS = {0: 8, 1: 8, 2: 6, 3: 6, 4: 4}
TYPES = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i8": np.int8,
    "fp8": ml_dtypes.float8_e4m3fn,
    "bf8": ml_dtypes.float8_e5m2,
}


@dataclass(frozen=True)
class Shape:
    """An instruction's dimensions: A is m x k, B is k x m, in `blocks` products."""

    name: str
    m: int
    k: int
    blocks: int
    a: str
    b: str

    @property
    def sparse(self) -> bool:
        return "smfmac" in self.name

    @property
    def result(self) -> type:
        return {"f64": np.float64, "i8": np.int32}.get(self.a, np.float32)


def parse(name: str) -> Shape:
    """The shape that a mnemonic spells out."""
    match = re.fullmatch(r"v_(?:mfma|smfmac)_(?:scale_)?[fi]\d+_(\d+)x\d+x(\d+)(?:_(\d+)b)?_(\w+?)(?:_(\w+))?", name)
    assert match, name
    m, k, blocks, a, b = match.groups()
    return Shape(name, int(m), int(k), int(blocks or 1), a, b or a)


def input_places(m: int, k: int, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """(blocks, m, k) lane and index within the lane of each element of A (of B with columns for rows)."""
    block, row, column = np.meshgrid(np.arange(blocks), np.arange(m), np.arange(k), indexing="ij")
    per_lane = k * m * blocks // LANES
    return m * block + m * blocks * (column // per_lane) + row, column % per_lane


def result_places(m: int, blocks: int, wide: bool) -> tuple[np.ndarray, np.ndarray]:
    """(blocks, m, m) lane and register (pair) of each element of D."""
    block, i, j = np.meshgrid(np.arange(blocks), np.arange(m), np.arange(m), indexing="ij")
    if m == 4:
        return (16 * i + 4 * block + j, 0 * i) if wide else (4 * block + j, i)
    if wide:
        return 16 * (i % 4) + j, i // 4
    if m == 16:
        return 16 * (i // 4) + j, 4 * block + i % 4
    return 32 * (i // 4 % 2) + j, 16 * block + 4 * (i // 8) + i % 4


def pack_codes(codes: np.ndarray, bits: int) -> np.ndarray:
    """(64, n) codes of `bits` bits, lane by lane, to (words, 64) uint32, first code lowest."""
    stream = [sum(int(code) << (bits * i) for i, code in enumerate(lane)) for lane in codes]
    words = max(1, codes.shape[1] * bits // 32)
    return np.array([[s >> (32 * w) & 0xFFFFFFFF for s in stream] for w in range(words)], np.uint32)


def pack_elements(values: np.ndarray, lanes: np.ndarray, index: np.ndarray, bits: int | None = None) -> np.ndarray:
    """Registers (words, 64) that hold `values` at the given places."""
    uint = np.dtype(f"u{values.dtype.itemsize}")
    codes = np.zeros((LANES, int(index.max()) + 1), np.uint64)
    codes[lanes, index] = values.view(uint)
    return pack_codes(codes, bits or 8 * values.dtype.itemsize)


def unpack_result(registers: np.ndarray, shape: Shape) -> np.ndarray:
    """(blocks, m, m) elements of D."""
    wide = shape.a == "f64"
    lanes, index = result_places(shape.m, shape.blocks, wide)
    if wide:
        low, high = registers[2 * index, lanes].astype(np.uint64), registers[2 * index + 1, lanes].astype(np.uint64)
        return (low | high << np.uint64(32)).view(np.float64)
    return registers[index, lanes].view(shape.result)


def pack_result(values: np.ndarray, shape: Shape) -> np.ndarray:
    """Registers that hold `values`, (blocks, m, m), as C or D."""
    lanes, index = result_places(shape.m, shape.blocks, shape.a == "f64")
    return pack_elements(values, lanes, index)


def f8f6f4_places(m: int, k: int, fmt: int) -> tuple[np.ndarray, np.ndarray]:
    """(m, k) lane and index of F8F6F4 elements: 8-bit ones as two runs of 16 k per lane, others as one of 32."""
    row, column = np.meshgrid(np.arange(m), np.arange(k), indexing="ij")
    if FORMAT_BITS[fmt] == 8:
        half, rest = np.divmod(column, k // 2)
        return m * (rest // 16) + row, 16 * half + rest % 16
    return m * (column // 32) + row, column % 32
