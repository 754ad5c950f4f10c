"""The CUDA kernel of the NVFP4 problem compiled for this CPU (tests/support/cuda_on_cpu) and called like its backend."""

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

from kernels.nvfp4_msa.cuda_backend import (
    CUDA_SHAPES,
    CUDA_SOURCES,
    CUDA_VARIANTS,
    CudaArgs,
    Variant,
    cache_units,
    make_args,
    make_workspace,
)
from kernels.nvfp4_msa.layout import Inputs

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
    """The kernel; `change` (file, text, its replacement) is made in its source first."""
    sources = dict(CUDA_SOURCES)
    if change:
        name, text, replacement = change
        assert sources[name].count(text) == 1, f"{name} holds {text!r} {sources[name].count(text)} times"
        sources[name] = sources[name].replace(text, replacement)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in sources.items():
            Path(folder, name).write_text(text)
        # The CPU's ptx.cuh takes the place of the GPU's.
        for source in (*SUPPORT.glob("cuda_on_cpu/*.*h"), SUPPORT / "nvfp4_on_cpu" / "launch.cpp"):
            shutil.copy(source, folder)
        built = Path(folder, "nvfp4.so")
        command = [str(compiler()), *OPTIONS, "-o", str(built), str(Path(folder, "launch.cpp"))]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found = ctypes.CDLL(str(built))
    found.nvfp4_on_cpu.restype = ctypes.c_char_p
    assert found.nvfp4_args_bytes() == ctypes.sizeof(CudaArgs)
    return found


def decode(
    data: tuple, splits: int = 1, sizes: tuple[int, int, int] = CUDA_SHAPES[0], seed: int = 0, change: Any = None
) -> torch.Tensor:
    """One launch into buffers full of NaN. Raises RuntimeError with what a GPU would have hung or died on."""
    inputs = Inputs(*data)
    work = make_workspace(inputs, splits)
    for left_behind in (work.out, work.part, work.part_lse):
        left_behind.fill_(float("nan"))
    args = make_args(inputs, work, splits)
    variant = CUDA_VARIANTS.index(Variant(*sizes, inputs.config["v_scales"] == "linear"))
    error = library(change).nvfp4_on_cpu(variant, ctypes.c_long(cache_units(inputs)), ctypes.byref(args), seed)
    if error:
        raise RuntimeError(error.decode())
    assert not work.tickets.any(), "a launch leaves zero tickets"
    return work.out
