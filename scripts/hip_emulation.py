"""The HIP kernels of kernels/hip on CPU tensors: compiled for gfx950, run in the emulator, judged by reference.py."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import reference
from gfx950 import CodeObject, compile_hip
from gfx950.emulator import CONJUNCTION, Buffer, Run, Schedule, Verdict, launch, verify
from gfx950.report import KernelReport, report
from kernels.hip_backend import HIP_ROW_BYTES, Traits, device_source
from task import input_t

THREADS = 256
SIGNATURE = (
    "const __bf16*, const u8*, const u8*, const int*, const int*, const int*, __bf16*, __bf16*, float*, u32*, "
    "int, int, int, int, int, float"
)
NO_PAGE = 1 << 30  # a block table entry that must not be followed: the cache is far smaller


@dataclasses.dataclass(frozen=True)
class Emulation:
    """All runs of one case: the emulator's verdict, and what judge_strict said of each run's output."""

    traits: Traits
    verdict: Verdict
    judgements: list[dict[str, Any]]
    tiles: int  # tiles of 32 tokens that the launch walks over, for all sequences and groups of query rows
    kv_bytes: int  # of the KV rows (and block scales) that the launch needs, for every group of query rows

    @property
    def run(self) -> Run:
        return self.verdict.runs[0]

    @property
    def rel_l2_worst(self) -> float:
        return max(judgement["rel_l2_worst"] or 0.0 for judgement in self.judgements)

    @property
    def kv_bytes_ratio(self) -> float:
        """KV bytes requested over the bytes needed."""
        names = ("kv", "kv_scale") if self.traits.format == "mxfp4" else ("kv",)
        requested = sum(self.run.counters.buffers[name].requested_load for name in names)
        return requested / self.kv_bytes if self.kv_bytes else 1.0


@functools.cache
def compile_traits(traits: Traits) -> CodeObject:
    """The decode kernel of `traits`, and the combine."""
    instantiation = f"template __global__ void mla_decode<Traits{{{traits.initializer()}}}>({SIGNATURE});\n"
    return compile_hip(device_source() + instantiation)


def kernel_name(code: CodeObject, part: str) -> str:
    return next(kernel.name for kernel in code.kernels if part in kernel.demangled)


def decode_report(traits: Traits) -> KernelReport:
    """Registers, LDS and occupancy of the decode kernel."""
    code = compile_traits(traits)
    return report(code, kernel_name(code, "mla_decode"))[0]


@dataclasses.dataclass(frozen=True)
class Cache:
    """A KV cache as the kernels read it. table: int32 [sequences, pages]; one unused entry without paging."""

    kv: np.ndarray  # uint8 [rows, row bytes]
    scale: np.ndarray
    scale_stride: int
    table: np.ndarray
    page_bits: int


def bytes_of(tensor: torch.Tensor) -> np.ndarray:
    """uint8 [rows, bytes]"""
    return tensor.view(torch.uint8).reshape(tensor.shape[0], -1).numpy()


def contiguous_cache(data: input_t, kv_format: str) -> Cache:
    if kv_format == "bf16":
        kv, scale = data[1]["bf16"], torch.zeros(1, 4, dtype=torch.uint8)
    else:
        kv, scale = data[1][kv_format]
    stride = scale.shape[1] if kv_format == "mxfp4" else 0
    return Cache(bytes_of(kv), bytes_of(scale), stride, np.zeros((1, 1), np.int32), 0)


def paged_cache(data: input_t, kv_format: str, page_size: int, seed: int) -> Cache:
    """The same rows scattered over pages in random order; what no token owns is NaN bytes, what no page owns leads nowhere."""
    whole, indptr = contiguous_cache(data, kv_format), data[3].tolist()
    pages = [-(-(end - begin) // page_size) for begin, end in itertools.pairwise(indptr)]
    free = iter(np.random.default_rng(seed).permutation(sum(pages) + 3))
    table = np.full((len(pages), max(*pages, 1)), NO_PAGE, np.int32)
    rows = (sum(pages) + 3) * page_size
    kv = np.full((rows, whole.kv.shape[1]), 0xFF, np.uint8)
    scale = np.full((rows, whole.scale_stride), 0xFF, np.uint8) if whole.scale_stride else whole.scale
    for sequence, count in enumerate(pages):
        for page in range(count):
            physical = table[sequence, page] = next(free)
            begin = indptr[sequence] + page * page_size
            source = slice(begin, min(begin + page_size, indptr[sequence + 1]))
            target = slice(physical * page_size, physical * page_size + source.stop - source.start)
            kv[target] = whole.kv[source]
            if whole.scale_stride:
                scale[target] = whole.scale[source]
    return Cache(kv, scale, whole.scale_stride, table, page_size.bit_length() - 1)


def emulate(
    data: input_t,
    traits: Traits,
    num_kv_splits: int,
    *,
    page_size: int = 0,
    seed: int = 0,
    schedules: Sequence[Schedule] = CONJUNCTION,
    lds_fills: Sequence[str] = ("nan", "zero"),
) -> Emulation:
    """Decode, and combine if the traits leave that to a second launch, in the grid that the launcher uses; strictly judged.

    page_size: with traits.paged, a power of two; the pages are shuffled by `seed`.
    """
    q, _, qo_indptr, kv_indptr, config = data
    heads, sequences = q.shape[1], len(kv_indptr) - 1
    cache = paged_cache(data, traits.format, page_size, seed) if traits.paged else contiguous_cache(data, traits.format)
    rows_per_sequence = int((qo_indptr[1:] - qo_indptr[:-1]).max()) * heads
    groups = -(-rows_per_sequence // (16 * traits.row_blocks))
    code, judgements = compile_traits(traits), []

    def check(run: Run) -> str | None:
        out, partial, lse, tickets = run.args[6:10]
        if num_kv_splits > 1 and not traits.last_arriver:
            args = [Buffer(out, "out"), *map(frozen, (partial, lse, qo_indptr, kv_indptr)), heads, num_kv_splits, traits.tile]
            grid, name = (sequences, -(-rows_per_sequence // 4)), kernel_name(code, "mla_combine")
            options = {"schedule": run.schedule, "lds_fill": run.lds_fill, "strict": False}
            combined = launch(code, name, grid=grid, block=THREADS, args=args, **options)
            if combined.findings:
                return f"combine: {combined.findings[0]}"
        judgements.append(judgement := reference.judge_strict(data, out))
        if judgement["ok"] and judgement["format"] != traits.format:
            return f"the output is that of a kernel that reads {judgement['format']}"
        return "a ticket counter is not zero again" if tickets.any() else judgement["message"] or None

    nan = functools.partial(torch.full, fill_value=float("nan"))
    rows = q.shape[0] * heads
    outputs = [
        Buffer(nan((q.shape[0], heads, 512), dtype=torch.bfloat16), "out"),
        Buffer(nan((rows, num_kv_splits, 512), dtype=torch.bfloat16), "partial"),
        Buffer(nan((rows, num_kv_splits)), "lse"),
        Buffer(torch.zeros(sequences, groups, dtype=torch.int32), "tickets"),
    ]
    inputs = [frozen(q, "q"), frozen(cache.kv, "kv"), frozen(cache.scale, "kv_scale"), frozen(cache.table, "block_table")]
    inputs += [frozen(qo_indptr, "qo_indptr"), frozen(kv_indptr, "kv_indptr")]
    table_stride = cache.table.shape[1] if traits.paged else 0
    numbers = [heads, num_kv_splits, cache.scale_stride, table_stride, cache.page_bits, np.float32(config["sm_scale"])]
    verdict = verify(
        code,
        kernel_name(code, "mla_decode"),
        grid=(sequences, num_kv_splits, groups),
        block=THREADS,
        args=[*inputs, *outputs, *numbers],
        check=check,
        schedules=schedules,
        lds_fills=lds_fills,
    )
    lengths = (kv_indptr[1:] - kv_indptr[:-1]).tolist()
    tiles = sum(-(-length // traits.tile) for length in lengths) * traits.tile // 32
    return Emulation(traits, verdict, judgements, tiles * groups, sum(lengths) * HIP_ROW_BYTES[traits.format] * groups)


def frozen(array: Any, name: str = "") -> Buffer:
    return Buffer(array, name, writable=False)
