"""The layout facts of native/arith/assumptions.hpp, and a way to invert one of them for a while."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntFlag, auto

from gfx950 import CodeObject
from gfx950.emulator.build import load_library


class Assumption(IntFlag):
    """One bit each, in the order of the header."""

    FP8_TWO_RUNS = auto()
    FP4_CONSECUTIVE = auto()
    SCALE_LANE_GROUP = auto()
    SCALE_BYTE = auto()
    ROWS_16 = auto()
    ROWS_32 = auto()
    TRANSPOSED_READ = auto()
    PERMLANE_SWAP = auto()
    LDS_DMA_LANES = auto()
    DPP_SHIFT_DIRECTION = auto()

    @property
    def fact(self) -> str:
        return FACTS[self]

    def concerns(self, code: CodeObject) -> bool:
        """Whether the code has an instruction that the fact is about; another compiler version may do without."""
        return any(re.search(INSTRUCTIONS[self], line.text) for line in code.code)


INSTRUCTIONS = {
    Assumption.FP8_TWO_RUNS: "f8f6f4",
    Assumption.FP4_CONSECUTIVE: "f8f6f4",
    Assumption.SCALE_LANE_GROUP: "v_mfma_scale",
    Assumption.SCALE_BYTE: "v_mfma_scale",
    Assumption.ROWS_16: "v_mfma.*_16x16x",
    Assumption.ROWS_32: "v_mfma.*_32x32x",
    Assumption.TRANSPOSED_READ: "ds_read_b64_tr",
    Assumption.PERMLANE_SWAP: "v_permlane.*_swap",
    Assumption.LDS_DMA_LANES: r"^buffer_load.* lds\b|^global_load_lds",
    Assumption.DPP_SHIFT_DIRECTION: "row_shr",
}
FACTS = {
    Assumption.FP8_TWO_RUNS: "8-bit operands of `v_mfma*_f8f6f4`: a lane holds two runs of 16 consecutive k",
    Assumption.FP4_CONSECUTIVE: "4-bit operands: a lane holds 32 consecutive k",
    Assumption.SCALE_LANE_GROUP: "the scale of k block g is in lane group g",
    Assumption.SCALE_BYTE: "`op_sel`, `op_sel_hi` pick the byte of the scale register",
    Assumption.ROWS_16: "16x16 results: lane l holds rows 4 (l / 16) + r of column l % 16",
    Assumption.ROWS_32: "32x32 results: lane l holds rows 8 (r / 4) + 4 (l / 32) + r % 4 of column l % 32",
    Assumption.TRANSPOSED_READ: "`ds_read_b64_tr_b8/b16` hand each lane a column",
    Assumption.PERMLANE_SWAP: "`v_permlane16/32_swap` exchange odd rows of vdst with even rows of the source",
    Assumption.LDS_DMA_LANES: "LDS-DMA: lane l writes at M0 + l times the size",
    Assumption.DPP_SHIFT_DIRECTION: "DPP `row_shr`: a lane receives a lower lane's value",
}


@contextmanager
def inverted(assumption: Assumption) -> Iterator[None]:
    """Within the block the whole process emulates a machine for which `assumption` does not hold."""
    library = load_library()
    library.arith_invert(int(assumption))
    try:
        yield
    finally:
        library.arith_invert(0)


# Corpus kernels that must go wrong, with errors near 1, when the fact is inverted.
PINNED_BY: dict[Assumption, tuple[str, ...]] = {
    Assumption.FP8_TWO_RUNS: ("scaled-e4m3-e2m1-64x64-4warps-mfma16", "scaled-e2m1-e5m2-64x64-4warps-mfma32"),
    Assumption.FP4_CONSECUTIVE: ("scaled-e4m3-e2m1-64x64-4warps-mfma16", "scaled-e2m1-e5m2-64x64-4warps-mfma32"),
    Assumption.SCALE_LANE_GROUP: ("scaled-e4m3-e2m1-64x64-4warps-mfma16", "scaled-e2m1-e5m2-64x64-4warps-mfma32"),
    Assumption.SCALE_BYTE: ("scaled-e4m3-e2m1-64x64-4warps-mfma16", "scaled-e2m1-e5m2-64x64-4warps-mfma32"),
    Assumption.ROWS_16: ("dot-bf16-16x16", "dot-e4m3", "dot-int8"),
    Assumption.ROWS_32: ("dot-bf16-32x32", "dot-e4m3-32x32", "dot-fp32"),
    Assumption.TRANSPOSED_READ: ("dot-bf16-tr", "dot-e4m3-tr"),
    Assumption.PERMLANE_SWAP: ("reduce-sum-axis1-float32-4warps", "sort-int32"),
    Assumption.LDS_DMA_LANES: ("dot-bf16-16x16", "dot-bf16-8warps"),
    Assumption.DPP_SHIFT_DIRECTION: ("softmax-fp32",),
}
