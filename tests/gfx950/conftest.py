"""Shared by the gfx950 tests: a skip without the toolchain, and a compiler that keeps its cache inside the test run."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from gfx950.errors import Gfx950Error
from gfx950.tools import find_tool


def _toolchain_problem() -> str | None:
    try:
        for name in ("clang", "llvm-objdump"):
            find_tool(name, "the gfx950 tests compile kernels")
    except Gfx950Error as error:
        return str(error)
    return None


@pytest.fixture(scope="session")
def toolchain() -> None:
    """Skips when clang or llvm-objdump for gfx950 is missing."""
    if problem := _toolchain_problem():
        pytest.skip(problem)


@pytest.fixture(scope="session")
def hip_headers() -> Path:
    """The ROCm-like folder of the triton wheel: include/hip and lib/*.bc."""
    found = importlib.util.find_spec("triton")
    if found is None or found.origin is None:
        pytest.skip("the triton wheel, which carries HIP's headers, is not installed")
    folder = Path(found.origin).parent / "backends" / "amd"
    if not (folder / "include" / "hip" / "hip_runtime.h").is_file():
        pytest.skip(f"{folder} has no HIP headers")
    return folder
