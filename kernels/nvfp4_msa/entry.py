"""What an evaluator calls."""

from __future__ import annotations

from typing import Any

import torch

from kernels.nvfp4_msa.dispatch import SELECTION
from kernels.origin import note_origin


def custom_kernel(data: tuple) -> torch.Tensor:
    """Block-sparse decode of `data` = (q, cache, topk, block_table, seq_lens, k_scale, v_scale, config); returns bf16
    [rows, heads, 128].

    The output buffer belongs to the plan of this input's shapes: the next call of equal shapes overwrites it. Raises the
    InputError of what is wrong with the shapes, dtypes or strides.
    """
    try:
        return SELECTION.plan_for(data)(data)
    except Exception as error:
        note_origin(error)
        raise


def describe(data: tuple) -> dict[str, Any]:
    """The backend and parameters that serve `data`."""
    backend, params = SELECTION.choose(data)
    return {"backend": backend.name, "params": params}
