"""The layout facts of native/arith/assumptions.hpp, and a way to invert one of them for a while."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntFlag, auto

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
