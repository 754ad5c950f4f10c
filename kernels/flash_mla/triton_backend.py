"""flash_mla_with_kvcache in Triton: plans that launch compiled kernels directly, with the workspace of their splits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernels.flash_mla.call import V_DIM, Call, Workload, workload
from kernels.flash_mla.triton_dense import dense_kernel
from kernels.flash_mla.triton_parts import merge_splits_kernel
from kernels.flash_mla.triton_sparse import sparse_kernel
from kernels.triton_launch import (
    OutOfResources,
    ceil_div,
    interpreted,
    launcher,
    multiprocessors,
    next_power_of_2,
    planned_on,
    tl,
    triton_unavailable,
)

MIN_BLOCK = 16  # the smallest operand of a tensor-core product
WARP_GROUP_ROWS = 64  # from here on Hopper multiplies from shared memory
MAX_SPLITS = 128
FP8_KINDS = ("v32", "model1")
Outputs = tuple[torch.Tensor, torch.Tensor]


class TritonBackend:
    name = "triton"

    def available(self, device: torch.device) -> str | None:
        return triton_unavailable(dense_kernel, device)

    def default_params(self, shape: Workload, device: torch.device) -> dict[str, Any]:
        nvidia = device.type == "cuda" and torch.version.hip is None
        hopper = nvidia and torch.cuda.get_device_capability(device) >= (9, 0)
        block_m = min(WARP_GROUP_ROWS if hopper else 32, max(MIN_BLOCK, next_power_of_2(shape.shared_rows)))
        params: dict[str, Any] = {
            "block_m": block_m,
            "block_n": 64 if hopper else 32,
            "num_warps": 8 if hopper else 4,
            "num_stages": 2,
            "operand": "f16" if shape.kind in FP8_KINDS else "bf16",
            "combine_block_d": 128,
            "combine_warps": 1,
            "overlap": hopper,  # programmatic dependent launch of the combine
        }
        params["num_kv_splits"] = default_splits(shape, block_m, params["block_n"], device)
        return params

    def plan(self, call: Call, params: dict[str, Any]) -> Callable[[Call], Outputs]:
        return planned_on(call.q.device, lambda: TritonPlan(call, params))


def default_splits(shape: Workload, block_m: int, block_n: int, device: torch.device) -> int:
    """Splits that give every multiprocessor one program, of at least two tiles each."""
    programs = shape.groups * ceil_div(shape.shared_rows, block_m)
    tiles = ceil_div(shape.tokens, block_n)
    return max(1, min(multiprocessors(device) // max(programs, 1), tiles // 2, MAX_SPLITS))


def smaller(params: dict[str, Any]) -> dict[str, int]:
    """The next change that saves shared memory. Raises MemoryError if there is none."""
    if params["num_stages"] > 1:
        return {"num_stages": params["num_stages"] - 1}
    for name in ("block_n", "block_m"):
        if params[name] > MIN_BLOCK:
            return {name: params[name] // 2}
    raise MemoryError("the smallest Triton tile needs more shared memory than this GPU has; use KERNELPROOF_BACKEND=torch")


def operand_type(name: str) -> Any:
    """Triton's type of what enters the products; fp32 under the interpreter, whose product of bf16 is wrong."""
    return tl.float32 if interpreted(dense_kernel) else {"f16": tl.float16, "bf16": tl.bfloat16}[name]


class TritonPlan:
    """Launches for one call_key. The workspace is allocated once and rewritten by every call; outputs are new tensors.

    `params` are those in use: a tile that does not fit into shared memory is made smaller.
    """

    def __init__(self, call: Call, params: dict[str, Any]) -> None:
        self.params = dict(params)
        self.splits = int(params["num_kv_splits"])
        rows = call.q.shape[0] * call.q.shape[1] * call.q.shape[2]
        parts = (rows, self.splits) if self.splits > 1 else (0, 1)
        self.partial = torch.empty(*parts, V_DIM, device=call.q.device)
        self.partial_lse = torch.empty(parts, device=call.q.device)
        self.attend = self.fitting_launch(call)
        self.merge = self.merge_launch(call) if self.splits > 1 else None

    def __call__(self, call: Call) -> Outputs:
        out, lse = outputs(call)
        self.attend(*self.attend_args(call, out, lse))
        if self.merge is not None:
            self.merge(*self.merge_args(call, out, lse))
        return out, lse

    def fitting_launch(self, call: Call) -> Callable[..., None]:
        while True:
            try:
                return self.attend_launch(call)
            except OutOfResources:
                self.params |= smaller(self.params)

    def attend_args(self, call: Call, out: torch.Tensor, lse: torch.Tensor) -> tuple:
        _, q_len, heads, _ = call.q.shape
        written = (out, lse, self.partial, self.partial_lse, call.sm_scale, heads, q_len)
        if call.indices is None:
            strides = (stride_16b(call.cache, dim) for dim in range(3))
            assert call.block_table is not None
            return call.q, call.cache, call.block_table, call.seqlens, *written, call.block_table.shape[1], *strides
        cache, indices, length, *sizes = list_args(call.cache, call.indices, call.length, call.layout)
        extra = (cache, indices, length, 0, 0, 0)
        if call.extra_cache is not None and call.extra_indices is not None:
            extra = list_args(call.extra_cache, call.extra_indices, call.extra_length, call.layout)
        sink = self.partial_lse if call.sink is None else call.sink
        return call.q, cache, indices, length, *extra[:3], sink, *written, *sizes, *extra[3:]

    def attend_launch(self, call: Call) -> Callable[..., None]:
        block_m, shape = self.params["block_m"], workload(call)
        row_blocks = ceil_div(shape.shared_rows, block_m)
        kernel, constants = self.dense_constants(call) if call.indices is None else self.sparse_constants(call)
        constants |= {
            "row_blocks": row_blocks,
            "whole": self.splits == 1,
            "block_m": block_m,
            "block_n": self.params["block_n"],
            "chained": block_m < WARP_GROUP_ROWS,
            "operand": operand_type(self.params["operand"]),
            **({} if call.indices is None else {"rope_operand": operand_type("bf16")}),  # beyond the range of f16
            "overlap": self.params["overlap"] and self.splits > 1,
        }
        options = {name: self.params[name] for name in ("num_warps", "num_stages", "maxnreg") if name in self.params}
        grid = (shape.groups * row_blocks, self.splits, 1)
        return launcher(kernel, grid, self.attend_args(call, *outputs(call)), constants, options)

    def sparse_constants(self, call: Call) -> tuple[Any, dict[str, Any]]:
        return sparse_kernel, {
            "layout": call.layout,
            "page_size": call.cache.shape[1],
            "extra_page_size": 1 if call.extra_cache is None else call.extra_cache.shape[1],
            "has_length": call.length is not None,
            "has_extra": call.extra_cache is not None,
            "has_extra_length": call.extra_length is not None,
            "has_sink": call.sink is not None,
        }

    def dense_constants(self, call: Call) -> tuple[Any, dict[str, Any]]:
        return dense_kernel, {
            "kv_heads": call.cache.shape[2],
            "page_size": call.cache.shape[1],
            "has_rope": call.layout == "bf16_576",
            "causal": call.causal,
        }

    def merge_args(self, call: Call, out: torch.Tensor, lse: torch.Tensor) -> tuple:
        _, q_len, heads, _ = call.q.shape
        sink = self.partial_lse if call.sink is None else call.sink
        return self.partial, self.partial_lse, sink, out, lse, heads, q_len, self.splits

    def merge_launch(self, call: Call) -> Callable[..., None]:
        block_d = self.params["combine_block_d"]
        constants = {
            "padded_splits": next_power_of_2(self.splits),
            "block_d": block_d,
            "has_sink": call.sink is not None,
            "overlap": self.params["overlap"],
        }
        options = {"num_warps": self.params["combine_warps"]} | ({"launch_pdl": True} if self.params["overlap"] else {})
        grid = (self.partial.shape[0], V_DIM // block_d, 1)
        return launcher(merge_splits_kernel, grid, self.merge_args(call, *outputs(call)), constants, options)


def outputs(call: Call) -> Outputs:
    batch, q_len, heads, _ = call.q.shape
    out = torch.empty(batch, q_len, heads, V_DIM, dtype=torch.bfloat16, device=call.q.device)
    return out, torch.empty(batch, heads, q_len, device=call.q.device)


def stride_16b(cache: torch.Tensor, dim: int) -> int:
    """A stride in units of 16 bytes; 0 where there is one element, as its stride may be anything."""
    return cache.stride(dim) * cache.element_size() // 16 if cache.shape[dim] > 1 else 0


def list_args(cache: torch.Tensor, indices: torch.Tensor, length: torch.Tensor | None, layout: str) -> tuple:
    """(cache, indices, length, topk, cache_tokens, page_stride_16b); indices stand in for an absent length."""
    raw = cache if layout.startswith("bf16") else cache.view(torch.uint8)
    tokens = min(cache.shape[0] * cache.shape[1], 2**31 - 1)
    return raw, indices, indices if length is None else length, indices.shape[2], tokens, stride_16b(cache, 0)
