"""Sizes of the NVFP4 block-sparse problem, what every input is checked for, and the key under which a plan is cached."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from kernels.selection import tensor_key

HEAD_DIM = 128
PAGE_TOKENS = 128  # block = page
TOKEN_BYTES = 72  # of K or of V, in the cache's nominal shape
HEAD_BYTES = 2 * PAGE_TOKENS * TOKEN_BYTES  # K and V of one KV head in a page
MAX_TOPK = 64
MAX_GROUP = 16  # query heads of a KV head: the rows of one tensor-core operand
V_SCALES = ("swizzled", "linear")


class InputError(ValueError):
    """An input that the kernels cannot read. One subclass for each fault; messages give what was found and what is wanted."""


class HeadsError(InputError):
    """The query and its numbers of heads do not fit together."""


class TopkError(InputError):
    """The slots of the top-k rows."""


class PageBytesError(InputError):
    """The cache's pages are not those of the case's KV heads."""


class ScaleError(InputError):
    """The global scales, or the order of the V scales."""


class RequestsError(InputError):
    """Requests, rows and block table do not fit together."""


class StrideError(InputError):
    """The rows of the block table are shorter than the longest sequence."""


class ContiguityError(InputError):
    """A tensor with gaps."""


class Inputs(NamedTuple):
    """What custom_kernel is given; task.py of the problem describes it."""

    q: torch.Tensor  # bf16 [rows, heads, 128]
    cache: torch.Tensor  # uint8 [pages, 2 * num_kv_heads, 128, 72]
    topk: torch.Tensor  # int32 [num_kv_heads, >= rows, topk]
    block_table: torch.Tensor  # int32 [requests, >= max_seq_len / 128]
    seq_lens: torch.Tensor  # int32 [requests]
    k_scale: torch.Tensor  # fp32 [1]
    v_scale: torch.Tensor  # fp32 [1]
    config: Any


class Shape(NamedTuple):
    """What dispatch knows of a case."""

    batch: int  # requests
    q_len: int
    kv_len: int  # the longest that may occur
    topk: int
    num_kv_heads: int
    group_size: int

    @property
    def pairs(self) -> int:
        """(row, KV head) pairs that may see something."""
        return self.batch * self.q_len * self.num_kv_heads


def shape_of(data: tuple) -> Shape:
    inputs = Inputs(*data)
    names = ("q_len", "max_seq_len", "topk", "num_kv_heads", "group_size")
    return Shape(inputs.seq_lens.numel(), *(inputs.config[name] for name in names))


def plan_key(data: tuple) -> tuple:
    """Two inputs with equal keys may share a plan."""
    tensors, config = data[:-1], data[-1]
    return tensors[0].device, *sorted(config.items()), *map(tensor_key, tensors)


def check_input(data: tuple) -> None:
    """Raises the InputError of the first fault that shapes, dtypes and strides show. Contents are not read: that would wait
    for the device."""
    inputs = Inputs(*data)
    _check_heads(inputs)
    _check_topk(inputs)
    _check_pages(inputs)
    _check_scales(inputs)
    _check_requests(inputs)
    for name, tensor in zip(Inputs._fields, data[:-1], strict=False):
        if not tensor.is_contiguous():
            found = f"{name} has strides {tensor.stride()} for shape {tuple(tensor.shape)}"
            raise ContiguityError(f"{found}; pass a contiguous tensor")


def _found(name: str, tensor: torch.Tensor) -> str:
    return f"{name} is {tensor.dtype} {list(tensor.shape)}"


def _check_heads(inputs: Inputs) -> None:
    kv_heads, group = inputs.config["num_kv_heads"], inputs.config["group_size"]
    if not 1 <= group <= MAX_GROUP:
        raise HeadsError(f"{group} query heads per KV head; the kernels serve 1 to {MAX_GROUP}")
    q, heads = inputs.q, kv_heads * group
    if q.dtype != torch.bfloat16 or q.ndim != 3 or q.shape[1:] != (heads, HEAD_DIM):
        wanted = f"{kv_heads} KV heads of {group} query heads need torch.bfloat16 [rows, {heads}, {HEAD_DIM}]"
        raise HeadsError(f"{_found('q', q)}; {wanted}")


def _check_topk(inputs: Inputs) -> None:
    topk, slots = inputs.topk, inputs.config["topk"]
    if not 1 <= slots <= MAX_TOPK:
        raise TopkError(f"config topk is {slots}; the kernels serve 1 to {MAX_TOPK} slots")
    kv_heads, rows = inputs.config["num_kv_heads"], inputs.q.shape[0]
    fits = topk.ndim == 3 and topk.shape[0] == kv_heads and topk.shape[1] >= rows and topk.shape[2] == slots
    if topk.dtype != torch.int32 or not fits:
        wanted = f"{rows} rows of q and config topk {slots} need torch.int32 [{kv_heads}, >= {rows}, {slots}]"
        raise TopkError(f"{_found('topk', topk)}; {wanted}")


def _check_pages(inputs: Inputs) -> None:
    cache, kv_heads = inputs.cache, inputs.config["num_kv_heads"]
    wanted = (2 * kv_heads, PAGE_TOKENS, TOKEN_BYTES)
    if cache.dtype != torch.uint8 or cache.shape[1:] != wanted:
        page_bytes = math.prod(cache.shape[1:]) * cache.element_size()
        wants = f"{kv_heads} KV heads need {kv_heads * HEAD_BYTES:,}: torch.uint8 [pages, {', '.join(map(str, wanted))}]"
        raise PageBytesError(f"{_found('cache', cache)}: {page_bytes:,} bytes a page; {wants}")


def _check_scales(inputs: Inputs) -> None:
    if inputs.config["v_scales"] not in V_SCALES:
        raise ScaleError(f"config v_scales is {inputs.config['v_scales']!r}; use {' or '.join(V_SCALES)}")
    for name in ("k_scale", "v_scale"):
        scale = getattr(inputs, name)
        if scale.dtype != torch.float32 or scale.numel() != 1:
            raise ScaleError(f"{_found(name, scale)}; pass torch.float32 [1]")


def _check_requests(inputs: Inputs) -> None:
    table, seq_lens, config = inputs.block_table, inputs.seq_lens, inputs.config
    if seq_lens.dtype != torch.int32 or seq_lens.ndim != 1:
        raise RequestsError(f"{_found('seq_lens', seq_lens)}; pass torch.int32 [requests]")
    requests, rows = len(seq_lens), inputs.q.shape[0]
    if rows < requests * config["q_len"]:
        needed = requests * config["q_len"]
        raise RequestsError(f"q has {rows} rows; {requests} requests of {config['q_len']} query tokens need {needed}")
    if table.dtype != torch.int32 or table.ndim != 2 or table.shape[0] != requests:
        raise RequestsError(f"{_found('block_table', table)}; {requests} requests need torch.int32 [{requests}, stride]")
    blocks = -(-config["max_seq_len"] // PAGE_TOKENS)
    if table.shape[1] < blocks:
        found = f"block_table has a stride of {table.shape[1]} pages"
        raise StrideError(f"{found}; max_seq_len {config['max_seq_len']} needs {blocks} blocks of {PAGE_TOKENS} tokens")
