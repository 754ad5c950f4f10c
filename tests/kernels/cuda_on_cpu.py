"""The CUDA kernels compiled for this CPU (tests/support/cuda_on_cpu) and called like their backend."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch
from cpu_build import build

from kernels.cuda_backend import CUDA_KERNELS, CUDA_MAX_CLUSTER, CUDA_ROWS, CUDA_SOURCES, CudaArgs, split_args
from kernels.layout import shape_of


@functools.cache
def library(change: tuple[str, str, str] | None = None) -> ctypes.CDLL:
    """The kernels; `change` (file, text, its replacement) is made in their source first."""
    found = build(CUDA_SOURCES, "cuda_on_cpu", change)
    found.mla_on_cpu.restype = ctypes.c_char_p
    assert found.mla_args_bytes() == ctypes.sizeof(CudaArgs)
    return found


def decode(
    data: Any, kernel: str, cluster: int = 1, groups: int = 1, seed: int = 0, pages: Any = None, change: Any = None
) -> torch.Tensor:
    """One launch; `pages` (block table, page size) for a paged kernel.

    Raises RuntimeError with what a GPU would have hung or died on.
    """
    q, kv_data, _, kv_indptr, config = data
    shape = shape_of(data)
    kv_format = kernel.partition("_")[0]
    kv, scale = kv_data[kv_format] if kv_format != "bf16" else (kv_data["bf16"], kv_data["fp8"][1])
    row_blocks = -(-shape.rows // CUDA_ROWS)
    blocks = shape.batch * row_blocks
    nan = float("nan")
    out = torch.full((*q.shape[:2], 512), nan, dtype=torch.bfloat16)
    part = torch.full((blocks, groups, CUDA_ROWS, 512), nan)
    part_ml = torch.full((blocks, groups, CUDA_ROWS, 2), nan)
    tickets = torch.zeros(blocks, CUDA_MAX_CLUSTER, dtype=torch.int32)
    table, page_size = pages or (kv_indptr, 1)
    args = CudaArgs(
        q=q.data_ptr(),
        kv_scale=scale.data_ptr(),
        kv=kv.data_ptr(),
        kv_e8m0=scale.data_ptr(),
        kv_e8m0_end=scale.data_ptr() + scale.numel() * scale.element_size(),
        kv_indptr=kv_indptr.data_ptr(),
        block_table=table.data_ptr(),
        out=out.data_ptr(),
        part=part.data_ptr(),
        part_ml=part_ml.data_ptr(),
        tickets=tickets.data_ptr(),
        sm_scale=config["sm_scale"],
        rows=shape.rows,
        row_blocks=row_blocks,
        **split_args(shape.kv_len, cluster, groups),
        e8m0_stride=scale.shape[-1],
        table_stride=table.shape[-1],
        page_bits=page_size.bit_length() - 1,
        uniform_len=shape.kv_len if kv.shape[0] == shape.batch * shape.kv_len else 0,
    )
    error = library(change).mla_on_cpu(
        CUDA_KERNELS.index(kernel), ctypes.c_void_p(kv.data_ptr()), ctypes.c_long(kv.shape[0]), ctypes.byref(args), blocks, seed
    )
    if error:
        raise RuntimeError(error.decode())
    assert tickets.count_nonzero() == 0, "a launch leaves zero tickets"
    return out
