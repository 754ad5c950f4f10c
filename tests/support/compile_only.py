"""The host side of HIP kernels through clang without ROCm and without a linker: syntax and types only."""

import subprocess
import sysconfig
from pathlib import Path

import pytest
import torch

SIDES = ("--cuda-host-only", "--cuda-device-only")


def compile_only(source: str, language: str, flags: list[str], folder: Path) -> None:
    path = folder / "module.src"
    path.write_text(source)
    command = ["clang-22", "-x", language, "-fsyntax-only", "-std=c++20", *flags, str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def compile_module(source: str, side: str, folder: Path) -> None:
    """Kernels and launcher against the HIP headers of the triton wheel, for the host or for the device."""
    triton = pytest.importorskip("triton")
    headers = Path(triton.__file__).parent / "backends" / "amd" / "include"
    resources = subprocess.run(["clang-22", "-print-resource-dir"], capture_output=True, text=True).stdout.strip()
    flags = [side, "--offload-arch=gfx950", "-nogpulib", "-nogpuinc", "-D__HIP_PLATFORM_AMD__=1", "-isystem", str(headers)]
    flags += ["-isystem", f"{resources}/include/cuda_wrappers", "-include", "__clang_hip_runtime_wrapper.h"]
    compile_only(source, "hip", flags, folder)


def compile_binding(source: str, folder: Path) -> None:
    """Against torch/types.h, which is what a binding needs of torch/extension.h, which the loader includes."""
    include = Path(torch.__file__).parent / "include"
    flags = ["-isystem", str(include), "-isystem", str(include / "torch/csrc/api/include")]
    flags += ["-isystem", sysconfig.get_paths()["include"]]
    compile_only("#include <torch/types.h>\n" + source, "c++", flags, folder)
