"""Sizes of the mixed-MLA problem, the shape that dispatch looks up, and the key under which a plan is cached."""

from __future__ import annotations

from typing import NamedTuple

from kernels.selection import tensor_key
from task import input_t

QK_DIM = 576  # one KV row: 512 latent values (also V) and 64 rotary ones
V_DIM = 512


class Shape(NamedTuple):
    """What dispatch knows of a case. `q_len` and `kv_len` are the longest of their batch."""

    batch: int
    q_len: int
    kv_len: int
    heads: int

    @property
    def rows(self) -> int:
        """Query rows that share one sequence's KV."""
        return self.q_len * self.heads


def shape_of(data: input_t) -> Shape:
    q, _, _, kv_indptr, config = data
    return Shape(kv_indptr.numel() - 1, int(config["q_seq_len"]), int(config["kv_seq_len"]), q.shape[1])


def plan_key(data: input_t) -> tuple:
    """Two inputs with equal keys may share a plan.

    The contents of the indptr tensors are absent because no plan reads them: kernels read them at every call.
    """
    q, kv_data, qo_indptr, kv_indptr, config = data
    fp8, fp8_scale = kv_data["fp8"]
    fp4, fp4_scale = kv_data["mxfp4"]
    tensors = (q, kv_data["bf16"], fp8, fp8_scale, fp4, fp4_scale, qo_indptr, kv_indptr)
    return q.device, config["q_seq_len"], config["kv_seq_len"], config["sm_scale"], *map(tensor_key, tensors)
