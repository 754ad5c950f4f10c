"""What an evaluator calls."""

from __future__ import annotations

from typing import Any

import torch

from kernels.flash_mla.call import check_call
from kernels.flash_mla.dispatch import SELECTION
from kernels.flash_mla.interface import FlashMLASchedMeta, flash_mla_with_kvcache, get_mla_metadata
from kernels.origin import note_origin

SCHEDULERS: dict[tuple, FlashMLASchedMeta] = {}


def custom_kernel(data: tuple) -> tuple[torch.Tensor, torch.Tensor]:
    """MLA decode of `data` = (q, k_cache, options): (out bf16 [batch, q_len, heads, 512], lse fp32 [batch, heads, q_len])."""
    q, cache, options = data
    shapes = (value.shape if isinstance(value, torch.Tensor) else value for value in (q, cache, *options.values()))
    metadata = SCHEDULERS.setdefault(tuple(shapes), get_mla_metadata()[0])
    try:
        return flash_mla_with_kvcache(q, cache, tile_scheduler_metadata=metadata, **options)
    except Exception as error:
        note_origin(error)
        raise


def describe(data: tuple) -> dict[str, Any]:
    """The backend and parameters that serve `data`."""
    q, cache, options = data
    backend, params = SELECTION.choose(check_call({"q": q, "k_cache": cache, **options}))
    return {"backend": backend.name, "params": params}
