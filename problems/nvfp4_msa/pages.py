"""NVFP4 numbers and the bytes of a page: the writer, the reader, and where what lies.

A page holds PAGE_TOKENS tokens of every KV head, in four sections: K data, K scales, V data, V scales. A number is
e2m1 * e4m3 block scale * fp32 global scale; two E2M1 codes share a byte (the even dim in the low nibble), SCALE_BLOCK
neighbouring dims share a block scale. Depends on torch alone; problem folders stage it flat.
"""

from itertools import pairwise
from typing import NamedTuple

import torch

HEAD_DIM = 128
PAGE_TOKENS = 128  # also the tokens of a block: block = page
SCALE_BLOCK = 16
NUM_SCALES = HEAD_DIM // SCALE_BLOCK  # of a token
DATA_BYTES = HEAD_DIM // 2  # of a token
TOKEN_BYTES = DATA_BYTES + NUM_SCALES  # of K or of V
HEAD_BYTES = 2 * PAGE_TOKENS * TOKEN_BYTES  # K and V of one KV head in a page: 18,432

E2M1_MAX, E4M3_MAX = 6.0, 448.0
E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
V_SCALES = ("swizzled", "linear")  # how V scales may lie in a page; K scales are always linear


class Section(NamedTuple):
    """A part of a page. The bytes of head h start at offset + h * (nbytes / num_kv_heads)."""

    name: str
    offset: int  # bytes from the start of the page
    nbytes: int
    shape: tuple[int, int, int]  # [num_kv_heads, PAGE_TOKENS, bytes per token]


class Heads(NamedTuple):
    """The contents of pages, by KV head and token; scales in token order, however the page holds them."""

    k_data: torch.Tensor  # uint8 [pages, num_kv_heads, PAGE_TOKENS, DATA_BYTES]
    k_scales: torch.Tensor  # uint8 [pages, num_kv_heads, PAGE_TOKENS, NUM_SCALES], e4m3 patterns
    v_data: torch.Tensor
    v_scales: torch.Tensor


class PageError(ValueError):
    """Bytes that are no NVFP4 page; the message names what was found and what a page has."""


def sections(num_kv_heads: int) -> tuple[Section, ...]:
    """The sections of a page in the order of their offsets; together they fill page_bytes(num_kv_heads)."""
    widths = (("k_data", DATA_BYTES), ("k_scales", NUM_SCALES), ("v_data", DATA_BYTES), ("v_scales", NUM_SCALES))
    parts, offset = [], 0
    for name, width in widths:
        nbytes = num_kv_heads * PAGE_TOKENS * width
        parts.append(Section(name, offset, nbytes, (num_kv_heads, PAGE_TOKENS, width)))
        offset += nbytes
    return tuple(parts)


def page_bytes(num_kv_heads: int) -> int:
    return num_kv_heads * HEAD_BYTES


def cache_shape(pages: int, num_kv_heads: int) -> tuple[int, int, int, int]:
    """The allocation that serving engines make. Only its size is true to the contents: no token has 72 bytes in a row."""
    return pages, 2 * num_kv_heads, PAGE_TOKENS, TOKEN_BYTES


def v_scale_offset(token: int, group: int, v_scales: str = "swizzled") -> int:
    """Byte of the scale of dims [16 * group, 16 * group + 16) of `token` among the V scales of a head."""
    if v_scales == "linear":
        return token * NUM_SCALES + group
    return token // 4 * 32 + 4 * group + token % 4


def swizzle(scales: torch.Tensor) -> torch.Tensor:
    """V scales [..., PAGE_TOKENS, NUM_SCALES] in token order -> the same shape in the swizzled order of a page.

    Four tokens' scales of one group become neighbours: one 32-bit load gives what four tokens need.
    """
    fours = scales.unflatten(-2, (PAGE_TOKENS // 4, 4))  # [..., token // 4, token % 4, group]
    return fours.transpose(-1, -2).reshape(scales.shape)


def unswizzle(scales: torch.Tensor) -> torch.Tensor:
    """The inverse of `swizzle`."""
    fours = scales.reshape(*scales.shape[:-2], PAGE_TOKENS // 4, NUM_SCALES, 4)
    return fours.transpose(-1, -2).reshape(scales.shape)


def write_pages(heads: Heads, v_scales: str = "swizzled") -> torch.Tensor:
    """Pages with these contents: uint8 cache_shape(pages, num_kv_heads). Raises PageError."""
    _check_order(v_scales)
    pages, num_kv_heads = heads.k_data.shape[:2]
    stored = heads._replace(v_scales=swizzle(heads.v_scales)) if v_scales == "swizzled" else heads
    for part, section in zip(stored, sections(num_kv_heads), strict=True):
        if part.dtype != torch.uint8 or part.shape != (pages, *section.shape):
            found = f"{part.dtype} {list(part.shape)}"
            raise PageError(f"{section.name} is {found}; a page takes torch.uint8 {[pages, *section.shape]}")
    return torch.cat([part.flatten(1) for part in stored], dim=1).view(cache_shape(pages, num_kv_heads))


def read_pages(cache: torch.Tensor, v_scales: str = "swizzled") -> Heads:
    """What `write_pages` was given, for a cache or any selection of its pages. Raises PageError."""
    _check_order(v_scales)
    num_kv_heads = check_cache(cache)
    flat = cache.flatten(1)
    parts = Heads(*(flat[:, s.offset : s.offset + s.nbytes].view(-1, *s.shape) for s in sections(num_kv_heads)))
    return parts._replace(v_scales=unswizzle(parts.v_scales)) if v_scales == "swizzled" else parts


def check_cache(cache: torch.Tensor) -> int:
    """The number of KV heads of a cache. Raises PageError if it cannot be one."""
    wanted = f"a cache is torch.uint8 [pages, 2 * num_kv_heads, {PAGE_TOKENS}, {TOKEN_BYTES}]"
    if cache.dtype != torch.uint8 or cache.ndim != 4:
        raise PageError(f"{cache.dtype} with {cache.ndim} dimensions; {wanted}")
    if cache.shape[2:] != (PAGE_TOKENS, TOKEN_BYTES) or cache.shape[1] % 2 or not cache.shape[1]:
        raise PageError(f"pages of {list(cache.shape[1:])} bytes; {wanted}: {HEAD_BYTES} bytes for a KV head")
    return cache.shape[1] // 2


def _check_order(v_scales: str) -> None:
    if v_scales not in V_SCALES:
        raise PageError(f"v_scales: {v_scales!r} is unknown; use {' or '.join(V_SCALES)}")


# ---- numbers ---------------------------------------------------------------------------------------------------------


def global_scale(x: torch.Tensor) -> torch.Tensor:
    """fp32 [1]: the global scale under which the largest block of x gets the largest block scale. 1 if x is all zeros."""
    amax = x.abs().amax().float().reshape(1) if x.numel() else torch.zeros(1, device=x.device)
    return torch.where(amax > 0, amax / (E2M1_MAX * E4M3_MAX), 1.0)


def encode(x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """NVFP4 of finite x [..., HEAD_DIM] under a global scale fp32 [1]: block scale = e4m3(amax / (6 * scale)).

    Returns data uint8 [..., DATA_BYTES] and block scales uint8 [..., NUM_SCALES] (e4m3 patterns). A block whose scale
    rounds to 0 is 0.
    """
    blocks = x.float().unflatten(-1, (NUM_SCALES, SCALE_BLOCK))
    block_scales = (blocks.abs().amax(-1) / (E2M1_MAX * scale)).clamp(max=E4M3_MAX).to(torch.float8_e4m3fn)
    divisors = (block_scales.float() * scale)[..., None]
    codes = e2m1_codes(torch.where(divisors > 0, blocks / divisors, 0.0)).flatten(-2)
    return codes[..., 0::2] | codes[..., 1::2] << 4, block_scales.view(torch.uint8)


def e2m1_codes(x: torch.Tensor) -> torch.Tensor:
    """uint8 E2M1 codes of fp32 x: to nearest, ties to the even code, saturating at 6. The sign is bit 3."""
    # Code c + 1 begins above the midpoint of two values, or at it if c + 1 is even.
    middles = [(low + high) / 2 for low, high in pairwise(E2M1_VALUES)]
    limits = torch.tensor(middles, device=x.device)
    limits[1::2] = torch.nextafter(limits[1::2], torch.zeros(1, device=x.device))
    magnitudes = torch.bucketize(x.abs(), limits)  # limits[i - 1] < x <= limits[i]
    return (magnitudes | torch.signbit(x).long() << 3).to(torch.uint8)


def decode(data: torch.Tensor, scales: torch.Tensor, scale: torch.Tensor | float) -> torch.Tensor:
    """Exact values, fp64 [..., HEAD_DIM], of data uint8 [..., DATA_BYTES] and e4m3 patterns uint8 [..., NUM_SCALES]."""
    values = torch.tensor([*E2M1_VALUES, *(-value for value in E2M1_VALUES)], dtype=torch.float64, device=data.device)
    codes = torch.stack((data & 15, data >> 4), dim=-1).flatten(-2)
    blocks = values[codes.int()].unflatten(-1, (NUM_SCALES, SCALE_BLOCK))
    return (blocks * (scales.view(torch.float8_e4m3fn).double() * scale)[..., None]).flatten(-2)
