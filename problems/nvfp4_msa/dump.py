"""What lies where in an NVFP4 page.

    python -m problems.nvfp4_msa.dump --heads 4                           the sections of a page
    python -m problems.nvfp4_msa.dump --heads 4 --where 71001             which numbers a byte of a page belongs to
    python -m problems.nvfp4_msa.dump --heads 4 --token 5 --head 2        where the bytes of a token lie
    python -m problems.nvfp4_msa.dump --heads 4 --token 5 --head 2 --file cache.pt --page 3      and what they are

FILE is a tensor saved by torch.save, or the raw bytes of whole pages. --v-scales linear is for writers that do not swizzle.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from problems.nvfp4_msa.pages import (
    DATA_BYTES,
    HEAD_DIM,
    NUM_SCALES,
    PAGE_TOKENS,
    SCALE_BLOCK,
    V_SCALES,
    Heads,
    PageError,
    Section,
    cache_shape,
    check_cache,
    decode,
    page_bytes,
    read_pages,
    sections,
    swizzle,
    v_scale_offset,
)


class Place(NamedTuple):
    """What a byte of a page holds: codes or the scale of some dims of one token of one KV head."""

    section: str
    head: int
    token: int
    dims: range


class Run(NamedTuple):
    """Bytes of one token: `count` of them, `step` apart."""

    section: str
    offset: int
    count: int
    step: int


def place_of(offset: int, num_kv_heads: int, v_scales: str = "swizzled") -> Place:
    """What the byte at `offset` of a page holds. Raises PageError outside of the page."""
    if not 0 <= offset < page_bytes(num_kv_heads):
        raise PageError(f"byte {offset}: a page of {num_kv_heads} KV heads has bytes 0 to {page_bytes(num_kv_heads) - 1}")
    section = next(s for s in reversed(sections(num_kv_heads)) if s.offset <= offset)
    head, within = divmod(offset - section.offset, section.nbytes // num_kv_heads)
    if section.name == "v_scales" and v_scales == "swizzled":
        within = int(swizzle(torch.arange(PAGE_TOKENS * NUM_SCALES).view(PAGE_TOKENS, NUM_SCALES)).flatten()[within])
    token, byte = divmod(within, section.shape[2])
    width = HEAD_DIM // section.shape[2]
    return Place(section.name, head, token, range(byte * width, (byte + 1) * width))


def runs_of(token: int, head: int, num_kv_heads: int, v_scales: str = "swizzled") -> list[Run]:
    """Where the bytes of a token lie. Raises PageError for a token or head that a page does not have."""
    if not (0 <= token < PAGE_TOKENS and 0 <= head < num_kv_heads):
        has = f"tokens 0 to {PAGE_TOKENS - 1} of heads 0 to {num_kv_heads - 1}"
        raise PageError(f"token {token} of head {head}: a page has {has}")
    return [_run(section, token, head, num_kv_heads, v_scales) for section in sections(num_kv_heads)]


def _run(section: Section, token: int, head: int, num_kv_heads: int, v_scales: str) -> Run:
    width, start = section.shape[2], section.offset + head * (section.nbytes // num_kv_heads)
    if section.name != "v_scales":
        return Run(section.name, start + token * width, width, 1)
    first, second = (v_scale_offset(token, group, v_scales) for group in (0, 1))
    return Run(section.name, start + first, width, second - first)


def section_lines(num_kv_heads: int) -> Iterator[str]:
    yield f"a page of {num_kv_heads} KV heads: {page_bytes(num_kv_heads):,} bytes"
    for section in sections(num_kv_heads):
        head_bytes = section.nbytes // num_kv_heads
        line = f"  {section.offset:>7} {section.offset + section.nbytes:>7}  {section.name:<8}"
        yield f"{line}  {num_kv_heads} heads of {head_bytes} bytes, {section.shape[2]} a token"


def token_lines(runs: list[Run]) -> Iterator[str]:
    for run in runs:
        apart = "" if run.step == 1 else f", {run.step} apart"
        yield f"  {run.section:<8}  {run.count:>2} bytes from {run.offset}{apart}"


def place_line(offset: int, place: Place, v_scales: str) -> str:
    what = "scale of dims" if place.section.endswith("scales") else "codes of dims"
    order = f" ({v_scales})" if place.section == "v_scales" else ""
    dims = f"{place.dims.start} to {place.dims.stop - 1}"
    return f"byte {offset}: {place.section}{order}, head {place.head}, token {place.token}, {what} {dims}"


def value_lines(contents: Heads, head: int, token: int) -> Iterator[str]:
    """A token of one page: contents as read_pages has them, with one page."""
    one = Heads(*(part[0, head, token] for part in contents))
    for name, data, scales in (("K", one.k_data, one.k_scales), ("V", one.v_data, one.v_scales)):
        values = decode(data, scales, 1.0).view(NUM_SCALES, SCALE_BLOCK)
        for group, (scale, block) in enumerate(zip(scales.tolist(), values.tolist(), strict=True)):
            codes = " ".join(f"{byte:02x}" for byte in data[group * 8 : group * 8 + DATA_BYTES // NUM_SCALES].tolist())
            numbers = " ".join(f"{value:g}" for value in block)
            yield f"  {name} dims {group * SCALE_BLOCK:>3}  scale {scale:02x}  codes {codes}  {numbers}"


def load_cache(path: Path, num_kv_heads: int) -> torch.Tensor:
    """A cache from a file. Raises PageError if it does not hold whole pages."""
    try:
        if path.suffix == ".pt":
            cache = torch.load(path, map_location="cpu", weights_only=True)
        else:
            cache = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)
    except OSError as error:
        raise PageError(f"{path}: {error.strerror}") from None
    size = page_bytes(num_kv_heads)
    if not isinstance(cache, torch.Tensor) or cache.numel() == 0 or cache.numel() % size:
        found = f"{cache.numel():,} bytes" if isinstance(cache, torch.Tensor) else f"a {type(cache).__name__}"
        raise PageError(f"{path}: {found}, no whole number of pages of {size:,} bytes; is --heads {num_kv_heads} right?")
    cache = cache.view(torch.uint8).reshape(cache_shape(cache.numel() // size, num_kv_heads))
    check_cache(cache)
    return cache


def options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m problems.nvfp4_msa.dump", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--heads", type=int, required=True, help="KV heads of the cache")
    parser.add_argument("--v-scales", choices=V_SCALES, default="swizzled")
    parser.add_argument("--where", type=int, metavar="BYTE", help="a byte of a page")
    parser.add_argument("--token", type=int, help="a token of a page")
    parser.add_argument("--head", type=int, default=0)
    parser.add_argument("--file", type=Path, help="a cache")
    parser.add_argument("--page", type=int, default=0)
    made = parser.parse_args(argv)
    if made.heads < 1:
        parser.error(f"--heads {made.heads}: a cache has at least one KV head")
    if made.file and made.token is None:
        parser.error("--file needs --token, and --head and --page where they are not 0")
    return made


def lines(chosen: argparse.Namespace) -> Iterator[str]:
    if chosen.where is not None:
        yield place_line(chosen.where, place_of(chosen.where, chosen.heads, chosen.v_scales), chosen.v_scales)
    elif chosen.token is None:
        yield from section_lines(chosen.heads)
    else:
        runs = runs_of(chosen.token, chosen.head, chosen.heads, chosen.v_scales)
        yield f"token {chosen.token} of head {chosen.head}, V scales {chosen.v_scales}"
        yield from token_lines(runs)
    if chosen.file and chosen.token is not None:
        cache = load_cache(chosen.file, chosen.heads)
        if not 0 <= chosen.page < len(cache):
            raise PageError(f"page {chosen.page}: {chosen.file} has pages 0 to {len(cache) - 1}")
        yield f"page {chosen.page} of {chosen.file}, values without the global scale"
        yield from value_lines(read_pages(cache[chosen.page : chosen.page + 1], chosen.v_scales), chosen.head, chosen.token)


def main(argv: list[str] | None = None) -> int:
    try:
        for line in lines(options(argv)):
            print(line)
    except PageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
