"""An fp64 oracle of MLA decode, and ragged inputs for the backends' tests."""

from __future__ import annotations

import itertools
from typing import Any

import torch

import reference

# Values of the E2M1 code points (OCP MX 1.0, table 5), sign bit last.
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)

# An output rounded to bf16 is off by 2^-9 at most, by 1.7e-3 in the mean square of a row; P in bf16 or f16 adds about as much.
BF16_REL_L2 = 3e-3
# Triton's interpreter truncates to bf16 instead of rounding: twice the error.
INTERPRETED_REL_L2 = 6e-3


def make_input(lengths: list[int], q_len: int = 1, heads: int = 16, seed: int = 0, **options: Any) -> Any:
    """As reference.generate_input, with exactly these lengths."""
    spec = {"batchsize": 1, "qseqlen": q_len * len(lengths), "kvseqlen": max(sum(lengths), 1), "numheads": heads}
    data: Any = reference.generate_input(**spec, seed=seed, device="cpu", **options)
    q, kv_data, _, _, config = data
    qo_indptr = torch.arange(len(lengths) + 1, dtype=torch.int32) * q_len
    kv_indptr = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
    config |= {"batch_size": len(lengths), "q_seq_len": q_len, "kv_seq_len": max(lengths)}
    return q, kv_data, qo_indptr, kv_indptr, config


def dequantise(kv_data: Any, kv_format: str) -> torch.Tensor:
    """fp64 [total_kv, 576]."""
    if kv_format == "bf16":
        return kv_data["bf16"][:, 0].double()
    if kv_format == "fp8":
        values, scale = kv_data["fp8"]
        return values[:, 0].double() * scale.double()
    packed, scales = (tensor.view(torch.uint8) for tensor in kv_data["mxfp4"])
    codes = torch.stack([packed[:, 0] & 15, packed[:, 0] >> 4], dim=-1).flatten(1).long()
    exponents = scales[: packed.shape[0], :18].double() - 127
    return E2M1[codes] * torch.exp2(exponents).repeat_interleave(32, dim=1)


def oracle(data: Any, kv_format: str) -> torch.Tensor:
    """fp64 [total_q, heads, 512]; zero for sequences without KV."""
    q, kv_data, qo_indptr, kv_indptr, config = data
    kv = dequantise(kv_data, kv_format)
    out = torch.zeros(*q.shape[:2], 512, dtype=torch.float64)
    for sequence in range(len(kv_indptr) - 1):
        rows = slice(qo_indptr[sequence], qo_indptr[sequence + 1])
        k = kv[kv_indptr[sequence] : kv_indptr[sequence + 1]]
        if len(k):
            out[rows] = torch.softmax(q[rows].double() @ k.T * config["sm_scale"], dim=-1) @ k[:, :512]
    return out


def worst_rel_l2(out: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest relative L2 error of a (token, head) row; infinite if anything is NaN; absolute where zeros are expected."""
    norm = expected.norm(dim=-1)
    error = (out.double() - expected).norm(dim=-1) / torch.where(norm == 0, torch.ones_like(norm), norm)
    return float(error.nan_to_num(float("inf")).max())


def to_gpu(data):
    """The same input on the GPU."""
    q, kv_data, qo_indptr, kv_indptr, config = data
    moved = {name: tuple(part.cuda() for part in value) for name, value in kv_data.items() if name != "bf16"}
    moved["bf16"] = kv_data["bf16"].cuda()
    return q.cuda(), moved, qo_indptr.cuda(), kv_indptr.cuda(), config


def assert_steady_state(plan, data):
    """A call after the first neither allocates device memory nor waits for the device."""
    plan(data)
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    torch.cuda.set_sync_debug_mode("error")
    try:
        plan(data)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
