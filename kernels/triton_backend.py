"""MLA decode in Triton on any GPU: plans launch compiled kernels directly, on buffers of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernels.layout import V_DIM, Shape, shape_of
from kernels.triton_kernels import combine_kernel, decode_bf16_kernel, decode_fp8_kernel
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
from task import input_t

MIN_BLOCK = 16  # the smallest operand of a tensor-core product
FP8_BIAS = {torch.float8_e4m3fn: 7, torch.float8_e4m3fnuz: 8, torch.uint8: 7}


class TritonBackend:
    name = "triton"

    def available(self, device: torch.device) -> str | None:
        return triton_unavailable(decode_bf16_kernel, device)

    def default_params(self, shape: Shape, device: torch.device) -> dict[str, Any]:
        nvidia = device.type == "cuda" and torch.version.hip is None
        major, minor = torch.cuda.get_device_capability(device) if nvidia else (0, 0)
        capability = 10 * major + minor
        small = shape.rows <= MIN_BLOCK
        params = {
            "format": "fp8",
            "block_m": min(64 if nvidia else 32, max(MIN_BLOCK, next_power_of_2(shape.rows))),
            "block_n": 64 if small and nvidia else 32,
            "num_warps": 4 if small or not nvidia else 8,
            "num_stages": 3 if nvidia else 2,
            "convert": "cvt" if capability >= 89 else "shift",
            "combine_block_d": 128,
            "combine_warps": 1,
            "overlap": capability >= 90,  # programmatic dependent launch of the combine
        }
        params["num_kv_splits"] = default_splits(shape, params["block_m"], params["block_n"], device)
        return params

    def plan(self, data: input_t, params: dict[str, Any]) -> Callable[[input_t], torch.Tensor]:
        return planned_on(data[0].device, lambda: TritonPlan(data, params))


def default_splits(shape: Shape, block_m: int, block_n: int, device: torch.device) -> int:
    """Splits that give every multiprocessor two programs, of at least two tiles each."""
    programs = shape.batch * ceil_div(shape.rows, block_m)
    tiles = ceil_div(shape.kv_len, block_n)
    return max(1, min(2 * multiprocessors(device) // max(programs, 1), tiles // 2, 64))


def smaller(params: dict[str, Any]) -> dict[str, int]:
    """The next change that saves shared memory. Raises MemoryError if there is none."""
    if params["num_stages"] > 1:
        return {"num_stages": params["num_stages"] - 1}
    for name in ("block_n", "block_m"):
        if params[name] > MIN_BLOCK:
            return {name: params[name] // 2}
    raise MemoryError("the smallest Triton tile needs more shared memory than this GPU has; use the torch backend")


class TritonPlan:
    """Launches for one plan_key. The output and the workspace are allocated once and rewritten by every call.

    `params` are those in use: a tile that does not fit into shared memory is made smaller.
    """

    def __init__(self, data: input_t, params: dict[str, Any]) -> None:
        q = data[0]
        self.params = dict(params)
        self.splits = int(params["num_kv_splits"])
        self.out = torch.empty(*q.shape[:2], V_DIM, dtype=torch.bfloat16, device=q.device)
        parts = (*q.shape[:2], self.splits) if self.splits > 1 else (0,)
        self.partial = torch.empty(*parts, V_DIM, dtype=torch.float32, device=q.device)
        self.lse = torch.empty(parts, dtype=torch.float32, device=q.device)
        self.decode = self.fitting_decode(data)
        self.combine = self.combine_launch() if self.splits > 1 else None

    def __call__(self, data: input_t) -> torch.Tensor:
        self.decode(*self.decode_args(data))
        if self.combine is not None:
            self.combine(self.partial, self.lse, self.out)
        return self.out

    def decode_args(self, data: input_t) -> tuple:
        q, _, qo_indptr, kv_indptr, config = data
        return q, *self.kv_tensors(data), qo_indptr, kv_indptr, self.out, self.partial, self.lse, config["sm_scale"]

    def kv_tensors(self, data: input_t) -> tuple[torch.Tensor, torch.Tensor]:
        """KV, and its scale where the format has one (else any tensor: the kernel does not read it)."""
        kv_data = data[1]
        return kv_data["fp8"] if self.params["format"] == "fp8" else (kv_data["bf16"], self.lse)

    def fitting_decode(self, data: input_t) -> Callable[..., None]:
        while True:
            try:
                return self.decode_launch(data)
            except OutOfResources:
                self.params |= smaller(self.params)

    def decode_launch(self, data: input_t) -> Callable[..., None]:
        shape = shape_of(data)
        row_blocks = ceil_div(shape.rows, self.params["block_m"])
        kv, _ = self.kv_tensors(data)
        constants = {
            "heads": shape.heads,
            "kv_row_bytes": kv.stride(0) * kv.element_size(),
            "row_blocks": row_blocks,
            "whole": self.splits == 1,
            "block_m": self.params["block_m"],
            "block_n": self.params["block_n"],
            "overlap": self.params["overlap"] and self.splits > 1,
        }
        if self.params["format"] == "fp8":
            kernel = decode_fp8_kernel
            constants |= {"convert": self.params["convert"], "fp8_bias": FP8_BIAS[kv.dtype]}
        else:
            kernel = decode_bf16_kernel
            constants |= {"operand": tl.float32 if interpreted(kernel) else tl.bfloat16}
        options = {name: self.params[name] for name in ("num_warps", "num_stages", "maxnreg") if name in self.params}
        return launcher(kernel, (shape.batch * row_blocks, self.splits, 1), self.decode_args(data), constants, options)

    def combine_launch(self) -> Callable[..., None]:
        block_d = self.params["combine_block_d"]
        constants = {
            "num_kv_splits": self.splits,
            "padded_splits": next_power_of_2(self.splits),
            "block_d": block_d,
            "overlap": self.params["overlap"],
        }
        options = {"num_warps": self.params["combine_warps"]}
        if self.params["overlap"]:
            options["launch_pdl"] = True
        grid = (self.out.shape[0] * self.out.shape[1], V_DIM // block_d, 1)
        return launcher(combine_kernel, grid, (self.partial, self.lse, self.out), constants, options)
