"""AITER's production MLA decode code objects for gfx950: problems, launch arguments and fp64 oracles.

The objects are hand-written assembly inside PyPI's `amd-aiter` wheel. Their arguments stand in 16-byte slots; the
persistent ones read a work list, which this module builds from the documented layout of MlaWorkInfo.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gfx950 import Kernel
from gfx950.emulator import Buffer, Run, launch

from . import aiter_wheel
from .aiter_wheel import THREADS, read_only

HEADS, LATENT, HEAD_DIM = 16, 512, 576
TILE = 64  # tokens per KV tile of the a8w8 kernels with 16 heads
FP8 = torch.float8_e4m3fn
UNWRITTEN = -7.0


@dataclass(frozen=True)
class Batch:
    """Paged sequences that share one KV cache; q_len query tokens each.

    q [batch * q_len, 16, 576]; kv [pages, page_size, 1, 576]; kv_indptr [batch + 1] counts pages; kv_indices [used pages]
    names the physical page of each logical one; the scales are fp32 [1].
    """

    q: torch.Tensor
    kv: torch.Tensor
    lengths: tuple[int, ...]
    q_len: int
    kv_indptr: torch.Tensor
    kv_indices: torch.Tensor
    q_scale: torch.Tensor
    kv_scale: torch.Tensor
    sm_scale: float = HEAD_DIM**-0.5

    @property
    def size(self) -> int:
        return len(self.lengths)

    @property
    def page_size(self) -> int:
        return self.kv.shape[1]

    @property
    def qo_indptr(self) -> torch.Tensor:
        return torch.arange(self.size + 1, dtype=torch.int32) * self.q_len

    @property
    def kv_last_page_lens(self) -> torch.Tensor:
        return torch.tensor([(length - 1) % self.page_size + 1 for length in self.lengths], dtype=torch.int32)

    def rows(self, sequence: int) -> torch.Tensor:
        """The sequence's KV rows [length, 576] in token order, fp64, unscaled."""
        first, last = self.kv_indptr[sequence : sequence + 2].tolist()
        pages = self.kv[self.kv_indices[first:last].long()]
        return pages.reshape(-1, HEAD_DIM)[: self.lengths[sequence]].double()


def make_batch(lengths: tuple[int, ...], rng: torch.Generator, *, q_len: int = 1, page_size: int = 1,
               q_dtype: torch.dtype = FP8, kv_dtype: torch.dtype = FP8, spare_pages: int = 3) -> Batch:  # fmt: skip
    """Random queries and a cache whose pages are shuffled; pages that no sequence uses hold NaN (fp8 0x7f)."""
    used = torch.tensor([-(-length // page_size) for length in lengths])
    total = int(used.sum())
    order = torch.randperm(total + spare_pages, generator=rng)[:total].to(torch.int32)
    kv = torch.full((total + spare_pages, page_size, 1, HEAD_DIM), torch.nan)
    kv[order.long()] = torch.randn(total, page_size, 1, HEAD_DIM, generator=rng)
    q = torch.randn(len(lengths) * q_len, HEADS, HEAD_DIM, generator=rng)
    indptr = torch.cat([torch.zeros(1), used.cumsum(0)]).to(torch.int32)
    scales = (torch.tensor([0.75]), torch.tensor([1.25]))
    return Batch(q.to(q_dtype), kv.to(kv_dtype), lengths, q_len, indptr, order, *scales)


@dataclass(frozen=True)
class Work:
    """One MlaWorkInfo record; kv_* in tokens, counted through the whole pages of the sequences before."""

    batch: int
    partial_qo_loc: int  # first row of the partial outputs, or -1: unsplit, writes the final output
    qo_start: int
    qo_end: int
    kv_start: int
    kv_end: int
    kv_offset: int  # tokens of the sequence behind kv_end

    def words(self) -> list[int]:
        return [self.batch, self.partial_qo_loc, self.qo_start, self.qo_end, self.kv_start, self.kv_end, self.kv_offset, 0]


@dataclass(frozen=True)
class Plan:
    """The persistent kernel's work list, and how its partial outputs combine."""

    works: tuple[Work, ...]
    work_indptr: torch.Tensor  # [cus + 1] int32
    reduce_indptr: tuple[int, ...]  # CSR over split query tiles
    reduce_final_map: tuple[tuple[int, int], ...]  # (qo_start, qo_end) per split tile
    reduce_partial_map: tuple[int, ...]  # first partial row of each part

    @property
    def work_info_set(self) -> torch.Tensor:
        return torch.tensor([work.words() for work in self.works], dtype=torch.int32)


def cut(length: int, num_splits: int, granularity: int = 16) -> list[tuple[int, int]]:
    """`length` tokens in at most num_splits parts of whole granules, none empty."""
    per_split = -(-length // (num_splits * granularity)) * granularity
    return [(start, min(start + per_split, length)) for start in range(0, length, per_split)]


def plan(batch: Batch, num_splits: int, cus: int) -> Plan:
    """Equal splits of every sequence, dealt to `cus` compute units in runs as even as possible."""
    works: list[Work] = []
    reduce_indptr, final_map, partial_map = [0], [], []
    starts = (batch.kv_indptr * batch.page_size).tolist()
    rows = 0
    for b, length in enumerate(batch.lengths):
        parts = cut(length, num_splits)
        queries = (b * batch.q_len, (b + 1) * batch.q_len)
        for first, last in parts:
            partial = rows if len(parts) > 1 else -1
            works.append(Work(b, partial, *queries, starts[b] + first, starts[b] + last, length - last))
            if len(parts) > 1:
                partial_map.append(rows)
                rows += batch.q_len
        if len(parts) > 1:
            final_map.append(queries)
            reduce_indptr.append(len(partial_map))
    indptr = torch.tensor([len(works) * cu // cus for cu in range(cus + 1)], dtype=torch.int32)
    return Plan(tuple(works), indptr, tuple(reduce_indptr), tuple(final_map), tuple(partial_map))


@dataclass(frozen=True)
class Outputs:
    """What a launch writes; pre-filled so that unwritten elements show."""

    partial: torch.Tensor  # fp32 [rows, 16, 512], normalised
    partial_lse: torch.Tensor  # fp32 [rows, 16], natural logarithm
    final: torch.Tensor  # bf16 [batch * q_len, 16, 512]


def blank_outputs(rows: int, queries: int) -> Outputs:
    partial = torch.full((max(rows, 1), HEADS, LATENT), UNWRITTEN)
    return Outputs(partial, partial[..., 0].clone(), torch.full((queries, HEADS, LATENT), UNWRITTEN, dtype=torch.bfloat16))


def combine(partials: torch.Tensor, lses: torch.Tensor) -> torch.Tensor:
    """sum over parts of e^(lse - max lse) * out, normalised; partials [parts, ..., 512] fp64, lses [parts, ...]."""
    return (lses.softmax(0)[..., None] * partials).sum(0)


def reduce_partials(made: Plan, outputs: Outputs) -> torch.Tensor:
    """The final output [queries, 16, 512] fp64: split tiles from their partials, the others as written by the kernel."""
    final = outputs.final.double()
    for tile, (qo_start, qo_end) in enumerate(made.reduce_final_map):
        for query in range(qo_start, qo_end):
            parts = made.reduce_partial_map[made.reduce_indptr[tile] : made.reduce_indptr[tile + 1]]
            rows = [part + query - qo_start for part in parts]
            final[query] = combine(outputs.partial[rows].double(), outputs.partial_lse[rows].double())
    return final


def attend(q: torch.Tensor, rows: torch.Tensor, scale: float, kv_scale: float,
           p_dtype: torch.dtype | None = None) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """out [16, 512] and natural-log lse [16] of one query token in fp64; `p_dtype` rounds e^(score - max) as a kernel may."""
    score = (q.double() @ rows.T) * scale
    weight = (score - score.amax(-1, keepdim=True)).exp()
    rounded = weight.to(torch.float32).to(p_dtype).double() if p_dtype else weight
    return rounded @ rows[:, :LATENT] / weight.sum(-1, keepdim=True) * kv_scale, score.logsumexp(-1)


def oracle(batch: Batch, causal: bool = False) -> torch.Tensor:
    """Exact attention on the quantised inputs [batch * q_len, 16, 512] fp64; `causal` among a sequence's query tokens."""
    kv_scale = float(batch.kv_scale) if batch.kv.dtype == FP8 else 1.0
    scale = batch.sm_scale * kv_scale * (float(batch.q_scale) if batch.q.dtype == FP8 else 1.0)
    out = []
    for sequence, length in enumerate(batch.lengths):
        rows = batch.rows(sequence)
        for token in range(batch.q_len):
            visible = rows[: length - (batch.q_len - 1 - token)] if causal else rows
            out.append(attend(batch.q[sequence * batch.q_len + token], visible, scale, kv_scale)[0])
    return torch.stack(out)


def arguments(kernel: Kernel, batch: Batch, outputs: Outputs, steering: Buffer, kv_split: int) -> list[Any]:
    """Kernel arguments in the order of the object's metadata: the 16-byte slots of AITER's KernelArgs, padding as 0.

    `steering` is {work_indptr, work_info_set} of the persistent kernels, num_kv_splits_indptr of the others.
    """
    kv_bytes = batch.kv.element_size() * HEAD_DIM
    slots = {
        0: Buffer(outputs.partial, "partial"), 16: Buffer(outputs.partial_lse, "partial_lse"),
        32: read_only(batch.q, "q"), 48: read_only(batch.kv, "kv"), 64: read_only(batch.kv_indptr, "kv_indptr"),
        80: read_only(batch.kv_indices, "kv_indices"), 96: read_only(batch.kv_last_page_lens, "kv_last_page_lens"),
        112: np.float32(batch.sm_scale), 128: HEADS * batch.q_len, 144: kv_split,
        160: batch.q.element_size() * HEADS * HEAD_DIM * batch.q_len, 176: kv_bytes * batch.page_size,
        192: batch.page_size.bit_length() - 1, 208: read_only(batch.qo_indptr, "qo_indptr"), 224: steering,
        240: Buffer(outputs.final, "final"), 256: read_only(batch.q_scale, "q_scale"),
        272: read_only(batch.kv_scale, "kv_scale"), 288: kv_split,
    }  # fmt: skip
    return aiter_wheel.arguments(kernel, slots)


def persistent_steering(made: Plan) -> Buffer:
    pointers = {0: read_only(made.work_indptr, "work_indptr"), 8: read_only(made.work_info_set, "work_info_set")}
    return Buffer(torch.zeros(10, dtype=torch.int64), "work_meta_data", pointers=pointers)


def run_persistent(name: str, batch: Batch, made: Plan, **options: Any) -> tuple[Run, Outputs]:
    """One launch of a `_ps` object: a workgroup per compute unit of the plan."""
    rows = len(made.reduce_partial_map) * batch.q_len
    return _launch(name, batch, blank_outputs(rows, len(batch.q)), persistent_steering(made), 1,
                   grid=len(made.work_indptr) - 1, **options)  # fmt: skip


def run_split(name: str, batch: Batch, num_splits: int, **options: Any) -> tuple[Run, Outputs]:
    """One launch of an object that is not persistent: a workgroup per sequence and split; partial is [batch, split, ...]."""
    indptr = torch.arange(batch.size + 1, dtype=torch.int32) * num_splits
    outputs = blank_outputs(len(batch.q) * num_splits, len(batch.q))
    steering = read_only(indptr, "num_kv_splits_indptr")
    return _launch(name, batch, outputs, steering, num_splits, grid=(1, batch.size, num_splits), **options)


def _launch(name: str, batch: Batch, outputs: Outputs, steering: Buffer, kv_split: int, **options: Any) -> tuple[Run, Outputs]:
    code = aiter_wheel.code_object(f"mla/{name}.co")
    args = arguments(code.kernel(), batch, outputs, steering, kv_split)
    return launch(code, block=THREADS, args=args, strict=False, **options), outputs


def reduce_splits(batch: Batch, outputs: Outputs, num_splits: int) -> torch.Tensor:
    """The final output [queries, 16, 512] fp64 of an object that is not persistent; a8w8 writes a single split as bf16."""
    queries = len(batch.q)
    if num_splits == 1 and batch.q.dtype == FP8:
        packed = outputs.partial.view(torch.bfloat16).flatten()[: queries * HEADS * LATENT]
        return packed.reshape(queries, HEADS, LATENT).double()
    partial = outputs.partial.reshape(queries, num_splits, HEADS, LATENT).double()
    lse = outputs.partial_lse.reshape(queries, num_splits, HEADS).double()
    out = []
    for query in range(queries):
        used = min(num_splits, -(-batch.lengths[query // batch.q_len] // TILE))  # splits take KV tiles in turn
        out.append(combine(partial[query, :used], lse[query, :used]))
    return torch.stack(out)
