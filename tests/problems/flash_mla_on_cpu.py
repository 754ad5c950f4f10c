"""The sparse CUDA kernels compiled for this CPU (tests/support: cuda_on_cpu, flash_mla_on_cpu), called like their backend."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch
from cpu_build import build

from kernels.flash_mla.call import check_call, workload
from kernels.flash_mla.cuda_backend import SPARSE_SOURCES, SparseArgs, SparseCudaBackend, SparsePlan


@functools.cache
def library(change: tuple[str, str, str] | None = None) -> ctypes.CDLL:
    """The kernels; `change` (file, text, its replacement) is made in their source first."""
    found = build(SPARSE_SOURCES, "flash_mla_on_cpu", change)
    found.sparse_on_cpu.restype = ctypes.c_char_p
    assert found.sparse_args_bytes() == ctypes.sizeof(SparseArgs)
    return found


class PlanOnCpu(SparsePlan):
    seed, change = 0, None

    def load(self) -> ctypes.CDLL:
        return library(self.change)

    def launch(self) -> None:
        if error := self.library.sparse_on_cpu(ctypes.byref(self.args), self.seed):
            raise RuntimeError(error.decode())


def decode(data: Any, splits: int = 0, seed: int = 0, change: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
    """One launch; `splits` 0: as many as the backend would take.

    Raises RuntimeError with what a GPU would have hung or died on.
    """
    q, cache, options = data
    call = check_call({"q": q, "k_cache": cache, **options})
    params = SparseCudaBackend().default_params(workload(call), q.device)
    plan_type = type("Plan", (PlanOnCpu,), {"seed": seed, "change": change})
    plan = plan_type(call, params | ({"num_kv_splits": splits} if splits else {}))
    plan.part.fill_(torch.nan)  # what a call leaves in the workspace must not matter to the next
    plan.part_lse.fill_(torch.nan)
    return plan(call)
