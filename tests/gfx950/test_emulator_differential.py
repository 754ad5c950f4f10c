"""Random programs, compiled by clang for the host and for gfx950 at several optimisation levels, give the same bits."""

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from random_programs import source

from gfx950 import compile_hip
from gfx950.emulator import launch
from gfx950.tools import find_tool

SEEDS = range(12)
THREADS = 128


@pytest.fixture(scope="module")
def host(toolchain, tmp_path_factory) -> ctypes.CDLL:
    folder: Path = tmp_path_factory.mktemp("host")
    (folder / "host.cpp").write_text(source(SEEDS))
    clang = find_tool("clang", "it compiles the host's version")
    library = folder / "host.so"
    options = ["-O1", "-march=x86-64-v3", "-std=c++20", "-fPIC", "-shared", "-ffp-contract=off", "-w", "-nostdlib"]
    subprocess.run([*clang.command, *options, str(folder / "host.cpp"), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="module")
def inputs() -> np.ndarray:
    rng = np.random.default_rng(11)
    words = rng.integers(0, 1 << 32, (THREADS, 8), np.uint32)
    small = rng.integers(0, 16, (THREADS, 8), np.uint32)
    return np.where(rng.random((THREADS, 8)) < 0.3, small, words)


@pytest.mark.parametrize("level", ["-O0", "-O1", "-O3"])
@pytest.mark.parametrize("kind", ["vector", "scalar"])
def test_host_and_gfx950_agree(host, inputs, level, kind):
    code = compile_hip(source(SEEDS), flags=[level, "-ffp-contract=off", "-w"])
    for seed in SEEDS:
        want, got = np.zeros_like(inputs), np.zeros_like(inputs)
        getattr(host, f"f{seed}")(inputs.ctypes.data_as(ctypes.c_void_p), want.ctypes.data_as(ctypes.c_void_p), THREADS)
        grid = THREADS // 64 if kind == "vector" else THREADS
        run = launch(code, f"{kind}{seed}", grid=grid, block=64, args=[inputs, got], strict=False)
        assert not run.findings, f"seed {seed}: {run.findings[0]}"
        differing = np.argwhere(want != got)
        assert len(differing) == 0, f"seed {seed}: {len(differing)} words differ, first (thread, word) {differing[0]}"
