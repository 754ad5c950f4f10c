"""NVFP4 block-sparse decode with a kernel of our own on Hopper (sm_90a): compiled by nvcc, called through ctypes."""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from kernels.nvcc import compile_library, hopper_multiprocessors, hopper_unavailable, library_cache
from kernels.nvfp4_msa.assets import (
    CUDA_ATTEND,
    CUDA_ATTEND_NARROW,
    CUDA_ATTEND_WIDE,
    CUDA_DECODE,
    CUDA_ELECT,
    CUDA_LAUNCH,
    CUDA_MERGE,
    CUDA_PTX,
    CUDA_QUERY,
    CUDA_RING,
    CUDA_SOFTMAX,
    CUDA_UNPACK,
    CUDA_WORK,
)
from kernels.nvfp4_msa.layout import PAGE_TOKENS, ContiguityError, Inputs, RequestsError, Shape

CUDA_SOURCES = {
    "ptx.cuh": CUDA_PTX,
    "elect.cuh": CUDA_ELECT,
    "work.cuh": CUDA_WORK,
    "ring.cuh": CUDA_RING,
    "unpack.cuh": CUDA_UNPACK,
    "query.cuh": CUDA_QUERY,
    "softmax.cuh": CUDA_SOFTMAX,
    "attend_wide.cuh": CUDA_ATTEND_WIDE,
    "attend_narrow.cuh": CUDA_ATTEND_NARROW,
    "attend.cuh": CUDA_ATTEND,
    "merge.cuh": CUDA_MERGE,
    "decode.cuh": CUDA_DECODE,
    "launch.cu": CUDA_LAUNCH,
}
TEAM_WARPS = 4
FULL_WARPS = 16  # that the registers of a multiprocessor are enough for
NARROW_GROUP = 8  # the most query heads of a KV head that are columns of the products
CUDA_SPLITS = (1, 2, 4, 8)  # blocks of a cluster
CUDA_MAX_ROWS = 65_535  # the third dimension of a grid
CUDA_MAX_ENTRIES = 1 << 31  # of a list: they are counted in 32 bits
CUDA_ALIGNMENT = 16  # bytes: what the copy engine asks of the cache's address
MAP_ALIGNMENT = 64
CUDA_INPUTS = Inputs._fields[:-1]
CUDA_POINTERS = (*CUDA_INPUTS, "out")
CUDA_INTS = ("rows", "requests", "q_len", "kv_heads", "group", "topk_rows", "slots", "table_stride", "split_bits")


class CudaArgs(ctypes.Structure):
    """`Args` of work.cuh."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in CUDA_POINTERS),
        ("sm_scale", ctypes.c_float),
        ("q_len_inverse", ctypes.c_uint32),
        *((name, ctypes.c_int) for name in CUDA_INTS),
    )


class Variant(NamedTuple):
    """One instantiation of the kernel; the fields are those of `Variant` in decode.cuh."""

    teams: int  # of four warps, which take a block's pages in turn
    stages: int  # tiles in each warp's ring
    blocks: int  # per multiprocessor, that registers and shared memory are sized for
    narrow: bool = False  # at most NARROW_GROUP query heads for each KV head
    linear: bool = False  # how V scales lie

    @property
    def params(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in CUDA_SIZES}


CUDA_SIZES = ("teams", "stages", "blocks")
# In the order of with_variant in decode.cuh.
CUDA_SHAPES = ((1, 3, 3), (1, 2, 4), (2, 2, 2), (3, 2, 1))
CUDA_VARIANTS = tuple(Variant(*sizes, *form) for sizes in CUDA_SHAPES for form in itertools.product((False, True), repeat=2))


def make_args(inputs: Inputs, out: torch.Tensor, splits: int) -> CudaArgs:
    """The arguments of a launch that do not change between calls of a plan, and the pointers of this one."""
    config = inputs.config
    args = CudaArgs(
        out=out.data_ptr(),
        sm_scale=config["sm_scale"],
        q_len_inverse=0xFFFFFFFF // config["q_len"],
        rows=inputs.q.shape[0],
        requests=inputs.seq_lens.numel(),
        q_len=config["q_len"],
        kv_heads=config["num_kv_heads"],
        group=config["group_size"],
        topk_rows=inputs.topk.shape[1],
        slots=config["topk"],
        table_stride=inputs.block_table.shape[1],
        split_bits=splits.bit_length() - 1,
    )
    point_args(args, inputs)
    return args


def point_args(args: CudaArgs, inputs: Inputs) -> None:
    """The addresses of a call's inputs."""
    for name in CUDA_INPUTS:
        setattr(args, name, getattr(inputs, name).data_ptr())


@functools.cache
def cuda_library(device_index: int) -> ctypes.CDLL:
    """The kernel's variants, ready on a device (which must be the current one). Raises RuntimeError."""
    library = ctypes.CDLL(str(compile_library(CUDA_SOURCES, "nvfp4", library_cache())))
    if library.nvfp4_args_bytes() != ctypes.sizeof(CudaArgs):
        raise RuntimeError("kernels/nvfp4_msa/cuda_backend.py and work.cuh disagree about Args")
    for number, variant in enumerate(CUDA_VARIANTS):
        if error := library.nvfp4_prepare(number):
            raise RuntimeError(f"{variant} cannot run on cuda:{device_index}: CUDA error {error}")
    return library


class CudaBackend:
    name = "cuda"

    def available(self, device: torch.device) -> str | None:
        return hopper_unavailable(device)

    def default_params(self, shape: Shape, device: torch.device) -> dict[str, Any]:
        variant, splits = cheapest(shape, hopper_multiprocessors(device))
        return {"num_kv_splits": splits, **variant.params}

    def plan(self, data: tuple, params: dict[str, Any]) -> Callable[[tuple], torch.Tensor]:
        return CudaPlan(data, params)


def split_pages(shape: Shape, splits: int) -> int:
    """The most pages of a split."""
    return -(-max(1, min(shape.topk, -(-shape.kv_len // PAGE_TOKENS))) // splits)


def page_times(shape: Shape, variant: Variant, splits: int, multiprocessors: int) -> float:
    """An estimate of how long a launch takes, in the time of a page on a full multiprocessor: whole rounds of blocks, then the
    rest. A block costs a page more than it has, a round three; w < 16 warps do (w / 16) ** 0.2 of what 16 do. The constants are
    rounded from times on an H200."""
    rounds, rest = divmod(shape.pairs * splits, multiprocessors * variant.blocks)

    def round_time(blocks: int) -> float:
        rate = min(1, blocks * variant.teams * TEAM_WARPS / FULL_WARPS) ** 0.2
        return blocks * (split_pages(shape, splits) + 1) / rate + 3

    left = -(-rest // multiprocessors)  # on the busiest multiprocessor
    return rounds * round_time(variant.blocks) + (round_time(left) if left else 0)


def cheapest(shape: Shape, multiprocessors: int) -> tuple[Variant, int]:
    """The variant and splits that page_times prefers, no team without a page; of equals the fewest splits, then the first of
    CUDA_SHAPES."""
    choices = [(Variant(*sizes), splits) for splits in CUDA_SPLITS for sizes in CUDA_SHAPES]
    busy = [choice for choice in choices if choice[0].teams <= split_pages(shape, choice[1]) and choice[1] <= shape.topk]
    return min(busy, key=lambda choice: page_times(shape, *choice, multiprocessors))


class CudaPlan:
    """Launches for one plan_key. The output is allocated once and rewritten by every call. Splits meet in a cluster's shared
    memory, so a launch that was cut short leaves nothing behind."""

    def __init__(self, data: tuple, params: dict[str, Any]) -> None:
        inputs, self.params = Inputs(*data), dict(params)
        self.splits, self.device = int(params["num_kv_splits"]), inputs.q.device
        narrow, linear = inputs.config["group_size"] <= NARROW_GROUP, inputs.config["v_scales"] == "linear"
        variant = Variant(**{name: int(params[name]) for name in CUDA_SIZES}, narrow=narrow, linear=linear)
        if self.splits not in CUDA_SPLITS:
            raise ValueError(f"num_kv_splits={self.splits}: one of {CUDA_SPLITS}")
        if variant not in CUDA_VARIANTS:
            raise ValueError(f"{', '.join(CUDA_SIZES)} are {variant[:3]}: one of {CUDA_SHAPES}")
        if len(inputs.q) > CUDA_MAX_ROWS:
            raise RequestsError(f"q has {len(inputs.q)} rows; the CUDA kernel serves up to {CUDA_MAX_ROWS}: split the batch")
        for name in ("topk", "block_table"):
            if (entries := getattr(inputs, name).numel()) >= CUDA_MAX_ENTRIES:
                limit = f"the CUDA kernel serves fewer than {CUDA_MAX_ENTRIES}: split the batch"
                raise RequestsError(f"{name} has {entries} entries; {limit}")
        if inputs.cache.data_ptr() % CUDA_ALIGNMENT:
            offset = inputs.cache.data_ptr() % CUDA_ALIGNMENT
            raise ContiguityError(f"the cache begins {offset} bytes past a multiple of {CUDA_ALIGNMENT}; align it")
        self.number = CUDA_VARIANTS.index(variant)
        self.library = self.load()
        self.out = torch.empty_like(inputs.q)
        self.args, self.pages = make_args(inputs, self.out, self.splits), len(inputs.cache)
        self.storage = ctypes.create_string_buffer(self.library.nvfp4_maps_bytes() + MAP_ALIGNMENT)
        self.maps = ctypes.c_void_p(-(-ctypes.addressof(self.storage) // MAP_ALIGNMENT) * MAP_ALIGNMENT)

    def load(self) -> ctypes.CDLL:
        with torch.cuda.device(self.device):
            return cuda_library(self.device.index or 0)

    def __call__(self, data: tuple) -> torch.Tensor:
        point_args(self.args, Inputs(*data))
        self.launch()
        return self.out

    def launch(self) -> None:
        with torch.cuda.device(self.device):
            error = self.library.nvfp4_launch(self.number, self.maps, ctypes.c_long(self.pages), ctypes.byref(self.args))
        if error:
            raise RuntimeError(f"{CUDA_VARIANTS[self.number]} could not be launched: CUDA error {error}")
