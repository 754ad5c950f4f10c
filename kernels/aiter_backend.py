"""MLA decode by AITER's paged fp8 kernels (ROCm): page tables, persistent metadata, and both generations of its interface."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from kernels.layout import QK_DIM, V_DIM, Shape, shape_of
from task import input_t

AnyFunction = Callable[..., Any]
AITER_METADATA = ("work_meta_data", "work_indptr", "work_info_set", "reduce_indptr", "reduce_final_map", "reduce_partial_map")
AITER_COMMON = ("q", "kv_buffer", "o", "qo_indptr", "kv_indptr", "kv_indices", "kv_last_page_lens", "max_seqlen_q", "sm_scale")
AITER_COMMON += ("logit_cap", "num_kv_splits", *AITER_METADATA, "q_scale", "kv_scale")
AITER_PAGED = ("page_size", "nhead_kv", "intra_batch_mode")
# Equal splits divide by the length over 196 pages; shorter sequences would divide by zero.
AITER_LEAST_EQUAL_SPLIT = 196


class AiterInterface(NamedTuple):
    """AITER's functions, and which generation they are: `paged` ones take a page size, older ones pages of one token."""

    decode: AnyFunction
    metadata_info: AnyFunction
    metadata: AnyFunction
    paged: bool


def read_interface(decode: AnyFunction, metadata_info: AnyFunction, metadata: AnyFunction) -> AiterInterface | str:
    """The interface, recognised by the parameters of mla_decode_fwd, or why this backend cannot call it."""
    names = inspect.signature(decode).parameters
    missing = [name for name in AITER_COMMON if name not in names]
    paged = [name for name in AITER_PAGED if name in names]
    if missing:
        return f"this AITER's mla_decode_fwd has no parameter {', '.join(missing)}: an unknown generation"
    if paged and len(paged) < len(AITER_PAGED):
        return f"this AITER's mla_decode_fwd has {', '.join(paged)} but not all of {', '.join(AITER_PAGED)}"
    return AiterInterface(decode, metadata_info, metadata, bool(paged))


def find_interface() -> AiterInterface | str:
    """Imports AITER, which needs ROCm."""
    if importlib.util.find_spec("aiter") is None:
        return "AITER is not installed"
    try:
        aiter, mla = (importlib.import_module(name) for name in ("aiter", "aiter.mla"))
    except (ImportError, OSError, RuntimeError) as error:
        return f"AITER cannot be imported: {error}"
    return read_interface(mla.mla_decode_fwd, aiter.get_mla_metadata_info_v1, aiter.get_mla_metadata_v1)


class AiterBackend:
    name = "aiter"

    def available(self, device: torch.device) -> str | None:
        if device.type != "cuda" or torch.version.hip is None:
            return f"AITER needs a ROCm GPU and the tensors are on {device.type}"
        found = find_interface()
        return found if isinstance(found, str) else None

    def default_params(self, shape: Shape, device: torch.device) -> dict[str, Any]:
        return {"page_size": 1, "num_kv_splits": 32, "fast_mode": shape.batch <= 4, "kv_granularity": 16}

    def plan(self, data: input_t, params: dict[str, Any]) -> Callable[[input_t], torch.Tensor]:
        interface = find_interface()
        if isinstance(interface, str):
            raise RuntimeError(interface)
        return AiterPlan(data, params, interface)


class PageTables(NamedTuple):
    """One-token sequences as AITER wants them, int32: query tokens of one sequence share its pages.

    qo_indptr and kv_indptr (in pages) [tokens + 1], kv_indices [pages of all tokens], kv_last_page_lens [tokens].
    """

    qo_indptr: torch.Tensor
    kv_indptr: torch.Tensor
    kv_indices: torch.Tensor
    kv_last_page_lens: torch.Tensor

    def to(self, device: torch.device) -> PageTables:
        return PageTables(*(tensor.to(device) for tensor in self))


def page_tables(q_lens: Sequence[int], kv_lens: Sequence[int], page_size: int, pages: Sequence[torch.Tensor]) -> PageTables:
    """q_lens, kv_lens: tokens of each sequence; pages: physical pages of each, int32, in order.

    AITER's own kernels for several query tokens are causal among them, which this task is not; hence one-token sequences.
    """
    counts, last, indices = [0], [], []
    for q_len, kv_len, physical in zip(q_lens, kv_lens, pages, strict=True):
        count = -(-kv_len // page_size)
        counts += [count] * q_len
        last += [kv_len - (count - 1) * page_size if count else 0] * q_len
        indices += [physical[:count]] * q_len
    kv_indptr = torch.tensor(list(itertools.accumulate(counts)), dtype=torch.int32)
    kv_indices = torch.cat(indices).int() if indices else torch.zeros(0, dtype=torch.int32)
    qo_indptr = torch.arange(len(last) + 1, dtype=torch.int32)
    return PageTables(qo_indptr, kv_indptr, kv_indices, torch.tensor(last, dtype=torch.int32))


def fitting_page_size(wanted: int, kv_indptr: Sequence[int], total_rows: int) -> int:
    """The largest page size up to `wanted` with which every sequence of a contiguous cache begins at a page."""
    size = wanted
    while size > 1 and (total_rows % size or any(begin % size for begin in kv_indptr[:-1])):
        size //= 2
    return size


class Fp8Queries:
    """q / scale as fp8 with one scale for the tensor, into buffers of its own."""

    def __init__(self, q: torch.Tensor, dtype: torch.dtype) -> None:
        self.limit = torch.finfo(dtype).max
        self.wide = torch.empty(q.shape, dtype=torch.float32, device=q.device)
        self.magnitude = torch.empty_like(self.wide)
        self.codes = torch.empty(q.shape, dtype=dtype, device=q.device)
        self.scale = torch.empty(1, dtype=torch.float32, device=q.device)

    def fill(self, q: torch.Tensor) -> None:
        self.wide.copy_(q)
        torch.abs(self.wide, out=self.magnitude)
        torch.amax(self.magnitude.view(1, -1), dim=1, out=self.scale)
        self.scale.clamp_(min=1e-12).div_(self.limit)
        self.wide.div_(self.scale).clamp_(-self.limit, self.limit)
        self.codes.copy_(self.wide)


class AiterPlan:
    """Calls for one plan_key. Page tables and metadata depend on the contents of the indptr tensors, which only the device
    knows: they are made anew (which waits for the device) whenever a call brings other tensors or tensors written since."""

    def __init__(self, data: input_t, params: dict[str, Any], interface: AiterInterface) -> None:
        q, kv_data, _, _, _ = data
        if q.shape[1] % 16:
            raise ValueError(f"AITER's MLA kernels take multiples of 16 heads, not {q.shape[1]}; force another backend")
        self.params, self.interface, self.heads = params, interface, q.shape[1]
        self.queries = Fp8Queries(q, kv_data["fp8"][0].dtype)
        self.out = torch.empty(*q.shape[:2], V_DIM, dtype=torch.bfloat16, device=q.device)
        self.seen: tuple[Any, ...] = ()
        self.batch = shape_of(data).batch

    def __call__(self, data: input_t) -> torch.Tensor:
        q, kv_data, qo_indptr, kv_indptr, config = data
        kv, kv_scale = kv_data["fp8"]
        if not self.knows(qo_indptr, kv_indptr):
            self.prepare(qo_indptr, kv_indptr, kv)
        if self.tables.kv_indices.numel():
            self.queries.fill(q)
            pages = kv.view(-1, self.page_size, 1, QK_DIM)
            self.interface.decode(**self.decode_arguments(pages, kv_scale, config["sm_scale"]))
        self.out.index_fill_(0, self.empty_tokens, 0)
        return self.out

    def knows(self, qo_indptr: torch.Tensor, kv_indptr: torch.Tensor) -> bool:
        """The tensors are held, so that no other can stand at their address."""
        if not self.seen:
            return False
        qo, qo_version, kv, kv_version = self.seen
        return qo is qo_indptr and kv is kv_indptr and (qo_version, kv_version) == (qo._version, kv._version)

    def prepare(self, qo_indptr: torch.Tensor, kv_indptr: torch.Tensor, kv: torch.Tensor) -> None:
        q_bounds, kv_bounds = qo_indptr.tolist(), kv_indptr.tolist()
        q_lens, kv_lens = ([end - begin for begin, end in itertools.pairwise(bounds)] for bounds in (q_bounds, kv_bounds))
        wanted = int(self.params["page_size"]) if self.interface.paged else 1
        self.page_size = fitting_page_size(wanted, kv_bounds, kv.shape[0])
        size = self.page_size
        pages = [torch.arange(begin // size, -(-end // size)) for begin, end in itertools.pairwise(kv_bounds)]
        self.tables = page_tables(q_lens, kv_lens, size, pages).to(kv.device)
        empty = [length == 0 for q_len, length in zip(q_lens, kv_lens, strict=True) for _ in range(q_len)]
        self.empty_tokens = torch.tensor(empty, dtype=torch.bool).nonzero()[:, 0].to(kv.device)
        shortest = min((length for length in kv_lens if length), default=0)
        self.fast_mode = bool(self.params["fast_mode"]) or not self.interface.paged or shortest < AITER_LEAST_EQUAL_SPLIT
        self.metadata = self.make_metadata(kv.dtype, kv.device)
        self.seen = (qo_indptr, qo_indptr._version, kv_indptr, kv_indptr._version)

    def make_metadata(self, dtype: torch.dtype, device: torch.device) -> dict[str, torch.Tensor]:
        """The persistent kernel's schedule, by the names that mla_decode_fwd gives its parts."""
        tokens, paged = self.tables.kv_last_page_lens.numel(), self.interface.paged
        modes = {"num_kv_splits": self.params["num_kv_splits"], "intra_batch_mode": not self.fast_mode} if paged else {}
        modes |= {"is_sparse": False, "fast_mode": self.fast_mode}
        shapes = self.interface.metadata_info(tokens, 1, self.heads, dtype, dtype, **modes)
        parts = {
            name: torch.empty(shape, dtype=kind, device=device)
            for name, (shape, kind) in zip(AITER_METADATA, shapes, strict=True)
        }
        make = self.paged_metadata if paged else self.token_metadata
        make(parts, dtype)
        return parts

    def paged_metadata(self, parts: dict[str, torch.Tensor], dtype: torch.dtype) -> None:
        """Without dtype_q and dtype_kv AITER would plan for bf16."""
        named = {name: part for name, part in parts.items() if name != "work_meta_data"}
        self.interface.metadata(
            *(self.tables.qo_indptr, self.tables.kv_indptr, self.tables.kv_last_page_lens, self.heads, 1, False),
            work_metadata_ptrs=parts["work_meta_data"],
            **named,
            page_size=self.page_size,
            kv_granularity=max(int(self.params["kv_granularity"]), self.page_size),
            max_seqlen_qo=1,
            uni_seqlen_qo=1,
            fast_mode=self.fast_mode,
            max_split_per_batch=int(self.params["num_kv_splits"]),
            intra_batch_mode=not self.fast_mode,
            dtype_q=dtype,
            dtype_kv=dtype,
        )

    def token_metadata(self, parts: dict[str, torch.Tensor], dtype: torch.dtype) -> None:
        """The older generation: positional, indptr before info, no pages and no dtypes."""
        self.interface.metadata(
            *(self.tables.qo_indptr, self.tables.kv_indptr, self.heads, 1, False),
            *(parts[name] for name in AITER_METADATA),
            kv_granularity=int(self.params["kv_granularity"]),
            max_seqlen_qo=1,
            uni_seqlen_qo=1,
            fast_mode=self.fast_mode,
            max_split_per_batch=int(self.params["num_kv_splits"]),
        )

    def decode_arguments(self, pages: torch.Tensor, kv_scale: torch.Tensor, sm_scale: float) -> dict[str, Any]:
        arguments = {
            "q": self.queries.codes,
            "kv_buffer": pages,
            "o": self.out,
            **self.tables._asdict(),
            "max_seqlen_q": 1,
            "sm_scale": sm_scale,
            "logit_cap": 0.0,
            "num_kv_splits": int(self.params["num_kv_splits"]),
            **self.metadata,
            "q_scale": self.queries.scale,
            "kv_scale": kv_scale,
        }
        if self.interface.paged:
            arguments |= {"page_size": self.page_size, "nhead_kv": 1, "intra_batch_mode": not self.fast_mode}
        return arguments
