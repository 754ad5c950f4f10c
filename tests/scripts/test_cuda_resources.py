"""Registers, spills and shared memory of the CUDA kernels, from what ptxas says."""

import json

import pytest

from kernels.cuda_backend import CUDA_KERNELS
from kernels.nvcc import find_nvcc
from scripts import cuda_resources
from scripts.cuda_resources import Compiled, NvccFailed, blocks_at_once, kernel_of, parse_ptxas

PTXAS = """\
ptxas info    : 0 bytes gmem, 24 bytes cmem[4]
ptxas info    : Compiling entry function '_Z10mla_directI6DirectILi2EEEvv' for 'sm_90a'
ptxas info    : Function properties for _Z10mla_directI6DirectILi2EEEvv
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 168 registers, used 5 barriers, 16 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Compile time = 512.3 ms
ptxas info    : Compiling entry function '_Z5plainv' for 'sm_90a'
ptxas info    : Function properties for _Z5plainv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers
"""


def test_what_ptxas_prints():
    found = parse_ptxas(PTXAS)
    assert found == {"_Z10mla_directI6DirectILi2EEEvv": Compiled(168, 1024, 16, 8, 12), "_Z5plainv": Compiled(12, 0, 0, 0, 0)}


def test_a_variant_is_found_by_its_type():
    kernel = kernel_of("fp8_wide", ["6DirectILi2EE", "384", "200000"], parse_ptxas(PTXAS))
    assert (kernel.shared_bytes, kernel.spill_bytes, kernel.blocks_per_multiprocessor) == (201_024, 20, 1)
    with pytest.raises(NvccFailed, match=r"ptxas reported no kernel of fp8_wide \(9Elsewhere\)"):
        kernel_of("fp8_wide", ["9Elsewhere", "384", "0"], parse_ptxas(PTXAS))


@pytest.mark.parametrize(
    ("threads", "registers", "shared_bytes", "blocks"),
    [
        (384, 168, 0, 1),  # 12 warps of 5376 registers
        (256, 128, 0, 2),
        (256, 128, 114 << 10, 1),  # two would need 230 KiB with what is reserved
        (256, 128, 113 << 10, 2),
        (1024, 32, 0, 2),
        (32, 16, 0, 32),
    ],
)
def test_blocks_that_fit(threads, registers, shared_bytes, blocks):
    """CUDA's occupancy calculator for compute capability 9.0 says the same."""
    assert blocks_at_once(threads, registers, shared_bytes) == blocks


def test_without_nvcc_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(cuda_resources, "find_nvcc", lambda: None)
    assert cuda_resources.main([]) == 2
    assert capsys.readouterr().err.startswith("error: nvcc is not on PATH")


def test_what_nvcc_says_is_told(monkeypatch, tmp_path, capsys):
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho 'launch.cu(3): error: something' >&2\nexit 1\n")
    nvcc.chmod(0o755)
    monkeypatch.setattr(cuda_resources, "find_nvcc", lambda: str(nvcc))
    assert cuda_resources.main([]) == 3
    assert "launch.cu(3): error: something" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
def test_every_kernel_is_compiled_and_reported(tmp_path, capsys):
    assert cuda_resources.main(["--json", str(tmp_path / "r.json")]) == 0
    kernels = json.loads((tmp_path / "r.json").read_text())["kernels"]
    assert [kernel["name"] for kernel in kernels] == list(CUDA_KERNELS)
    assert all(kernel["blocks_per_multiprocessor"] >= 1 for kernel in kernels)
    assert capsys.readouterr().out.count("\n|") >= len(CUDA_KERNELS)
