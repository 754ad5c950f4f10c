"""Inputs that the CUDA kernels are tried with, on a GPU and on the CPU machine."""

from __future__ import annotations

import random
from typing import Any

import torch
from mla_oracle import make_input


def random_input(draw: random.Random, sequences: int, longest: int) -> Any:
    """A few sequences, some empty or of one token, with any number of heads and query tokens."""
    lengths = [draw.choice([0, 1, draw.randint(2, 130), draw.randint(1, longest)]) for _ in range(draw.randint(1, sequences))]
    q_len, heads, seed = draw.randint(1, 4), draw.choice([1, 8, 16, 24, 32]), draw.randint(0, 99)
    return make_input(lengths if any(lengths) else [1], q_len, heads, seed=seed)


def scales_far_apart(lengths: list[int]) -> Any:
    """mxfp4 block scales of tokens up to 2^80 apart, and within a token as far apart as matters; scores stay of order one."""
    data = make_input(lengths)
    scales, rows = data[1]["mxfp4"][1].view(torch.uint8), sum(lengths)
    draw = torch.Generator().manual_seed(1)
    across = torch.randint(-40, 40, (rows, 1), generator=draw)
    within = torch.randint(-20, 1, (rows, 18), generator=draw)
    scales[:rows, :18] = (scales[:rows, :18].int() + across + within).clamp(1, 254).to(torch.uint8)
    return data[0] * 2.0**-40, *data[1:]


def paged(data: Any, lengths: list[int], page_size: int) -> tuple[Any, torch.Tensor]:
    """`data` with its fp8 and bf16 rows in pages of a shuffled cache, and the block table. All other rows are NaN."""
    pages_each = -(-max(lengths) // page_size)
    shuffled = torch.randperm(2 * len(lengths) * pages_each, generator=torch.Generator().manual_seed(0))
    table = shuffled[: len(lengths) * pages_each].view(len(lengths), pages_each).int()

    def scattered(kv: torch.Tensor) -> torch.Tensor:
        rows = torch.full((len(shuffled) * page_size, *kv.shape[1:]), 0xFF, dtype=torch.uint8)
        for sequence, first in enumerate(data[3][:-1].tolist()):
            for token in range(lengths[sequence]):
                page = int(table[sequence, token // page_size])
                rows[page * page_size + token % page_size] = kv[first + token]
        return rows

    fp8, scale = data[1]["fp8"]
    rows8 = scattered(fp8.view(torch.uint8)).view(fp8.dtype)
    rows16 = scattered(data[1]["bf16"].view(torch.uint8)).view(torch.bfloat16)
    return (data[0], {**data[1], "fp8": (rows8, scale), "bf16": rows16}, *data[2:]), table
