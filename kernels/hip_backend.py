"""MLA decode with kernels of our own on gfx950 (MI355X): inline compilation, plans, and a cost model for untuned shapes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from kernels.assets import (
    DISPATCH_TABLE,
    HIP_ARGUMENTS,
    HIP_BINDING,
    HIP_BLOCK_SCALES,
    HIP_COMBINE,
    HIP_COMMON,
    HIP_DECODE,
    HIP_LAUNCH,
    HIP_LAUNCH_TABLE,
    HIP_LDS_DMA,
    HIP_LOAD,
    HIP_OUTPUT,
    HIP_QUERY,
    HIP_REMAINDER,
    HIP_SCORES,
    HIP_SOFTMAX,
    HIP_TRAITS,
    HIP_VALUES,
)
from kernels.hip_module import (
    HIP_ARCH,
    SplitWork,
    compile_hip_module,
    cpp_initializer,
    hip_unavailable,
    instantiations,
    joined_source,
    split_cost_ns,
)
from kernels.layout import QK_DIM, V_DIM, Shape, shape_of
from task import input_t

# One translation unit, in this order.
HIP_KERNEL_SOURCES = {
    "common.hip": HIP_COMMON,
    "lds_dma.hip": HIP_LDS_DMA,
    "softmax.hip": HIP_SOFTMAX,
    "combine.hip": HIP_COMBINE,
    "traits.hip": HIP_TRAITS,
    "load.hip": HIP_LOAD,
    "block_scales.hip": HIP_BLOCK_SCALES,
    "query.hip": HIP_QUERY,
    "scores.hip": HIP_SCORES,
    "remainder.hip": HIP_REMAINDER,
    "values.hip": HIP_VALUES,
    "output.hip": HIP_OUTPUT,
    "decode.hip": HIP_DECODE,
}

HIP_FORMATS = {"fp8": "kFp8", "mxfp4": "kMxfp4", "bf16": "kBf16"}
HIP_ROW_BYTES = {"fp8": QK_DIM, "mxfp4": QK_DIM // 2 + QK_DIM // 32, "bf16": 2 * QK_DIM}
HIP_MAX_SPLITS = 64  # what the combine serves

LAUNCH_NS = 4000  # of the second kernel, a guess


class Traits(NamedTuple):
    """One instantiation of the kernels; the fields are those of `Traits` in traits.hip, in its order."""

    format: str = "fp8"
    row_blocks: int = 1
    buffers: int = 2
    tile: int = 32
    waves_per_simd: int = 3
    paged: bool = False
    fp8_pv: bool = False
    direct_cvt: bool = False
    preload_v: bool = False
    setprio: bool = False
    last_arriver: bool = False

    def initializer(self) -> str:
        """As C++ between the braces of Traits{}."""
        return cpp_initializer((HIP_FORMATS[self.format], *self[1:]))


def traits_of(params: dict[str, Any]) -> Traits:
    return Traits(**{name: params[name] for name in Traits._fields if name in params})


# By row blocks, for shapes without an entry.
UNTUNED_TRAITS = {1: Traits(waves_per_simd=3, setprio=True), 2: Traits(row_blocks=2, waves_per_simd=2, setprio=True)}


def tuned_traits() -> tuple[Traits, ...]:
    """Every instantiation that dispatch.yml names for gfx950 or that untuned shapes get: the shared module's, in order."""
    entries = [entry["params"] for entry in DISPATCH_TABLE.get(HIP_ARCH, ()) if entry["backend"] == "hip"]
    return tuple(dict.fromkeys([*map(traits_of, entries), *UNTUNED_TRAITS.values()]))


def device_source() -> str:
    """The kernels as one text; lines are blamed on their files in kernels/hip."""
    return joined_source(HIP_KERNEL_SOURCES)


def module_source(traits: Iterable[Traits]) -> str:
    """Kernels, launcher, and the table of instantiations."""
    host = joined_source({"launch.hip": HIP_LAUNCH, "launch_table.hip": HIP_LAUNCH_TABLE})
    return f"{device_source()}{HIP_ARGUMENTS}{instantiations(each.initializer() for each in traits)}{host}"


@functools.cache
def hip_module(traits: tuple[Traits, ...]) -> Any:
    return compile_hip_module("mla", HIP_ARGUMENTS, HIP_BINDING, module_source(traits))


def kernel_of(traits: Traits) -> tuple[Any, int]:
    """A module and the kernel's number in it: the shared module where it can be, else one of its own."""
    shared = tuned_traits()
    if traits in shared:
        return hip_module(shared), shared.index(traits)
    return hip_module((traits,)), 0


class HipBackend:
    name = "hip"

    def available(self, device: torch.device) -> str | None:
        return hip_unavailable(device)

    def default_params(self, shape: Shape, device: torch.device) -> dict[str, Any]:
        traits = UNTUNED_TRAITS[1 if shape.rows <= 16 else 2]
        costs = {splits: cost_ns(shape, traits, splits) for splits in range(1, HIP_MAX_SPLITS + 1)}
        return {**traits._asdict(), "num_kv_splits": min(costs, key=lambda splits: costs[splits])}

    def plan(self, data: input_t, params: dict[str, Any]) -> Callable[[input_t], torch.Tensor]:
        return HipPlan(data, params)


def cost_ns(shape: Shape, traits: Traits, num_kv_splits: int) -> float:
    """The kernel's split_cost_ns, and the second launch if there is one."""
    tile_bytes = traits.tile * HIP_ROW_BYTES[traits.format]
    groups, tiles = shape.batch * -(-shape.rows // (16 * traits.row_blocks)), max(-(-shape.kv_len // traits.tile), 1)
    work = SplitWork(groups, tiles, tile_bytes, shape.batch * shape.rows * V_DIM * 2, traits.waves_per_simd, traits.buffers - 1)
    alone = num_kv_splits == 1 or tiles == 1
    return split_cost_ns(work, num_kv_splits) + (0 if alone or traits.last_arriver else LAUNCH_NS)


class HipPlan:
    """Launches for one plan_key. Output and workspace are allocated once and rewritten by every call."""

    def __init__(self, data: input_t, params: dict[str, Any]) -> None:
        q, shape, self.traits = data[0], shape_of(data), traits_of(params)
        self.splits = int(params["num_kv_splits"])
        if not 1 <= self.splits <= HIP_MAX_SPLITS or self.traits.paged:
            raise ValueError(f"num_kv_splits={self.splits}, paged={self.traits.paged}: 1 to {HIP_MAX_SPLITS} splits, no paging")
        self.module, self.kernel = kernel_of(self.traits)
        self.rows_per_sequence, self.device = shape.rows, q.device
        rows, parts = q.shape[0] * shape.heads, self.splits if self.splits > 1 else 0
        self.out = torch.empty(*q.shape[:2], V_DIM, dtype=torch.bfloat16, device=q.device)
        self.partial = torch.empty(rows, parts, V_DIM, dtype=torch.bfloat16, device=q.device)
        self.lse = torch.empty(rows, parts, dtype=torch.float32, device=q.device)
        groups = -(-shape.rows // (16 * self.traits.row_blocks))
        self.tickets = torch.zeros(shape.batch, groups, dtype=torch.int32, device=q.device)  # every launch leaves zeros

    def __call__(self, data: input_t) -> torch.Tensor:
        q, _, qo_indptr, kv_indptr, config = data
        kv, kv_scale = self.kv_tensors(data)
        workspace = (self.out, self.partial, self.lse, self.tickets)
        tensors = (dense(q), dense(kv), kv_scale, qo_indptr, kv_indptr, *workspace)
        with torch.cuda.device(self.device):
            self.module.decode(self.kernel, *tensors, self.rows_per_sequence, self.splits, config["sm_scale"])
        return self.out

    def kv_tensors(self, data: input_t) -> tuple[torch.Tensor, torch.Tensor]:
        """KV, and its scale where the format has one (else any tensor: the kernel does not read it)."""
        kv_data = data[1]
        return (kv_data["bf16"], self.lse) if self.traits.format == "bf16" else kv_data[self.traits.format]


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself unless it has gaps, which a caller of decode kernels has no reason to make."""
    return tensor if tensor.is_contiguous() else tensor.contiguous()
