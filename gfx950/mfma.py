"""What a matrix instruction's mnemonic says: shape, family, how long it takes.

Passes are those of LLVM's SISchedule.td (SIDPGFX950FullSpeedModel); one pass takes 4 cycles.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .decode import Instruction

_SHAPE = re.compile(r"v_(?:s?mfmac?)_(?:scale_)?([fi]\d+)_(\d+)x(\d+)x(\d+)_(?:(\d+)b_)?(\w+)")
# (mnemonic, passes); an operand of 8 bits doubles those of the f8f6f4 shapes.
_PASSES = (
    (r"v_mfma_f64_16x16", 16),
    (r"v_mfma_f64_4x4", 4),
    (r"v_mfma_\w+_4x4x", 2),
    (r"v_mfma_(scale_)?f32_32x32x64_f8f6f4", 8),
    (r"v_mfma_\w+_16x16x[14]_", 8),
    (r"v_mfma_\w+_32x32x[124]_", 16),
    (r"v_(mfma|smfmac)_\w+_16x16x", 4),
    (r"v_(mfma|smfmac)_\w+_32x32x", 8),
)
FORMATS = ("fp8", "bf8", "fp6", "bf6", "fp4")  # of an f8f6f4 operand, by cbsz (A) and blgp (B)


@dataclass(frozen=True)
class Shape:
    """One matrix instruction: D[m, n] += A[m, k] B[k, n], `blocks` independent ones at once."""

    result: str  # f32, f64, i32
    m: int
    n: int
    k: int
    blocks: int
    inputs: str  # bf16, f16, i8, fp8_fp8, f8f6f4, ...

    @property
    def flops(self) -> int:
        """Floating (or integer) operations, a multiply-add counting two. Sparse forms (smfmac) do half of what k says."""
        return 2 * self.m * self.n * self.k * self.blocks


def shape(inst: Instruction) -> Shape:
    """The shape named by an MFMA's mnemonic."""
    found = _SHAPE.match(inst.base)
    if found is None:
        raise ValueError(f"{inst.mnemonic} is not an MFMA")
    result, m, n, k, blocks, inputs = found.groups()
    return Shape(result, int(m), int(n), int(k), int(blocks or 1), inputs)


def label(inst: Instruction) -> str:
    """'f32_16x16x128 fp8 x fp4': what reports count by."""
    this = shape(inst)
    inputs = this.inputs
    if inputs == "f8f6f4":
        inputs = f"{FORMATS[inst.modifiers.get('cbsz', 0)]} x {FORMATS[inst.modifiers.get('blgp', 0)]}"
    blocks = f" {this.blocks} blocks" if this.blocks > 1 else ""
    scaled = " scaled" if "_scale_" in inst.mnemonic else ""
    sparse = " sparse" if "smfmac" in inst.mnemonic else ""
    return f"{this.result}_{this.m}x{this.n}x{this.k}{blocks} {inputs}{scaled}{sparse}"


def passes(inst: Instruction) -> int:
    """Passes that the instruction occupies the matrix core; its result is there as many wait states later."""
    count = next(count for pattern, count in _PASSES if re.match(pattern, inst.base))
    eight_bit = min(inst.modifiers.get("cbsz", 0), inst.modifiers.get("blgp", 0)) < 2
    return 2 * count if "f8f6f4" in inst.mnemonic and eight_bit else count


def family(inst: Instruction) -> str:
    """'dgemm' (f64), 'sgemm' (f32 inputs) or 'xdl' (everything narrower): they differ in their wait states."""
    this = shape(inst)
    return {"f64": "dgemm", "f32": "sgemm"}.get(this.inputs, "xdl")
