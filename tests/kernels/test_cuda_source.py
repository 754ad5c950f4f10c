"""The CUDA backend where there is no GPU: it compiles, and it says why it is not available."""

import ctypes

import pytest
import torch

from kernels.cuda_backend import CudaArgs, CudaBackend, compile_cuda
from kernels.layout import Shape
from kernels.nvcc import find_nvcc

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")


@pytest.mark.parametrize(
    ("batch", "kv_len", "kernel", "cluster"),
    [(4, 1024, "fp8_wide", 16), (32, 8192, "mxfp4", 3), (64, 1024, "fp8_wide", 2), (256, 1024, "fp8_narrow", 1)],
)
def test_defaults_fill_an_h200(batch, kv_len, kernel, cluster):
    found = CudaBackend().default_params(Shape(batch, 1, kv_len, 16), torch.device("cpu"))
    assert found == {"kernel": kernel, "cluster": cluster, "groups": 1}


def test_a_cpu_is_refused_with_the_reason():
    assert "NVIDIA GPU" in str(CudaBackend().available(torch.device("cpu")))


@needs_nvcc
def test_compiles_once_and_agrees_about_the_arguments(tmp_path):
    try:
        path = compile_cuda(tmp_path)
    except RuntimeError as error:
        if "compute_90a" in str(error):
            pytest.skip("this nvcc does not know sm_90a")
        raise
    first = path.stat().st_mtime_ns
    assert compile_cuda(tmp_path).stat().st_mtime_ns == first
    assert ctypes.CDLL(str(path)).mla_args_bytes() == ctypes.sizeof(CudaArgs)


def test_what_nvcc_said_is_told(tmp_path, monkeypatch):
    compiler = tmp_path / "nvcc"
    compiler.write_text("#!/bin/sh\necho 'launch.cu(3): error: something' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(RuntimeError, match=r"launch.cu\(3\): error: something"):
        compile_cuda(tmp_path / "cache")
