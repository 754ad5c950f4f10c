"""The sparse CUDA kernels compiled for this CPU (tests/support: cuda_on_cpu, flash_mla_on_cpu), called like their backend."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch

from kernels.flash_mla.call import check_call, workload
from kernels.flash_mla.cuda_backend import SPARSE_SOURCES, SparseArgs, SparseCudaBackend, SparsePlan

SUPPORT = Path(__file__).resolve().parents[1] / "support"
OPTIONS = ["-std=c++17", "-O2", "-fPIC", "-shared", "-Wno-unknown-pragmas", "-Wno-pass-failed"]


@functools.cache
def compiler() -> str | None:
    """A C++ compiler that knows _Float16 on x86-64."""
    for name in ("clang++-22", "clang++", "g++"):
        if path := shutil.which(name):
            probe = [path, "-std=c++17", "-x", "c++", "-c", "-o", os.devnull, "-"]
            source = "_Float16 f(float x) { return (_Float16)x; }"
            if subprocess.run(probe, input=source, text=True, capture_output=True).returncode == 0:
                return path
    return None


@functools.cache
def library(change: tuple[str, str, str] | None = None) -> ctypes.CDLL:
    """The kernels; `change` (file, text, its replacement) is made in their source first."""
    sources = dict(SPARSE_SOURCES)
    if change:
        name, text, replacement = change
        assert sources[name].count(text) == 1, f"{name} holds {text!r} {sources[name].count(text)} times"
        sources[name] = sources[name].replace(text, replacement)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in sources.items():
            Path(folder, name).write_text(text)
        for source in (*(SUPPORT / "cuda_on_cpu").iterdir(), *(SUPPORT / "flash_mla_on_cpu").iterdir()):
            shutil.copy(source, folder)  # their ptx.cuh and sparse_ptx.cuh take the places of the GPU's
        built = Path(folder, "sparse.so")
        command = [str(compiler()), *OPTIONS, "-o", str(built), str(Path(folder, "launch.cpp"))]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found = ctypes.CDLL(str(built))
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
