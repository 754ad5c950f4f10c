"""NVFP4 block-sparse decode with kernels of our own on gfx950 (MI355X): instantiations, plans, the choice of splits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from kernels.hip_module import (
    SplitWork,
    compile_hip_module,
    cpp_initializer,
    hip_unavailable,
    instantiations,
    joined_source,
    split_cost_ns,
)
from kernels.nvfp4_msa.assets import (
    HIP_ARGUMENTS,
    HIP_BINDING,
    HIP_COMBINE,
    HIP_COMMON,
    HIP_DECODE,
    HIP_LAUNCH,
    HIP_LAUNCH_TABLE,
    HIP_LDS_DMA,
    HIP_LOAD,
    HIP_MERGE,
    HIP_QUERY,
    HIP_SCORES,
    HIP_SLOTS,
    HIP_SOFTMAX,
    HIP_TRAITS,
    HIP_VALUES,
)
from kernels.nvfp4_msa.layout import HEAD_BYTES, HEAD_DIM, PAGE_TOKENS, Inputs, Shape

# One translation unit, in this order; the first four are those of the MLA kernels.
HIP_KERNEL_SOURCES = {
    "common.hip": HIP_COMMON,
    "lds_dma.hip": HIP_LDS_DMA,
    "softmax.hip": HIP_SOFTMAX,
    "combine.hip": HIP_COMBINE,
    "traits.hip": HIP_TRAITS,
    "slots.hip": HIP_SLOTS,
    "load.hip": HIP_LOAD,
    "query.hip": HIP_QUERY,
    "scores.hip": HIP_SCORES,
    "values.hip": HIP_VALUES,
    "merge.hip": HIP_MERGE,
    "decode.hip": HIP_DECODE,
}

HIP_MAX_SPLITS = 64  # what the combine serves
MI355X_XCDS = 8


class Traits(NamedTuple):
    """One instantiation of the kernel; the fields are those of `Traits` in traits.hip, in its order."""

    buffers: int = 3
    waves_per_simd: int = 2
    swizzled: bool = True

    def initializer(self) -> str:
        """As C++ between the braces of Traits{}."""
        return cpp_initializer(self)


# The module's kernels: two blocks in flight for each of two workgroups on a CU, or one for each of four.
HIP_TRAITS_OF_MODULE = tuple(Traits(*depth, swizzled) for depth in ((3, 2), (2, 4)) for swizzled in (True, False))


def device_source() -> str:
    """The kernels as one text; lines are blamed on their files."""
    return joined_source(HIP_KERNEL_SOURCES)


def module_source() -> str:
    """Kernels, launcher, and the table of instantiations."""
    table = instantiations(traits.initializer() for traits in HIP_TRAITS_OF_MODULE)
    host = joined_source({"launch.hip": HIP_LAUNCH, "launch_table.hip": HIP_LAUNCH_TABLE})
    return f"{device_source()}{HIP_ARGUMENTS}{table}{host}"


@functools.cache
def hip_module() -> Any:
    return compile_hip_module("nvfp4", HIP_ARGUMENTS, HIP_BINDING, module_source())


def hip_splits(shape: Shape, traits: Traits) -> int:
    """The cheapest number of splits of a row's `topk` blocks, by the cost model."""
    blocks = min(shape.topk, max(-(-shape.kv_len // PAGE_TOKENS), 1))
    result_bytes = shape.pairs * shape.group_size * HEAD_DIM * 2
    work = SplitWork(shape.pairs, blocks, HEAD_BYTES, result_bytes, traits.waves_per_simd, traits.buffers - 1)
    return min(range(1, blocks + 1), key=lambda splits: split_cost_ns(work, splits))


class HipBackend:
    name = "hip"

    def available(self, device: torch.device) -> str | None:
        return hip_unavailable(device)

    def default_params(self, shape: Shape, device: torch.device) -> dict[str, Any]:
        """Rows of one request read the same blocks more often than not: with several, they go to one XCD and its L2 cache."""
        traits = Traits()
        return {
            "buffers": traits.buffers,
            "waves_per_simd": traits.waves_per_simd,
            "num_kv_splits": hip_splits(shape, traits),
            "num_xcds": MI355X_XCDS if shape.q_len > 1 else 1,
        }

    def plan(self, data: tuple, params: dict[str, Any]) -> Callable[[tuple], torch.Tensor]:
        return HipPlan(data, params)


class HipPlan:
    """Launches for one plan_key. Output and workspace are allocated once and rewritten by every call.

    The ticket counters are zero between launches: each launch leaves them so. One that was cut short does not, and rows would
    then be combined too early for ever after. A call that ends with an exception is followed by `recover`; whoever else stops a
    launch calls it himself.
    """

    def __init__(self, data: tuple, params: dict[str, Any]) -> None:
        inputs = Inputs(*data)
        q, config = inputs.q, inputs.config
        self.splits, self.xcds = int(params["num_kv_splits"]), int(params["num_xcds"])
        if not 1 <= self.splits <= HIP_MAX_SPLITS or self.xcds < 1:
            raise ValueError(f"num_kv_splits={self.splits}, num_xcds={self.xcds}: 1 to {HIP_MAX_SPLITS} splits, 1 or more XCDs")
        traits = Traits(int(params["buffers"]), int(params["waves_per_simd"]), config["v_scales"] == "swizzled")
        if traits not in HIP_TRAITS_OF_MODULE:
            raise ValueError(f"{traits} is not compiled; the module has {HIP_TRAITS_OF_MODULE}")
        self.module, self.kernel = hip_module(), HIP_TRAITS_OF_MODULE.index(traits)
        self.q_len, self.device = config["q_len"], q.device
        rows, parts = q.shape[0] * q.shape[1], self.splits if self.splits > 1 else 0
        self.out = torch.empty(q.shape, dtype=torch.bfloat16, device=q.device)
        self.partial = torch.empty(rows, parts, HEAD_DIM, dtype=torch.bfloat16, device=q.device)
        self.lse = torch.empty(rows, parts, dtype=torch.float32, device=q.device)
        self.tickets = torch.zeros(q.shape[0], config["num_kv_heads"], dtype=torch.int32, device=q.device)
        self.launching = False

    def __call__(self, data: tuple) -> torch.Tensor:
        *tensors, config = data
        workspace = (self.out, self.partial, self.lse, self.tickets)
        with torch.cuda.device(self.device):
            if self.launching:
                self.recover()
            self.launching = True
            self.module.decode(self.kernel, *tensors, *workspace, self.q_len, self.splits, self.xcds, config["sm_scale"])
            self.launching = False
        return self.out

    def recover(self) -> None:
        """Make the plan usable again after a launch that did not end."""
        self.tickets.zero_()
        self.launching = False
