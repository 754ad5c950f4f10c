"""Sparse MLA decode over a V32 cache with kernels of our own on Hopper (sm_90a): compiled by nvcc, called through ctypes."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import torch

from kernels.flash_mla.assets import (
    CUDA_PTX,
    SPARSE_ATTEND,
    SPARSE_BLOCK,
    SPARSE_GATHER,
    SPARSE_KERNEL,
    SPARSE_LAUNCH,
    SPARSE_MERGE,
    SPARSE_PTX,
    SPARSE_QUERY,
)
from kernels.flash_mla.call import V_DIM, Call, Workload
from kernels.nvcc import compile_library, hopper_multiprocessors, hopper_unavailable, library_cache
from kernels.triton_launch import ceil_div, planned_on

SPARSE_SOURCES = {
    "ptx.cuh": CUDA_PTX,
    "sparse_ptx.cuh": SPARSE_PTX,
    "block.cuh": SPARSE_BLOCK,
    "gather.cuh": SPARSE_GATHER,
    "query.cuh": SPARSE_QUERY,
    "attend.cuh": SPARSE_ATTEND,
    "sparse.cuh": SPARSE_KERNEL,
    "merge.cuh": SPARSE_MERGE,
    "launch.cu": SPARSE_LAUNCH,
}
SPARSE_HEADS, SPARSE_TILE = 64, 64  # query heads and tokens of a block's tile
SPARSE_ROW_BYTES = 656  # of a cached token
SPARSE_MAX_SPLITS = 128
BLOCK_OVERHEAD_TILES = 1.5  # what starting and ending a block costs
MAX_BLOCKS = 2**31 - 1
SPARSE_POINTERS = ("q", "cache", "indices", "length", "sink", "zeros", "out", "lse", "part", "part_lse")
SPARSE_INTS = ("tokens", "heads", "q_len", "topk", "cache_tokens", "page_size", "splits", "row_blocks")


class SparseArgs(ctypes.Structure):
    """`Args` of block.cuh."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in SPARSE_POINTERS),
        ("page_bytes", ctypes.c_long),
        ("sm_scale", ctypes.c_float),
        *((name, ctypes.c_int) for name in SPARSE_INTS),
    )


@functools.cache
def sparse_library(device_index: int) -> ctypes.CDLL:
    """The kernels, ready on a device (which must be the current one). Raises RuntimeError."""
    library = ctypes.CDLL(str(compile_library(SPARSE_SOURCES, "flash_mla", library_cache())))
    if library.sparse_args_bytes() != ctypes.sizeof(SparseArgs):
        raise RuntimeError("kernels/flash_mla/cuda_backend.py and block.cuh disagree about Args")
    if error := library.sparse_prepare():
        raise RuntimeError(f"the sparse kernel cannot run on cuda:{device_index}: CUDA error {error}")
    return library


class SparseCudaBackend:
    name = "cuda"

    def available(self, device: torch.device) -> str | None:
        return hopper_unavailable(device)

    def unserved(self, call: Call) -> str | None:
        """None, or why a call cannot be served on a device that could."""
        if call.layout != "v32" or call.indices is None:
            return f"the CUDA kernels serve sparse attention over a V32 cache and this cache is {call.layout}"
        return None if call.extra_cache is None else "the CUDA kernels serve no extra_k_cache"

    def default_params(self, shape: Workload, device: torch.device) -> dict[str, Any]:
        return {"num_kv_splits": best_splits(shape, hopper_multiprocessors(device))}

    def plan(self, call: Call, params: dict[str, Any]) -> Callable[[Call], tuple[torch.Tensor, torch.Tensor]]:
        return planned_on(call.q.device, lambda: SparsePlan(call, params))


def best_splits(shape: Workload, multiprocessors: int) -> int:
    """The number of splits that takes the fewest tile times; a multiprocessor holds one block."""
    blocks = shape.groups * ceil_div(shape.shared_rows, SPARSE_HEADS)
    tiles = max(1, ceil_div(shape.tokens, SPARSE_TILE))

    def tile_times(splits: int) -> float:
        return ceil_div(blocks * splits, multiprocessors) * (ceil_div(tiles, splits) + BLOCK_OVERHEAD_TILES)

    return min(range(1, min(tiles, SPARSE_MAX_SPLITS) + 1), key=tile_times)


def sparse_args(call: Call, splits: int) -> SparseArgs:
    """What all calls of one plan share, without pointers."""
    assert call.indices is not None
    batch, q_len, heads, _ = call.q.shape
    pages, page_size = call.cache.shape[:2]
    return SparseArgs(
        tokens=batch * q_len,
        heads=heads,
        q_len=q_len,
        topk=call.indices.shape[2],
        cache_tokens=min(pages * page_size, 2**31 - 1),
        page_size=page_size,
        page_bytes=call.cache.stride(0) if pages > 1 else 0,
        splits=splits,
        row_blocks=ceil_div(heads, SPARSE_HEADS),
    )


class SparsePlan:
    """Launches for one call_key, on the current device. The workspace is allocated once and rewritten by every call; outputs
    are new tensors."""

    def __init__(self, call: Call, params: dict[str, Any]) -> None:
        splits, device = int(params["num_kv_splits"]), call.q.device
        if not 1 <= splits <= SPARSE_MAX_SPLITS:
            raise ValueError(f"num_kv_splits={splits}: from 1 to {SPARSE_MAX_SPLITS}")
        self.params, self.device = dict(params), device
        self.args = sparse_args(call, splits)
        rows = self.args.tokens * self.args.heads if splits > 1 else 0
        self.part = torch.empty(rows, splits, V_DIM, dtype=torch.float16, device=device)
        self.part_lse = torch.empty(rows, splits, device=device)
        self.zeros = torch.zeros(SPARSE_ROW_BYTES, dtype=torch.uint8, device=device)
        blocks = self.args.tokens * splits * self.args.row_blocks
        if blocks > MAX_BLOCKS:
            raise ValueError(f"{blocks} blocks: at most {MAX_BLOCKS} in a launch")
        self.library = self.load()

    def load(self) -> ctypes.CDLL:
        return sparse_library(self.device.index or 0)

    def __call__(self, call: Call) -> tuple[torch.Tensor, torch.Tensor]:
        batch, q_len, heads, _ = call.q.shape
        out = torch.empty(batch, q_len, heads, V_DIM, dtype=torch.bfloat16, device=self.device)
        lse = torch.empty(batch, heads, q_len, device=self.device)
        self.point_to(call, out, lse)
        if out.numel():
            self.launch()
        return out, lse

    def point_to(self, call: Call, out: torch.Tensor, lse: torch.Tensor) -> None:
        tensors = (call.q, call.cache, call.indices, call.length, call.sink, self.zeros, out, lse, self.part, self.part_lse)
        for name, tensor in zip(SPARSE_POINTERS, tensors, strict=True):
            setattr(self.args, name, None if tensor is None else tensor.data_ptr())
        self.args.sm_scale = call.sm_scale

    def launch(self) -> None:
        if error := self.library.sparse_decode(ctypes.byref(self.args)):
            raise RuntimeError(f"the sparse kernel could not be launched: CUDA error {error}")
