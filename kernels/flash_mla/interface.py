"""flash_mla_with_kvcache and get_mla_metadata with the signatures and return values of FlashMLA's Python package."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from kernels.flash_mla.call import Call, FlashMlaError, check_call
from kernels.flash_mla.dispatch import SELECTION


class MetadataMismatch(FlashMlaError):
    """A scheduler object is used with sizes other than those of its first call; the message names the field."""


@dataclasses.dataclass
class FlashMLASchedMeta:
    """What the calls of equal sizes share, such as the layers of a model: their plans and the workspace of the splits.

    Calls that share one may not run at the same time on several queues of a device, as they write the same workspace.
    """

    @dataclasses.dataclass
    class Config:
        b: int
        s_q: int
        h_q: int
        page_block_size: int
        h_k: int
        causal: bool
        is_fp8_kvcache: bool
        topk: int | None
        extra_page_block_size: int | None
        extra_topk: int | None

    have_initialized: bool = False
    config: Config | None = None
    plans: dict[tuple, Callable[[Call], tuple[torch.Tensor, torch.Tensor]]] = dataclasses.field(default_factory=dict)


def get_mla_metadata(*_args: Any, **_kwargs: Any) -> tuple[FlashMLASchedMeta, None]:
    """An empty FlashMLASchedMeta, which the first call of flash_mla_with_kvcache fills, and None. Arguments are ignored."""
    return FlashMLASchedMeta(), None


def flash_mla_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor | None,
    cache_seqlens: torch.Tensor | None,
    head_dim_v: int,
    tile_scheduler_metadata: FlashMLASchedMeta,
    num_splits: None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    is_fp8_kvcache: bool = False,
    indices: torch.Tensor | None = None,
    attn_sink: torch.Tensor | None = None,
    extra_k_cache: torch.Tensor | None = None,
    extra_indices_in_kvcache: torch.Tensor | None = None,
    topk_length: torch.Tensor | None = None,
    extra_topk_length: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """MLA decode: dense over a paged bf16 cache, or, if `indices` is given, over the tokens that it selects.

    q: bf16 [batch, q_len, heads, 576 or 512]. k_cache: [pages, page_size, kv_heads, ...], bf16 or, with is_fp8_kvcache, V32
    (656 bytes a token) or MODEL1 (584); kernels/flash_mla/call.py has the layouts. head_dim_v: 512. softmax_scale: dims^-0.5
    if None.
    Dense: block_table int32 [batch, max_pages], cache_seqlens int32 [batch]; causal: query i sees tokens up to
    cache_seqlens - q_len + i.
    Sparse: indices int32 [batch, q_len, topk], each page * page_size + offset; -1 or out of range is skipped wherever it
    stands; topk_length int32 [batch] keeps the leftmost entries; attn_sink fp32 [heads] multiplies out by
    1 / (1 + e^(sink - lse)); the extra_ arguments append tokens of another cache to the same softmax.

    Returns out bf16 [batch, q_len, heads, 512] and the natural log-sum-exp fp32 [batch, heads, q_len]. Without any valid token
    out = 0 and lse = +inf. After the first call of its sizes a call allocates these two alone and does not wait for the device.

    Raises FlashMlaError (naming the argument) or MetadataMismatch (naming the field).
    """
    arguments = dict(locals())
    if num_splits is not None:
        raise FlashMlaError("num_splits is given; the scheduler object holds the splits, so it has to be None")
    metadata = arguments.pop("tile_scheduler_metadata")
    if not isinstance(metadata, FlashMLASchedMeta):
        found = type(metadata).__name__
        raise FlashMlaError(f"tile_scheduler_metadata is a {found}; it has to come from get_mla_metadata() of this module")
    call = check_call(arguments)
    agree(metadata, call, is_fp8_kvcache)
    return SELECTION.plan_for(call, metadata.plans)(call)


def config_of(call: Call, is_fp8: bool) -> FlashMLASchedMeta.Config:
    batch, q_len, heads, _ = call.q.shape
    return FlashMLASchedMeta.Config(
        b=batch,
        s_q=q_len,
        h_q=heads,
        page_block_size=call.cache.shape[1],
        h_k=call.cache.shape[2],
        causal=call.causal,
        is_fp8_kvcache=bool(is_fp8),
        topk=None if call.indices is None else call.indices.shape[2],
        extra_page_block_size=None if call.extra_cache is None else call.extra_cache.shape[1],
        extra_topk=None if call.extra_indices is None else call.extra_indices.shape[2],
    )


def agree(metadata: FlashMLASchedMeta, call: Call, is_fp8: bool) -> None:
    """Fill an empty scheduler object, or check the call against it."""
    config = config_of(call, is_fp8)
    if metadata.config is None:
        metadata.have_initialized, metadata.config = True, config
    elif metadata.config != config:
        for field in dataclasses.fields(config):
            known, found = getattr(metadata.config, field.name), getattr(config, field.name)
            if known != found:
                raise MetadataMismatch(
                    f"tile_scheduler_metadata.config.{field.name} is {known} from its first call and {found} in this one; "
                    "use one get_mla_metadata() for each combination of sizes"
                )
