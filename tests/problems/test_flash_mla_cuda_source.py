"""The sparse CUDA backend where there is no GPU: it compiles as it is meant to, and it says why it is not available."""

import ctypes
import subprocess

import pytest
import torch

from kernels.flash_mla.call import Workload
from kernels.flash_mla.cuda_backend import SPARSE_SOURCES, SparseArgs, SparseCudaBackend, best_splits
from kernels.nvcc import NVCC_OPTIONS, compile_library, find_nvcc

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")


def test_a_cpu_is_refused_with_the_reason():
    assert "NVIDIA GPU" in str(SparseCudaBackend().available(torch.device("cpu")))


@needs_nvcc
def test_compiles_and_agrees_about_the_arguments(tmp_path):
    try:
        path = compile_library(SPARSE_SOURCES, "flash_mla", tmp_path)
    except RuntimeError as error:
        if "compute_90a" in str(error):
            pytest.skip("this nvcc does not know sm_90a")
        raise
    assert ctypes.CDLL(str(path)).sparse_args_bytes() == ctypes.sizeof(SparseArgs)


@needs_nvcc
def test_nothing_is_spilled_and_no_product_waits_for_the_one_before(tmp_path):
    for name, text in SPARSE_SOURCES.items():
        (tmp_path / name).write_text(text)
    command = [str(find_nvcc()), *NVCC_OPTIONS, "-Xptxas", "-v", "-o", str(tmp_path / "x.so"), str(tmp_path / "launch.cu")]
    said = subprocess.run(command, capture_output=True, text=True).stderr
    if "compute_90a" in said:
        pytest.skip("this nvcc does not know sm_90a")
    assert said.count(" 0 bytes spill stores, 0 bytes spill loads") == said.count("bytes spill stores") > 0
    assert "serialized" not in said, said


@pytest.mark.parametrize(("batch", "heads", "splits"), [(4, 64, 32), (32, 64, 4), (64, 64, 2), (128, 64, 1), (128, 128, 1)])
def test_as_many_splits_as_fill_a_device(batch, heads, splits):
    assert best_splits(Workload("v32", batch, 1, heads, 1, 2048), 132) == splits
