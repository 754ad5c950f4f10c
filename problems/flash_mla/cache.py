"""Byte layouts of the caches: new ones full of NaN, quantised rows written into them, exact values read back.

    bf16     [pages, page_size, kv_heads, dims]
    v32      656 bytes a token: 512 x e4m3fn | 4 x fp32 scale, one per 128 | 64 x bf16 RoPE
    model1   a page of P tokens is P x 576 bytes (448 x e4m3fn | 64 x bf16 RoPE), then P x 8 bytes (7 x E8M0 scale, one per 64 |
             1 unused); the page stride is rounded up to a multiple of 576. Its shape [pages, P, 1, 584] only names the bytes.
The scale of both is 2^ceil(log2(max(amax / 448, 1e-4))), so that a token of zeros has one too.
"""

from typing import NamedTuple

import torch

ROPE_DIM = 64
E4M3_MAX = 448.0
MIN_SCALE = 1e-4
E8M0_BIAS = 127
NAN_BYTE = 0xFF  # NaN in e4m3fn and E8M0, and, repeated, in bf16 and fp32


class Layout(NamedTuple):
    dims: int  # of K
    nope: int  # quantised ones
    run: int  # of them share a scale
    nominal_bytes: int  # last dim of the cache tensor


FP8_LAYOUTS = {"v32": Layout(576, 512, 128, 656), "model1": Layout(512, 448, 64, 584)}


def bytes_per_token(layout: str, dims: int, kv_heads: int) -> int:
    """Bytes of one cached token that any kernel has to read: MODEL1's unused byte is not among them."""
    if layout == "bf16":
        return 2 * dims * kv_heads
    return FP8_LAYOUTS[layout].nominal_bytes - (1 if layout == "model1" else 0)


def new_cache(layout: str, pages: int, page_size: int, dims: int, kv_heads: int, device: torch.device) -> torch.Tensor:
    """A cache of which every byte is part of a NaN. V32 pages are one token apart, as in FlashMLA's own tests."""
    pages = max(pages, 1)
    if layout == "bf16":
        return torch.full((pages, page_size, kv_heads, dims), torch.nan, dtype=torch.bfloat16, device=device)
    nominal = FP8_LAYOUTS[layout].nominal_bytes
    page_bytes = (page_size + 1) * 656 if layout == "v32" else -(-page_size * nominal // 576) * 576
    raw = torch.full((pages, page_bytes), NAN_BYTE, dtype=torch.uint8, device=device)
    return raw.as_strided((pages, page_size, 1, nominal), (page_bytes, nominal, nominal, 1)).view(torch.float8_e4m3fn)


def block_scales(nope: torch.Tensor, run: int) -> torch.Tensor:
    """Powers of two, fp32 [n, runs], for values [n, runs * run]."""
    amax = nope.float().unflatten(-1, (-1, run)).abs().amax(-1)
    return torch.exp2((amax / E4M3_MAX).clamp_min(MIN_SCALE).log2().ceil())


def page_views(cache: torch.Tensor, layout: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Bytes of an FP8 cache as (values, scales, RoPE), uint8 [pages, page_size, ...] each, sharing its memory."""
    nope = FP8_LAYOUTS[layout].nope
    pages, page_size = cache.shape[:2]
    raw, stride, at = cache.view(torch.uint8), cache.stride(0), cache.storage_offset()
    if layout == "v32":
        rows = raw[:, :, 0]
        return rows[..., :nope], rows[..., nope : nope + 16], rows[..., nope + 16 :]
    rows = raw.as_strided((pages, page_size, 576), (stride, 576, 1), at)
    scales = raw.as_strided((pages, page_size, 7), (stride, 8, 1), at + page_size * 576)
    return rows[..., :nope], scales, rows[..., nope:]


def write_rows(cache: torch.Tensor, layout: str, tokens: torch.Tensor, rows: torch.Tensor) -> None:
    """Quantise bf16 rows [n, kv_heads, dims] into the tokens int64 [n] (page * page_size + offset) of a cache."""
    page, slot = tokens // cache.shape[1], tokens % cache.shape[1]
    if layout == "bf16":
        cache[page, slot] = rows
        return
    fp8 = FP8_LAYOUTS[layout]
    nope, rope = rows[:, 0, : fp8.nope].float(), rows[:, 0, fp8.nope :].contiguous()
    scales = block_scales(nope, fp8.run)
    values = (nope / scales.repeat_interleave(fp8.run, -1)).to(torch.float8_e4m3fn)
    encoded = scales.view(torch.uint8) if layout == "v32" else (scales.log2() + E8M0_BIAS).to(torch.uint8)
    for view, part in zip(page_views(cache, layout), (values, encoded, rope), strict=True):
        view[page, slot] = part.view(torch.uint8)


def read_rows(cache: torch.Tensor, layout: str, tokens: torch.Tensor) -> torch.Tensor:
    """Exact values of tokens int64 [...]: fp64 [..., kv_heads, dims]."""
    page, slot = tokens // cache.shape[1], tokens % cache.shape[1]
    if layout == "bf16":
        return cache[page, slot].double()
    fp8 = FP8_LAYOUTS[layout]
    values, encoded, rope = (view[page, slot].contiguous() for view in page_views(cache, layout))
    scales = encoded.view(torch.float32).double() if layout == "v32" else torch.exp2(encoded.double() - E8M0_BIAS)
    nope = values.view(torch.float8_e4m3fn).double() * scales.repeat_interleave(fp8.run, -1)
    return torch.cat((nope, rope.view(torch.bfloat16).double()), -1).unsqueeze(-2)
