"""AITER's objects one by one: what they are run on, how exact they are, and what the emulator must report about them."""

from dataclasses import dataclass, field
from typing import Any

import torch

from gfx950.emulator import Run, Schedule

from . import aiter_mla
from .aiter_mla import Batch

FP8_P_ERROR = 0.03  # relative L2 that rounding P to fp8 costs
BF16_P_ERROR = 2e-3
LOCKSTEP = Schedule.round_robin(1)
LENGTHS = (256, 77, 130)
BF16 = torch.bfloat16
ALL_BF16 = {"q_dtype": BF16, "kv_dtype": BF16}


@dataclass(frozen=True)
class ObjectCase:
    """An object of the wheel. `bound`: relative L2 against fp64. `timing`: right only when memory answers at once.

    `findings`: kinds that must be reported under the lockstep schedule (timing cases) or may be (all others).
    """

    name: str
    bound: float
    findings: frozenset[str] = frozenset({"lds-race"})
    layout: dict[str, Any] = field(default_factory=dict)
    timing: bool = False
    output_scaled: bool = True  # False: the object leaves kv_scale out of its output

    @property
    def persistent(self) -> bool:
        return "_ps" in self.name

    def batch(self, lengths: tuple[int, ...] = LENGTHS) -> Batch:
        return aiter_mla.make_batch(lengths, torch.Generator().manual_seed(1), **self.layout)


IN_FLIGHT = frozenset({"in-flight-read"})

CASES = [
    ObjectCase("mla_a8w8_qh16_qseqlen1_gqaratio16_ps", FP8_P_ERROR),
    ObjectCase("mla_a8w8_qh16_qseqlen1_gqaratio16", FP8_P_ERROR),
    # Its LDS stores are not waited for before the barrier; right because LDS keeps their order.
    ObjectCase("mla_dec_stage1_bf16_a16w16_subQ16_mqa16", BF16_P_ERROR, layout=ALL_BF16),
    ObjectCase("mla_a8w8_qh16_qseqlen2_gqaratio16_ps", FP8_P_ERROR, layout={"q_len": 2}, timing=True),
    ObjectCase("mla_a8w8_qh16_qseqlen2_gqaratio16_ps_page", FP8_P_ERROR, layout={"q_len": 2, "page_size": 4}, timing=True),
    ObjectCase("mla_a8w8_qh16_qseqlen4_gqaratio16_ps", FP8_P_ERROR, IN_FLIGHT | {"lds-race"}, {"q_len": 4}, True, False),
    ObjectCase("mla_a8w8_qh16_qseqlen4_gqaratio16_ps_page", FP8_P_ERROR, IN_FLIGHT | {"lds-race"},
               {"q_len": 4, "page_size": 4}, True, False),
    ObjectCase("mla_a16w8_qh16_m16x4_n16x1_coex0_mask1_ps", BF16_P_ERROR, IN_FLIGHT, {"q_dtype": BF16}, True),
    ObjectCase("mla_a16w16_qh16_m16x4_n16x1_coex0_mask1_ps", BF16_P_ERROR, IN_FLIGHT, ALL_BF16, True),
]  # fmt: skip
BY_NAME = {case.name: case for case in CASES}


def relative_l2(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual.double() - expected).norm() / expected.norm())


def run_case(case: ObjectCase, work: Batch, num_splits: int = 2, schedule: Schedule = LOCKSTEP) -> tuple[Run, torch.Tensor]:
    """One launch and its final output [queries, 16, 512] fp64, the splits combined."""
    if case.persistent:
        made = aiter_mla.plan(work, num_splits, cus=3)
        run, outputs = aiter_mla.run_persistent(case.name, work, made, schedule=schedule)
        return run, aiter_mla.reduce_partials(made, outputs)
    run, outputs = aiter_mla.run_split(case.name, work, num_splits, schedule=schedule)
    return run, aiter_mla.reduce_splits(work, outputs, num_splits)


def error(case: ObjectCase, work: Batch, out: torch.Tensor) -> float:
    """Relative L2 against fp64 attention; query tokens are causal among themselves, which is how these objects mask."""
    factor = 1.0 if case.output_scaled else float(work.kv_scale)
    return relative_l2(out * factor, aiter_mla.oracle(work, causal=True))
