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


def launch_arguments(
    inputs: Sequence[Any], workspace: Sequence[Any], q_len: int, num_kv_splits: int, num_xcds: int, sm_scale: float
) -> tuple[tuple[int, int, int], list[Any]]:
    """Grid and kernel arguments as launch.hip and binding.cpp make them. inputs: the tensors of task.py, on the CPU; workspace:
    out, partial, lse, tickets as HipPlan allocates them."""
    q, _, topk, block_table, seq_lens, *_ = inputs
    (rows, heads, _), (num_kv_heads, topk_rows, num_slots) = q.shape, topk.shape
    names = ("q", "cache", "topk", "block_table", "seq_lens", "k_scale", "v_scale")
    buffers = [frozen(tensor, name) for tensor, name in zip(inputs, names, strict=True)]
    buffers += [Buffer(array, name) for array, name in zip(workspace, ("out", "partial", "lse", "tickets"), strict=True)]
    sizes = [rows, len(seq_lens), q_len, heads // num_kv_heads, num_slots, topk_rows, block_table.shape[1], num_kv_splits]
    unit = q_len * num_xcds
    grid = (-(-rows // unit) * unit, num_kv_splits, num_kv_heads)
    return grid, [*buffers, *sizes, num_xcds, np.float32(sm_scale)]


def nan_workspace(data: Any, num_kv_splits: int) -> list[torch.Tensor]:
    """out, partial and lse full of NaN, tickets zero."""
    q, num_kv_heads = data[0], data[2].shape[0]
    rows, heads, dims = q.shape
    nan = functools.partial(torch.full, fill_value=float("nan"))
    results = [nan(q.shape, dtype=torch.bfloat16), nan((rows * heads, num_kv_splits, dims), dtype=torch.bfloat16)]
    return [*results, nan((rows * heads, num_kv_splits)), torch.zeros(rows, num_kv_heads, dtype=torch.int32)]


def judge_run(data: Any, run: Run) -> dict[str, Any]:
    """What the problem says of a run's output; a ticket counter that is not zero again is a fault like any other."""
    judgement = reference.judge(data, run.args[7])["strict"]
    if judgement["ok"] and run.args[10].any():
        judgement |= {"ok": False, "message": "a ticket counter is not zero again"}
    return judgement


def emulate(
    data: Any,
    traits: Traits,
    num_kv_splits: int,
    *,
    num_xcds: int = 1,
    code: CodeObject | None = None,
    schedules: Sequence[Schedule] = CONJUNCTION,
    lds_fills: Sequence[str] = ("nan", "zero"),
    workgroups_in_flight: int = 8,
) -> Emulation:
    """Decode in the grid that the launcher uses, and judge every run. `data`: as problems/nvfp4_msa/task.py says, on the CPU.

    code: another code object than that of `traits`.
    """
    *inputs, config = data
    judgements: list[dict[str, Any]] = []

    def check(run: Run) -> str | None:
        judgements.append(judge_run(data, run))
        return judgements[-1]["message"] or None

    workspace = nan_workspace(data, num_kv_splits)
    grid, args = launch_arguments(inputs, workspace, config["q_len"], num_kv_splits, num_xcds, config["sm_scale"])
    options = {"schedules": schedules, "lds_fills": lds_fills, "workgroups_in_flight": workgroups_in_flight}
    verdict = verify(code or compile_traits(traits), grid=grid, block=THREADS, args=args, check=check, **options)
    return Emulation(traits, verdict, judgements, int(reference.valid_slots(data).sum()))
