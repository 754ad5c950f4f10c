"""The HIP kernels of kernels/nvfp4_msa/hip on CPU tensors: compiled for gfx950, run in the emulator, judged by the problem."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gfx950 import CodeObject, compile_hip  # noqa: E402
from gfx950.emulator import CONJUNCTION, Buffer, Run, Schedule, Verdict, verify  # noqa: E402
from gfx950.report import KernelReport, report  # noqa: E402
from harness.modules import ModuleSpace  # noqa: E402
from kernels.nvfp4_msa.hip_backend import Traits, device_source  # noqa: E402
from kernels.nvfp4_msa.layout import HEAD_BYTES  # noqa: E402
from scripts.hip_emulation import THREADS, frozen  # noqa: E402

reference: Any = ModuleSpace(ROOT / "problems" / "nvfp4_msa").load("reference")

SIGNATURE = (
    "const __bf16*, const u8*, const int*, const int*, const int*, const float*, const float*, __bf16*, __bf16*, float*, u32*, "
    "int, int, int, int, int, int, int, int, int, float"
)


@dataclasses.dataclass(frozen=True)
class Emulation:
    """All runs of one case: the emulator's verdict, and what the problem's judge said of each run's output."""

    traits: Traits
    verdict: Verdict
    judgements: list[dict[str, Any]]
    tiles: int  # blocks that rows and KV heads attend to; duplicates count

    @property
    def run(self) -> Run:
        return self.verdict.runs[0]

    @property
    def rel_l2_worst(self) -> float:
        return max(judgement["rel_l2_worst"] or 0.0 for judgement in self.judgements)

    @property
    def kv_bytes_ratio(self) -> float:
        """Cache bytes requested over the bytes of the blocks."""
        return self.run.counters.buffers["cache"].requested_load / (self.tiles * HEAD_BYTES) if self.tiles else 1.0


def instantiation(traits: Traits) -> str:
    return f"template __global__ void nvfp4_decode<Traits{{{traits.initializer()}}}>({SIGNATURE});\n"


@functools.cache
def compile_traits(traits: Traits) -> CodeObject:
    return compile_hip(device_source() + instantiation(traits))


def decode_report(traits: Traits) -> KernelReport:
    """Registers, LDS and occupancy of the kernel."""
    return report(compile_traits(traits))[0]


def emulate(
    data: Any,
    traits: Traits,
    num_kv_splits: int,
    *,
    num_xcds: int = 1,
    code: CodeObject | None = None,
    tickets: torch.Tensor | None = None,
    schedules: Sequence[Schedule] = CONJUNCTION,
    lds_fills: Sequence[str] = ("nan", "zero"),
    workgroups_in_flight: int = 8,
) -> Emulation:
    """Decode in the grid that the launcher uses, and judge every run. `data`: as problems/nvfp4_msa/task.py says, on the CPU.

    code: another code object than that of `traits`. tickets: int32 [rows, num_kv_heads], the counters before the launch.
    """
    q, topk, block_table, seq_lens, config = data[0], *data[2:5], data[7]
    (rows, heads, _), (num_kv_heads, topk_rows, num_slots) = q.shape, topk.shape
    judgements: list[dict[str, Any]] = []

    def check(run: Run) -> str | None:
        out, tickets_after = run.args[7], run.args[10]
        judgements.append(judgement := reference.judge(data, out)["strict"])
        return judgement["message"] or ("a ticket counter is not zero again" if tickets_after.any() else None)

    nan = functools.partial(torch.full, fill_value=float("nan"))
    counters = torch.zeros(rows, num_kv_heads, dtype=torch.int32) if tickets is None else tickets
    names = ("q", "cache", "topk", "block_table", "seq_lens", "k_scale", "v_scale")
    inputs = [frozen(tensor, name) for tensor, name in zip(data[:7], names, strict=True)]
    outputs = [
        Buffer(nan(q.shape, dtype=torch.bfloat16), "out"),
        Buffer(nan((rows * heads, num_kv_splits, q.shape[2]), dtype=torch.bfloat16), "partial"),
        Buffer(nan((rows * heads, num_kv_splits)), "lse"),
        Buffer(counters, "tickets"),
    ]
    q_len, unit = config["q_len"], config["q_len"] * num_xcds
    sizes = [rows, len(seq_lens), q_len, heads // num_kv_heads, num_slots, topk_rows, block_table.shape[1], num_kv_splits]
    verdict = verify(
        code or compile_traits(traits),
        grid=(-(-rows // unit) * unit, num_kv_splits, num_kv_heads),
        block=THREADS,
        args=[*inputs, *outputs, *sizes, num_xcds, np.float32(config["sm_scale"])],
        check=check,
        schedules=schedules,
        lds_fills=lds_fills,
        workgroups_in_flight=workgroups_in_flight,
    )
    return Emulation(traits, verdict, judgements, int(reference.valid_slots(data).sum()))
