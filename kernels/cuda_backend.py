"""MLA decode with kernels of our own on Hopper (sm_90a), fp8, mxfp4 and bf16 KV: compiled by nvcc, called through ctypes."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kernels.assets import (
    CUDA_ATTEND,
    CUDA_BLOCK,
    CUDA_COMBINE,
    CUDA_DECODE,
    CUDA_DIRECT,
    CUDA_HOLD,
    CUDA_LAUNCH,
    CUDA_PTX,
    CUDA_QUERY,
    CUDA_UNPACK,
    CUDA_UNPACKED,
    CUDA_VARIANTS,
)
from kernels.layout import V_DIM, Shape, shape_of
from kernels.nvcc import compile_library, hopper_multiprocessors, hopper_unavailable, library_cache
from task import input_t

CUDA_SOURCES = {
    "ptx.cuh": CUDA_PTX,
    "decode.cuh": CUDA_DECODE,
    "query.cuh": CUDA_QUERY,
    "attend.cuh": CUDA_ATTEND,
    "combine.cuh": CUDA_COMBINE,
    "block.cuh": CUDA_BLOCK,
    "direct.cuh": CUDA_DIRECT,
    "unpack.cuh": CUDA_UNPACK,
    "hold.cuh": CUDA_HOLD,
    "unpacked.cuh": CUDA_UNPACKED,
    "variants.cuh": CUDA_VARIANTS,
    "launch.cu": CUDA_LAUNCH,
}
# The variants of variants.cuh, by their numbers there.
CUDA_KERNELS = (
    "fp8_wide",
    "fp8_narrow",
    "fp8_paged",
    "bf16_wide",
    "bf16_paged",
    "mxfp4",
)
CUDA_ROWS, CUDA_TILE = 16, 64  # query rows of a block; tokens of a tile
CUDA_MAX_CLUSTER = 16
CUDA_MAX_SPLITS = 64
CUDA_UNITS = 64  # of a block's output, 128 dims of a row each: what the blocks of a cluster share out
MXFP4_TILES = 24  # of a block; measured on an H200: 16 are faster as fp8, 32 as mxfp4
MAP_ALIGNMENT = 64
MIN_PAGE = 8  # tokens: the swizzle of a tile repeats after eight rows
CUDA_INPUTS = ("q", "kv_scale", "kv", "kv_e8m0", "kv_e8m0_end", "kv_indptr", "block_table")
CUDA_POINTERS = (*CUDA_INPUTS, "out", "part", "part_ml", "tickets")
CUDA_INTS = (
    "rows", "row_blocks", "cluster", "groups", "e8m0_stride", "table_stride", "page_bits",
    "uniform_len", "uniform_each", "uniform_more", "share", "share_inverse",
)  # fmt: skip


class CudaArgs(ctypes.Structure):
    """`Args` of decode.cuh."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in CUDA_POINTERS),
        ("sm_scale", ctypes.c_float),
        *((name, ctypes.c_int) for name in CUDA_INTS),
    )


def split_args(kv_len: int, cluster: int, groups: int) -> dict[str, int]:
    """What `Args` holds about the splits of sequences that all have `kv_len` tokens, and about the shares of the blocks of a
    cluster: divisions that a kernel would start with."""
    each, more = divmod(-(-kv_len // CUDA_TILE), cluster * groups)
    share = -(-CUDA_UNITS // cluster)
    return {
        "cluster": cluster,
        "groups": groups,
        "uniform_each": each,
        "uniform_more": more,
        "share": share,
        "share_inverse": -(-(1 << 16) // share),
    }


def compile_cuda(folder: Path) -> Path:
    """The shared library, compiled into `folder` unless it is there. Raises RuntimeError with what nvcc said."""
    return compile_library(CUDA_SOURCES, "mla", folder)


@functools.cache
def cuda_library(device_index: int) -> ctypes.CDLL:
    """The kernels, ready on a device (which must be the current one). Raises RuntimeError."""
    library = ctypes.CDLL(str(compile_cuda(library_cache())))
    if library.mla_args_bytes() != ctypes.sizeof(CudaArgs):
        raise RuntimeError("kernels/cuda_backend.py and decode.cuh disagree about Args")
    for variant, name in enumerate(CUDA_KERNELS):
        if error := library.mla_prepare(variant):
            raise RuntimeError(f"kernel {name} cannot run on cuda:{device_index}: CUDA error {error}")
    return library


def clusters_at_once(size: int, multiprocessors: int) -> int:
    """Clusters of wide blocks that run together. A cluster stays within a group of 16 or 18 multiprocessors, so those of more
    than two blocks leave some idle: at least 77 % were in use on an H200 for every size up to 16."""
    return multiprocessors // size if size <= 2 else int(0.77 * multiprocessors) // size


class CudaBackend:
    name = "cuda"

    def available(self, device: torch.device) -> str | None:
        return hopper_unavailable(device)

    def default_params(self, shape: Shape, device: torch.device) -> dict[str, Any]:
        """Enough blocks to fill the device: clusters of splits, or for many sequences none. mxfp4 where a block has so many
        tiles that reading a third fewer bytes outweighs the unpacking; narrow fp8 blocks where two of them fill each other's
        gaps between sequences."""
        multiprocessors = hopper_multiprocessors(device)
        blocks = shape.batch * -(-shape.rows // CUDA_ROWS)
        tiles = max(-(-shape.kv_len // CUDA_TILE), 1)
        sizes = range(1, min(tiles, CUDA_MAX_CLUSTER) + 1)
        cluster = max((size for size in sizes if clusters_at_once(size, multiprocessors) >= blocks), default=1)
        fp8 = "fp8_narrow" if blocks > multiprocessors else "fp8_wide"
        return {"kernel": "mxfp4" if tiles >= MXFP4_TILES * cluster else fp8, "cluster": cluster, "groups": 1}

    def plan(self, data: input_t, params: dict[str, Any]) -> Callable[[input_t], torch.Tensor]:
        return CudaPlan(data, params)


class CudaPlan:
    """Launches for one plan_key. Output and workspace are allocated once and rewritten by every call."""

    def __init__(self, data: input_t, params: dict[str, Any]) -> None:
        q, _, _, _, config = data
        shape, device = shape_of(data), q.device
        cluster, groups, kernel = int(params["cluster"]), int(params["groups"]), params["kernel"]
        if not 1 <= cluster <= CUDA_MAX_CLUSTER or not 1 <= cluster * groups <= CUDA_MAX_SPLITS:
            limits = f"clusters of 1 to {CUDA_MAX_CLUSTER} splits, at most {CUDA_MAX_SPLITS} splits"
            raise ValueError(f"cluster={cluster}, groups={groups}: {limits}")
        if kernel not in CUDA_KERNELS:
            raise ValueError(f"kernel={kernel!r}: one of {', '.join(CUDA_KERNELS)}")
        self.device, self.variant, self.kv_format = device, CUDA_KERNELS.index(kernel), kernel.partition("_")[0]
        with torch.cuda.device(device):
            self.library = cuda_library(device.index or 0)
        row_blocks = -(-shape.rows // CUDA_ROWS)
        self.blocks = shape.batch * row_blocks
        self.uniform_len, self.uniform_rows = shape.kv_len, shape.batch * shape.kv_len
        parts = (self.blocks, groups, CUDA_ROWS) if groups > 1 else (0,)
        self.out = torch.empty(*q.shape[:2], V_DIM, dtype=torch.bfloat16, device=device)
        self.part = torch.empty(*parts, V_DIM, dtype=torch.float32, device=device)
        self.part_ml = torch.empty(*parts, 2, dtype=torch.float32, device=device)
        self.tickets = torch.zeros(self.blocks, CUDA_MAX_CLUSTER, dtype=torch.int32, device=device)  # every launch leaves zeros
        self.storage = ctypes.create_string_buffer(self.library.mla_maps_bytes() + MAP_ALIGNMENT)
        self.maps = ctypes.c_void_p(-(-ctypes.addressof(self.storage) // MAP_ALIGNMENT) * MAP_ALIGNMENT)
        self.args = CudaArgs(
            out=self.out.data_ptr(),
            part=self.part.data_ptr(),
            part_ml=self.part_ml.data_ptr(),
            tickets=self.tickets.data_ptr(),
            sm_scale=config["sm_scale"],
            rows=shape.rows,
            row_blocks=row_blocks,
            **split_args(shape.kv_len, cluster, groups),
        )
        self.args_at = ctypes.byref(self.args)

    def page_through(self, block_table: torch.Tensor, page_size: int) -> None:
        """For the paged kernels: where the pages of each sequence lie, of a KV cache [pages * page_size, 1, 576].

        `block_table` int32 [batch, pages of the longest sequence]; kv_indptr still says how long the sequences are.
        Raises ValueError.
        """
        if page_size < MIN_PAGE or page_size & (page_size - 1):
            raise ValueError(f"page_size={page_size}: a power of two, at least {MIN_PAGE} tokens")
        self.block_table = block_table.contiguous()
        self.args.block_table, self.args.table_stride = self.block_table.data_ptr(), block_table.shape[1]
        self.args.page_bits = page_size.bit_length() - 1

    def __call__(self, data: input_t) -> torch.Tensor:
        q, kv_data, _, kv_indptr, _ = data
        args = self.args
        if self.kv_format == "bf16":
            kv = kv_data["bf16"]
        elif self.kv_format == "fp8":
            kv, scale = kv_data["fp8"]
            args.kv_scale = scale.data_ptr()
        else:
            kv, scale = kv_data["mxfp4"]
            scale = scale.contiguous()
            args.kv_e8m0, args.e8m0_stride = scale.data_ptr(), scale.shape[1]
            args.kv_e8m0_end = args.kv_e8m0 + scale.numel()
        kv_rows = kv.shape[0]
        if not kv_rows:
            return self.out.zero_()
        args.uniform_len = self.uniform_len if kv_rows == self.uniform_rows else 0
        q, kv = q.contiguous(), kv.contiguous()
        args.q, args.kv, args.kv_indptr = q.data_ptr(), kv.data_ptr(), kv_indptr.data_ptr()
        with torch.cuda.device(self.device):
            error = self.library.mla_decode(
                self.variant, self.maps, ctypes.c_void_p(kv.data_ptr()), ctypes.c_long(kv_rows), self.args_at, self.blocks
            )
        if error:
            raise RuntimeError(f"kernel {CUDA_KERNELS[self.variant]} could not be launched: CUDA error {error}")
        return self.out
