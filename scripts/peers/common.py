"""What every peer starts with: the shape of a case, and one plan for each shape.

scripts/bench_peers.py puts this file in front of a peer's own, which makes the two a submission. Whatever a peer prepares
(metadata, workspaces, compiled kernels) it prepares in its plan, at the first call of a shape, which is judged and not
timed: the same for all. A plan must not remember addresses or contents: every timed call comes with new ones.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from task import input_t

KV_RANK, ROPE_DIM = 512, 64  # of the 576 values of a KV row; the first are V too
Kernel = Callable[[input_t], torch.Tensor]


class Shape(NamedTuple):
    """A case whose sequences are equally long."""

    batch: int
    q_len: int
    kv_len: int
    heads: int
    sm_scale: float


class Unsupported(ValueError):
    """A case that this peer has no kernel for."""


def shape_of(data: input_t) -> Shape:
    """Raises Unsupported where lengths differ: they would have to be read from the device during every timed call."""
    q, kv_data, _, _, config = data
    shape = Shape(config["batch_size"], config["q_seq_len"], config["kv_seq_len"], q.shape[1], config["sm_scale"])
    if kv_data["bf16"].shape[0] != shape.batch * shape.kv_len:
        raise Unsupported("sequences of different lengths: planning them would be part of every timed call")
    return shape


def need_gpu(data: input_t) -> torch.device:
    """The device of the inputs. Raises Unsupported on a CPU."""
    device = data[0].device
    if device.type != "cuda":
        raise Unsupported(f"needs a GPU; the inputs are on {device}")
    return device


def need_pages(shape: Shape, page_size: int) -> int:
    """Pages of one sequence. Raises Unsupported unless sequences fill theirs: rows lie densely one sequence after the other."""
    if shape.kv_len % page_size:
        raise Unsupported(f"kv length {shape.kv_len}: its pages hold {page_size} tokens")
    return shape.kv_len // page_size


def page_table(shape: Shape, page_size: int, device: torch.device) -> torch.Tensor:
    """int32 [batch, pages of a sequence]: the pages in the order in which they lie."""
    pages = need_pages(shape, page_size)
    return torch.arange(shape.batch * pages, dtype=torch.int32, device=device).view(shape.batch, pages)


def lengths(shape: Shape, device: torch.device) -> torch.Tensor:
    """int32 [batch]: tokens in the KV cache."""
    return torch.full((shape.batch,), shape.kv_len, dtype=torch.int32, device=device)


PLANS: dict[Any, Kernel] = {}


def planned(data: input_t, plan: Callable[[input_t, Shape], Kernel]) -> Kernel:
    """The plan for this shape, made when it is first seen."""
    key = shape_of(data)
    if key not in PLANS:
        PLANS[key] = plan(data, key)
    return PLANS[key]
