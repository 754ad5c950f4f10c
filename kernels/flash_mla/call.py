"""One call of flash_mla_with_kvcache after its arguments have been checked: what a backend gets.

Cache layouts, per token of page p and slot s (sizes in bytes):
    bf16_576, bf16_512   dims x bf16; K is all of them, V the first 512
    v32                  656: 512 x e4m3fn | 4 x fp32 scale, one per 128 | 64 x bf16 RoPE; V is the dequantised 512
    model1               a page is P x 576 (448 x e4m3fn | 64 x bf16 RoPE), then P x 8 (7 x E8M0 scale, one per 64 | 1 unused);
                         K and V are all 512 dims
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from kernels.selection import tensor_key

V_DIM = 512
FP8_LAYOUTS = {656: ("v32", 576), 584: ("model1", 512)}  # nominal last dim of the cache -> layout, dims of q
BYTE_TYPES = (torch.float8_e4m3fn, torch.uint8, torch.int8)


class FlashMlaError(ValueError):
    """An argument of flash_mla_with_kvcache cannot be used; the message names it, what it is and what it has to be."""


class Workload(NamedTuple):
    """What dispatch knows of a call."""

    kind: str  # dense, or the layout of a sparse cache
    batch: int
    q_len: int
    heads: int
    kv_heads: int
    tokens: int  # that a query token attends to, at most; known without asking the device

    @property
    def shared_rows(self) -> int:
        """Query rows (tokens x heads) that attend to the same rows of the cache."""
        return self.q_len * self.heads // self.kv_heads if self.kind == "dense" else self.heads

    @property
    def groups(self) -> int:
        """How many sets of such rows there are."""
        return self.batch * (self.kv_heads if self.kind == "dense" else self.q_len)


class Call(NamedTuple):
    q: torch.Tensor  # bf16 [batch, q_len, heads, 576 or 512], contiguous
    cache: torch.Tensor  # [pages, page_size, kv_heads, ...]: bf16, or the bytes of an FP8 layout
    layout: str
    sm_scale: float
    causal: bool
    block_table: torch.Tensor | None  # int32 [batch, max_pages], dense only
    seqlens: torch.Tensor | None  # int32 [batch], dense only
    indices: torch.Tensor | None  # int32 [batch, q_len, topk], sparse only; so is everything below
    length: torch.Tensor | None  # int32 [batch]
    sink: torch.Tensor | None  # fp32 [heads]
    extra_cache: torch.Tensor | None
    extra_indices: torch.Tensor | None  # int32 [batch, q_len, extra_topk]
    extra_length: torch.Tensor | None  # int32 [batch]


def workload(call: Call) -> Workload:
    batch, q_len, heads, _ = call.q.shape
    page_size, kv_heads = call.cache.shape[1:3]
    if call.indices is None:
        assert call.block_table is not None
        return Workload("dense", batch, q_len, heads, kv_heads, call.block_table.shape[1] * page_size)
    tokens = call.indices.shape[2] + (0 if call.extra_indices is None else call.extra_indices.shape[2])
    return Workload(call.layout, batch, q_len, heads, kv_heads, tokens)


def require(condition: bool, message: str) -> None:
    if not condition:
        raise FlashMlaError(message)


def check_call(arguments: dict[str, Any]) -> Call:
    """The call that the arguments of flash_mla_with_kvcache (by name) describe. Raises FlashMlaError."""
    q, cache = arguments["q"], arguments["k_cache"]
    require(q.dim() == 4 and q.dtype == torch.bfloat16, f"q is {kind(q)}; it has to be bf16 [batch, q_len, heads, dims]")
    require(arguments["head_dim_v"] == V_DIM, f"head_dim_v is {arguments['head_dim_v']}; it has to be {V_DIM}")
    layout = cache_layout("k_cache", cache, q, arguments["is_fp8_kvcache"])
    scale = arguments["softmax_scale"]
    call = Call(
        q=q.contiguous(),
        cache=cache,
        layout=layout,
        sm_scale=float(q.shape[3] ** -0.5 if scale is None else scale),
        causal=bool(arguments["causal"]),
        block_table=arguments["block_table"],
        seqlens=arguments["cache_seqlens"],
        indices=arguments["indices"],
        length=arguments["topk_length"],
        sink=arguments["attn_sink"],
        extra_cache=arguments["extra_k_cache"],
        extra_indices=arguments["extra_indices_in_kvcache"],
        extra_length=arguments["extra_topk_length"],
    )
    return check_dense(call) if call.indices is None else check_sparse(call, arguments["is_fp8_kvcache"])


def cache_layout(name: str, cache: torch.Tensor, q: torch.Tensor, is_fp8: bool) -> str:
    """The layout of a cache; checks dims, dtype and the alignment that 16-byte loads need."""
    dims = q.shape[3]
    require(cache.dim() == 4, f"{name} has {cache.dim()} dimensions; it has to be [pages, page_size, kv_heads, dims]")
    if is_fp8:
        layout, wanted = FP8_LAYOUTS.get(cache.shape[3], ("", 0))
        sizes = "656 (V32, with q of 576 dims) or 584 (MODEL1, with q of 512)"
        problem = f"{name} has last dim {cache.shape[3]} and q {dims} dims; an FP8 cache has {sizes}"
        require(layout != "" and dims == wanted, problem)
        require(cache.dtype in BYTE_TYPES, f"{name} is {cache.dtype}; an FP8 cache is float8_e4m3fn or uint8")
        strides = [cache.stride(0)] if cache.shape[0] > 1 else []
    else:
        layout = f"bf16_{dims}"
        require(dims in (512, 576), f"q has {dims} dims; they have to be 576 or 512")
        require(cache.dtype == torch.bfloat16, f"{name} is {cache.dtype}; without is_fp8_kvcache it has to be bf16")
        require(cache.shape[3] == dims, f"{name} has {cache.shape[3]} dims and q {dims}; they have to be equal")
        require(cache.stride(3) == 1, f"{name} has stride {cache.stride(3)} between dims; it has to be 1")
        strides = [cache.stride(i) for i in range(3) if cache.shape[i] > 1]
    aligned = all(stride * cache.element_size() % 16 == 0 for stride in strides)
    problem = f"{name} has strides {tuple(cache.stride())} and address {cache.data_ptr():#x}; rows have to begin at 16 bytes"
    require(aligned and cache.data_ptr() % 16 == 0, problem)
    return layout


def check_dense(call: Call) -> Call:
    sparse_only = {
        "attn_sink": call.sink,
        "extra_k_cache": call.extra_cache,
        "extra_indices_in_kvcache": call.extra_indices,
        "topk_length": call.length,
        "extra_topk_length": call.extra_length,
    }
    for name, value in sparse_only.items():
        require(value is None, f"{name} is given without indices; dense attention takes none")
    require(call.layout.startswith("bf16"), "is_fp8_kvcache is set without indices; dense attention reads a bf16 cache")
    batch, _, heads, _ = call.q.shape
    kv_heads = call.cache.shape[2]
    require(heads % kv_heads == 0, f"q has {heads} heads and k_cache {kv_heads}; the first has to be a multiple of the second")
    table = int32("block_table", call.block_table, (batch, None))
    seqlens = int32("cache_seqlens", call.seqlens, (batch,))
    return call._replace(block_table=table, seqlens=seqlens)


def check_packed(name: str, cache: torch.Tensor, layout: str) -> None:
    """The tokens of a page follow each other; MODEL1's shape only names its bytes."""
    packed = layout == "model1" or cache.shape[1] == 1 or cache.stride(1) == cache.shape[3]
    require(packed, f"{name} has stride {cache.stride(1)} between the tokens of a page; it has to be {cache.shape[3]}")
    require(cache.shape[2] == 1, f"{name} has {cache.shape[2]} KV heads; sparse attention takes 1")


def check_sparse(call: Call, is_fp8: bool) -> Call:
    batch, q_len, heads, _ = call.q.shape
    require(not call.causal, "causal is set together with indices; sparse attention takes causal=False")
    check_packed("k_cache", call.cache, call.layout)
    together = (call.extra_cache is None) == (call.extra_indices is None)
    require(together, "extra_k_cache and extra_indices_in_kvcache have to be given together")
    require(call.extra_length is None or call.extra_cache is not None, "extra_topk_length is given without extra_k_cache")
    replaced: dict[str, Any] = {"indices": int32("indices", call.indices, (batch, q_len, None))}
    if call.extra_cache is not None:
        cache_layout("extra_k_cache", call.extra_cache, call.q, is_fp8)
        check_packed("extra_k_cache", call.extra_cache, call.layout)
        replaced["extra_indices"] = int32("extra_indices_in_kvcache", call.extra_indices, (batch, q_len, None))
    if call.length is not None:
        replaced["length"] = int32("topk_length", call.length, (batch,))
    if call.extra_length is not None:
        replaced["extra_length"] = int32("extra_topk_length", call.extra_length, (batch,))
    if call.sink is not None:
        fits = call.sink.dtype == torch.float32 and tuple(call.sink.shape) == (heads,)
        require(fits, f"attn_sink is {kind(call.sink)}; it has to be fp32 [{heads}], one per query head")
        replaced["sink"] = call.sink.contiguous()
    return call._replace(**replaced)


def int32(name: str, tensor: torch.Tensor | None, shape: tuple[int | None, ...]) -> torch.Tensor:
    wanted = f"it has to be int32 {['any' if n is None else n for n in shape]}"
    if tensor is None:
        raise FlashMlaError(f"{name} is None; {wanted}")
    fits = len(tensor.shape) == len(shape) and all(w in (None, n) for w, n in zip(shape, tensor.shape, strict=True))
    require(fits and tensor.dtype == torch.int32, f"{name} is {kind(tensor)}; {wanted}")
    return tensor.contiguous()


def kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def call_key(call: Call) -> tuple:
    """Two calls with equal keys may share a plan: the scale and the contents of tensors are read at every call."""
    q, cache, layout, _, causal, *optional = call
    keys = (None if tensor is None else tensor_key(tensor) for tensor in optional)
    return q.device, layout, causal, tensor_key(q), tensor_key(cache), *keys
