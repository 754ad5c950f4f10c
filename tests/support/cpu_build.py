"""CUDA sources compiled for this CPU with the machine of tests/support/cuda_on_cpu."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
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


def build(sources: dict[str, str], support: str, change: tuple[str, str, str] | None) -> ctypes.CDLL:
    """The library of launch.cpp in the folder `support` of tests/support, whose files take the places of those of `sources`;
    `change` (file, text, its replacement) is made in the sources first."""
    sources = dict(sources)
    if change:
        name, text, replacement = change
        if sources[name].count(text) != 1:  # no AssertionError: that is how a mistake is noticed
            raise LookupError(f"{name} holds {text!r} {sources[name].count(text)} times")
        sources[name] = sources[name].replace(text, replacement)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in sources.items():
            Path(folder, name).write_text(text)
        for source in (*SUPPORT.glob("cuda_on_cpu/*.*h"), *(SUPPORT / support).iterdir()):
            shutil.copy(source, folder)
        built = Path(folder, "built.so")
        command = [str(compiler()), *OPTIONS, "-o", str(built), str(Path(folder, "launch.cpp"))]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return ctypes.CDLL(str(built))
