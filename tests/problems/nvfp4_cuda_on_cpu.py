"""The CUDA kernel of the NVFP4 problem compiled for this CPU (tests/support: cuda_on_cpu, nvfp4_on_cpu)."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch
from cpu_build import build

from kernels.nvfp4_msa.cuda_backend import CUDA_SHAPES, CUDA_SIZES, CUDA_SOURCES, CudaArgs, CudaPlan


@functools.cache
def library(change: tuple[str, str, str] | None = None) -> ctypes.CDLL:
    """The kernel; `change` (file, text, its replacement) is made in its source first."""
    found = build(CUDA_SOURCES, "nvfp4_on_cpu", change)
    found.nvfp4_on_cpu.restype = ctypes.c_char_p
    assert found.nvfp4_args_bytes() == ctypes.sizeof(CudaArgs)
    return found


class PlanOnCpu(CudaPlan):
    """A launch raises RuntimeError with what a GPU would have hung or died on."""

    seed, change = 0, None

    def load(self) -> ctypes.CDLL:
        return library(self.change)

    def launch(self) -> None:
        if error := self.library.nvfp4_on_cpu(self.number, ctypes.c_long(self.pages), ctypes.byref(self.args), self.seed):
            raise RuntimeError(error.decode())


def make_plan(data: tuple, splits: int = 1, sizes: tuple[int, int, int] = CUDA_SHAPES[0], change: Any = None) -> PlanOnCpu:
    plan_type = type("ChangedPlan", (PlanOnCpu,), {"change": change})
    return plan_type(data, {"num_kv_splits": splits, **dict(zip(CUDA_SIZES, sizes, strict=True))})


def decode(data: tuple, seed: int = 0, **params: Any) -> torch.Tensor:
    """One launch into buffers full of NaN, under the schedule `seed`."""
    plan = make_plan(data, **params)
    plan.seed = seed
    plan.out.fill_(float("nan"))
    return plan(data)
