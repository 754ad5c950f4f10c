"""The kernels' unpacking in PTX, executed here instruction by instruction, for every word and every scale.

No GPU is needed to see that codes and scales become the right f16, and no GPU test would try all of them.
"""

import re

import ml_dtypes
import numpy as np
import pytest

from kernels.nvfp4_msa.unpack import UNPACK_MODES, UNPACK_UNITS, unpack_ptx
from problems.nvfp4_msa.pages import E2M1_VALUES

VALUES = np.array([*E2M1_VALUES, *(-value for value in E2M1_VALUES)])
ASSEMBLY = [mode for mode in UNPACK_MODES if mode != "portable"]


class Ptx:
    """The few instructions that unpack_ptx uses, over arrays of registers. `inputs`: values of the last operands."""

    def __init__(self, text, outputs, inputs):
        self.registers = {f"${outputs + i}": np.asarray(value, np.uint32) for i, value in enumerate(inputs)}
        for instruction in re.sub(r"\.reg[^;]*;", "", text.strip()[1:-1]).split(";"):
            if instruction.strip():
                name, _, rest = instruction.strip().partition(" ")
                operands = re.findall(r"\{[^}]*\}|[^,\s]+", rest)
                getattr(self, name.replace(".", "_"))(operands[0], *operands[1:])

    def value(self, operand):
        return np.uint32(int(operand, 0)) if operand[0].isdigit() else self.registers[operand]

    def shl_b32(self, to, a, count):
        self.registers[to] = self.value(a) << self.value(count)

    def shr_u32(self, to, a, count):
        self.registers[to] = self.value(a) >> self.value(count)

    def and_b32(self, to, a, b):
        self.registers[to] = self.value(a) & self.value(b)

    def lop3_b32(self, to, a, b, c, table):
        assert table == "0xEA"
        self.registers[to] = (self.value(a) & self.value(b)) | self.value(c)

    def prmt_b32(self, to, a, b, selector):
        pool = [(self.value(source) >> np.uint32(8 * i)) & np.uint32(255) for source in (a, b) for i in range(4)]
        chosen = [pool[int(selector, 16) >> 4 * i & 7] for i in range(4)]
        self.registers[to] = sum((byte << np.uint32(8 * i) for i, byte in enumerate(chosen)), np.uint32(0))

    def mov_b32(self, to, a):
        if to.startswith("{"):
            low, high = re.findall(r"\w+", to)
            self.registers[low], self.registers[high] = self.value(a) & np.uint32(0xFFFF), self.value(a) >> np.uint32(16)
        else:
            self.registers[to] = self.value(a)

    def cvt_rn_f16x2_e4m3x2(self, to, a):
        halves = [((self.value(a) >> np.uint32(8 * i)) & np.uint32(255)).astype(np.uint8) for i in range(2)]
        self.registers[to] = pair([half.view(ml_dtypes.float8_e4m3fn).astype(np.float16) for half in halves])

    def mul_rn_f16x2(self, to, a, b):
        with np.errstate(invalid="ignore"):
            self.registers[to] = pair([x * y for x, y in zip(f16s(self.value(a)), f16s(self.value(b)), strict=True)])

    def min_f16x2(self, to, a, b):
        self.registers[to] = pair([np.fmin(x, y) for x, y in zip(f16s(self.value(a)), f16s(self.value(b)), strict=True)])


def pair(halves):
    low, high = (half.view(np.uint16).astype(np.uint32) for half in halves)
    return low | high << np.uint32(16)


def f16s(register):
    return [((register >> np.uint32(16 * i)) & np.uint32(0xFFFF)).astype(np.uint16).view(np.float16) for i in range(2)]


def run(mode, nan_to_finite, words, scales):
    """The four results, [4, n] each, of words and scales [4, n]."""
    packed = [words[0] | words[1] << 16, words[2] | words[3] << 16]
    machine = Ptx(unpack_ptx(mode, nan_to_finite), 8, [*packed, sum(scales[i].astype(np.uint32) << 8 * i for i in range(4))])
    pairs = [machine.registers[f"${i}"] for i in range(8)]
    return [np.stack([*f16s(pairs[2 * i]), *f16s(pairs[2 * i + 1])]) for i in range(4)]


def expected(words, scales, dim):
    numbers = scales.astype(np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    return VALUES[words >> 4 * dim & 15] * numbers


@pytest.mark.parametrize("nan_to_finite", [False, True])
@pytest.mark.parametrize("mode", ASSEMBLY)
def test_every_word_and_every_scale_come_out_exact(mode, nan_to_finite):
    every_word = np.arange(65536, dtype=np.uint32)
    words = np.stack([np.random.default_rng(i).permutation(every_word) for i in range(4)])
    scales = np.stack([np.random.default_rng(9 + i).permutation(65536) % 127 for i in range(4)])
    for dim, result in enumerate(run(mode, nan_to_finite, words, scales)):
        np.testing.assert_array_equal(result.astype(np.float64) * UNPACK_UNITS[mode], expected(words, scales, dim))


@pytest.mark.parametrize("mode", ASSEMBLY)
def test_every_code_meets_every_scale(mode):
    code, scale = (grid.ravel() for grid in np.meshgrid(np.arange(16, dtype=np.uint32), np.arange(127)))
    words, scales = np.stack([code * 0x1111] * 4), np.stack([scale] * 4)
    for dim, result in enumerate(run(mode, False, words, scales)):
        np.testing.assert_array_equal(result.astype(np.float64) * UNPACK_UNITS[mode], expected(words, scales, dim))


@pytest.mark.parametrize("mode", ASSEMBLY)
def test_values_that_nobody_sees_are_finite_whatever_their_scale(mode):
    words = np.stack([np.arange(65536, dtype=np.uint32)] * 4)
    for nan in (0x7F, 0xFF):
        scales = np.full((4, 65536), nan)
        assert all(np.isfinite(result).all() for result in run(mode, True, words, scales))
    mixed = np.stack([np.full(65536, scale) for scale in (0x7F, 0x38, 0xFF, 0x01)])
    for dim, result in enumerate(run(mode, True, words, mixed)):  # a neighbour's NaN changes nothing
        seen = [1, 3]
        wanted = expected(words, mixed, dim)[seen]
        np.testing.assert_array_equal(result[seen].astype(np.float64) * UNPACK_UNITS[mode], wanted)
