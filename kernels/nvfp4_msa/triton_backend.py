"""NVFP4 block-sparse decode in Triton on any GPU: plans that launch one compiled kernel on buffers of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernels.nvfp4_msa.layout import HEAD_DIM, Inputs, Shape, shape_of
from kernels.nvfp4_msa.triton_kernels import nvfp4_decode_kernel
from kernels.nvfp4_msa.unpack import UNPACK_CONSTRAINTS, UNPACK_UNITS, unpack_ptx
from kernels.triton_launch import OutOfResources, launcher, multiprocessors, next_power_of_2, planned_on, triton_unavailable

HEADS = 16  # rows of the tensor-core operand to which a group of query heads is padded
MAX_TRITON_SPLITS = 16  # the combine is unrolled over them
PROGRAMS_PER_SM = 2  # what about 220 registers in 128 threads leave room for


class TritonBackend:
    name = "triton"

    def available(self, device: torch.device) -> str | None:
        return triton_unavailable(nvfp4_decode_kernel, device)

    def default_params(self, shape: Shape, device: torch.device) -> dict[str, Any]:
        nvidia = device.type == "cuda" and torch.version.hip is None
        major, minor = torch.cuda.get_device_capability(device) if nvidia else (0, 0)
        return {
            "num_kv_splits": default_splits(shape, multiprocessors(device)),
            "num_warps": 4,
            "keys": 32,  # of a tile, for each warp
            "num_stages": 3 if nvidia else 2,
            "unpack": "cvt" if 10 * major + minor >= 89 else "portable",
        }

    def plan(self, data: tuple, params: dict[str, Any]) -> Callable[[tuple], torch.Tensor]:
        return planned_on(data[0].device, lambda: TritonPlan(data, params))


def default_splits(shape: Shape, sms: int) -> int:
    """As many splits as fill the device once, of two blocks at least: more would only add partial results."""
    blocks = min(shape.topk, -(-shape.kv_len // 128))
    return max(1, min(PROGRAMS_PER_SM * sms // max(shape.pairs, 1), blocks // 2, MAX_TRITON_SPLITS))


class TritonPlan:
    """Launches for one plan_key. Output and workspace are allocated once and rewritten by every call.

    Every launch leaves the tickets at zero. After one that was cut short, which a call that raised may have been, the next
    call zeroes them first, in the order of the device's queue and without waiting; whoever else stops a launch calls `recover`.
    """

    def __init__(self, data: tuple, params: dict[str, Any]) -> None:
        inputs, self.params = Inputs(*data), dict(params)
        q, device = inputs.q, inputs.q.device
        self.splits = int(params["num_kv_splits"])
        self.pairs = q.shape[0] * inputs.config["num_kv_heads"]
        parts = (self.pairs, self.splits if self.splits > 1 else 0, HEADS)
        self.out = torch.empty_like(q)
        self.partial = torch.empty(*parts, HEAD_DIM, dtype=torch.float16, device=device)
        self.lse = torch.empty(parts, dtype=torch.float32, device=device)
        self.tickets = torch.zeros(self.pairs, dtype=torch.int32, device=device)
        self.launching = False
        self.decode = self.fitting_launch(data)

    def __call__(self, data: tuple) -> torch.Tensor:
        if self.launching:
            self.recover()
        self.launching = True
        self.decode(*self.arguments(data))
        self.launching = False
        return self.out

    def recover(self) -> None:
        """Make the plan usable again after a launch that was cut short."""
        self.tickets.zero_()
        self.launching = False

    def arguments(self, data: tuple) -> tuple:
        inputs = Inputs(*data)
        sizes = (inputs.seq_lens.numel(), inputs.block_table.shape[1], inputs.topk.shape[1])
        return *data[:-1], self.out, self.partial, self.lse, self.tickets, *sizes, inputs.config["sm_scale"]

    def fitting_launch(self, data: tuple) -> Callable[..., None]:
        """A tile pipeline that does not fit into shared memory is made shorter."""
        while True:
            try:
                return self.launch(data)
            except OutOfResources:
                if self.params["num_stages"] == 1:
                    raise
                self.params["num_stages"] -= 1

    def launch(self, data: tuple) -> Callable[..., None]:
        shape, params = shape_of(data), self.params
        constants = {
            "q_len": shape.q_len,
            "num_kv_heads": shape.num_kv_heads,
            "group_size": shape.group_size,
            "topk": shape.topk,
            "slots": max(16, next_power_of_2(shape.topk)),
            "swizzled": data[-1]["v_scales"] == "swizzled",
            "num_kv_splits": self.splits,
            "warps": params["num_warps"],
            "keys": params["keys"],
            "k_assembly": unpack_ptx(params["unpack"], nan_to_finite=False),
            "v_assembly": unpack_ptx(params["unpack"], nan_to_finite=True),
            "constraints": UNPACK_CONSTRAINTS,
            "unit": UNPACK_UNITS[params["unpack"]],
        }
        options = {name: params[name] for name in ("num_warps", "num_stages", "maxnreg") if name in params}
        grid = (self.pairs * self.splits, 1, 1)
        return launcher(nvfp4_decode_kernel, grid, self.arguments(data), constants, options)
