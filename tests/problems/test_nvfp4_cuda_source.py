"""The CUDA backend of the NVFP4 problem where there is no GPU: it compiles as it is meant to, and it says what it cannot do."""

import ctypes
import subprocess

import pytest
import torch
from nvfp4_cases import make_input

from kernels.nvcc import NVCC_OPTIONS, compile_library, find_nvcc
from kernels.nvfp4_msa.cuda_backend import CUDA_SOURCES, CUDA_VARIANTS, CudaArgs, CudaBackend, CudaPlan
from kernels.nvfp4_msa.layout import ContiguityError, Inputs, RequestsError, Shape

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
PARAMS = {"num_kv_splits": 1, "teams": 1, "stages": 2, "blocks": 4}


def test_a_cpu_is_refused_with_the_reason():
    assert "NVIDIA GPU" in str(CudaBackend().available(torch.device("cpu")))


@needs_nvcc
def test_compiles_and_agrees_about_the_arguments(tmp_path):
    try:
        path = compile_library(CUDA_SOURCES, "nvfp4", tmp_path)
    except RuntimeError as error:
        if "compute_90a" in str(error):
            pytest.skip("this nvcc does not know sm_90a")
        raise
    assert ctypes.CDLL(str(path)).nvfp4_args_bytes() == ctypes.sizeof(CudaArgs)


@needs_nvcc
def test_no_variant_spills_registers(tmp_path):
    for name, text in CUDA_SOURCES.items():
        (tmp_path / name).write_text(text)
    command = [str(find_nvcc()), *NVCC_OPTIONS, "-Xptxas", "-v", "-o", str(tmp_path / "x.so"), str(tmp_path / "launch.cu")]
    said = subprocess.run(command, capture_output=True, text=True).stderr
    if "compute_90a" in said:
        pytest.skip("this nvcc does not know sm_90a")
    assert said.count(" 0 bytes spill stores, 0 bytes spill loads") == len(CUDA_VARIANTS), said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_kv_splits": 0}, r"one of \(1, 2, 4, 8\)"),
        ({"num_kv_splits": 3}, r"one of \(1, 2, 4, 8\)"),
        ({"stages": 9}, r"teams, stages, blocks are \(1, 9, 4\)"),
    ],
)
def test_parameters_that_do_not_exist(change, words):
    with pytest.raises(ValueError, match=words):
        CudaPlan(make_input(), PARAMS | change)


def test_a_cache_that_the_copy_engine_cannot_read_is_refused():
    data = make_input(batchsize=1, kvseqlen=100, topk=1)
    storage = torch.zeros(data[1].numel() + 32, dtype=torch.uint8)
    offset = 8 - storage.data_ptr() % 16 + 16
    with pytest.raises(ContiguityError, match="8 bytes past a multiple of 16"):
        CudaPlan((data[0], storage[offset : offset + data[1].numel()].view(data[1].shape), *data[2:]), PARAMS)


@pytest.mark.parametrize(("name", "shape"), [("topk", (1, 1 << 25, 64)), ("block_table", (1 << 16, 1 << 15))])
def test_lists_that_32_bits_cannot_count_are_refused(name, shape):
    inputs = Inputs(*make_input(batchsize=1, kvseqlen=100, topk=1))
    long = torch.zeros([1] * len(shape), dtype=torch.int32).expand(shape)
    with pytest.raises(RequestsError, match=f"{name} has 2147483648 entries; .* fewer than 2147483648: split the batch"):
        CudaPlan(inputs._replace(**{name: long}), PARAMS)


@pytest.mark.parametrize(
    ("pairs", "topk", "splits", "teams"),
    [(1, 16, 8, 2), (64, 16, 2, 3), (256, 16, 1, 2), (768, 16, 1, 2), (1024, 16, 1, 1), (256, 64, 1, 2), (1, 1, 1, 1)],
)
def test_defaults_fill_132_multiprocessors_evenly(pairs, topk, splits, teams):
    params = CudaBackend().default_params(Shape(pairs, 1, 32768, topk, 1, 16), torch.device("cpu"))
    assert (params["num_kv_splits"], params["teams"]) == (splits, teams)
