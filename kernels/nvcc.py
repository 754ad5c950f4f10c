"""nvcc: where it is, and shared libraries compiled by it once."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

H200_MULTIPROCESSORS = 132
NVCC_OPTIONS = ("-O3", "-std=c++17", "-gencode=arch=compute_90a,code=sm_90a", "-shared", "-Xcompiler", "-fPIC")


def find_nvcc() -> str | None:
    """nvcc on PATH, or where CUDA_HOME says, or where CUDA installs itself."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    places = [os.path.join(home, "bin", "nvcc") for home in homes if home]
    return shutil.which("nvcc") or next((place for place in places if os.access(place, os.X_OK)), None)


def hopper_unavailable(device: torch.device) -> str | None:
    """Why CUDA kernels written for sm_90a cannot be compiled for a device and run on it; None if they can."""
    if device.type != "cuda" or torch.version.cuda is None:
        return f"the CUDA backend needs an NVIDIA GPU and the tensors are on {device.type}"
    capability = torch.cuda.get_device_capability(device)
    if capability != (9, 0):
        return f"the CUDA backend is written for sm_90a and this GPU is sm_{capability[0]}{capability[1]}"
    return None if find_nvcc() else "nvcc is needed to compile the CUDA backend (PATH, CUDA_HOME)"


def hopper_multiprocessors(device: torch.device) -> int:
    """How many multiprocessors a device has; for a CPU, on which parameters can still be computed, an H200's."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else H200_MULTIPROCESSORS


@functools.cache
def library_cache() -> Path:
    """The folder that compiled libraries are kept in; one of this process's own where the user's cache cannot be written."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "kernelproof", "cuda")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            return cache
    except OSError:
        return Path(tempfile.mkdtemp(prefix="kernelproof-cuda-"))


def compile_library(sources: dict[str, str], name: str, folder: Path) -> Path:
    """The shared library of launch.cu among `sources` (file name -> text), compiled into `folder` under `name` and a key that
    sources and options decide, unless it is there.

    Raises RuntimeError with what nvcc said.
    """
    key = hashlib.sha256(repr((sources, NVCC_OPTIONS)).encode()).hexdigest()[:16]
    library = folder / f"{name}_sm90a_{key}.so"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for file, text in sources.items():
            Path(scratch, file).write_text(text)
        built = Path(scratch, "built.so")
        command = [find_nvcc() or "nvcc", *NVCC_OPTIONS, "-o", str(built), str(Path(scratch, "launch.cu"))]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"nvcc could not compile the CUDA kernels:\n{done.stderr[-2000:]}")
        built.replace(library)
    return library
