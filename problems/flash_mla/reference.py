"""Inputs, fp64 oracle and verdicts of the flash_mla problem.

Self-contained with its neighbour cache.py (torch alone beside it). Runs on any torch device: KERNELPROOF_DEVICE, else the GPU
if there is one, else the CPU. Which tokens a case attends to is decided on the CPU from its keys alone, the same everywhere.
"""

import os
from typing import Any, NamedTuple, TypeAlias

import torch
from cache import FP8_LAYOUTS, bytes_per_token, new_cache, read_rows, write_rows

Inputs: TypeAlias = tuple[torch.Tensor, torch.Tensor, dict[str, Any]]  # task.input_t
Outputs: TypeAlias = tuple[torch.Tensor, torch.Tensor]  # task.output_t

V_DIM = 512
LAYOUTS = ("bf16", *FP8_LAYOUTS)
DISTRIBUTIONS = ("normal", "large", "small", "outlier")
SINKS = ("none", "normal", "mixed")
INVALID = ("none", "some", "lead", "all")
LEAD = 128  # entries of an index row that "lead" makes invalid: more than one tile of any kernel
MAX_INT32 = 2**31 - 1

# Tolerances of FlashMLA's own tests; an element passes on the absolute or on the relative one.
OUT_ABS = {"dense": 8e-4, "sparse": 1e-3}
OUT_REL = 2.01 / 128
OUT_COSINE_DIFFERENCE = 5e-6
LSE_ABS, LSE_REL = 1e-6, 8.01 / 65536
# A row of out is off by 2^-9 at most for its own rounding to bf16 and as much for that of P: together 2^-8, and as much again
# for what cancels in the sum.
STRICT_REL_L2 = 2.0**-7
SMALLEST_NORM = 1e-30  # below it, where a large sink can bring a row, elements leave the normal range of bf16
DEVICE = os.environ.get("KERNELPROOF_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")

mutable_inputs = ()


class CaseSpecError(ValueError):
    """A case asks for an input that cannot be made; the message names the key, its value and what is allowed."""


# ---- which tokens ------------------------------------------------------------------------------------------------------


class Spec(NamedTuple):
    """The keys of a case and what they are where it does not name them."""

    batchsize: int
    qseqlen: int
    kvseqlen: int  # tokens in the cache of every sequence, at most
    seed: int
    layout: str = "bf16"
    topk: int = 0  # 0: dense
    numheads: int = 128
    headdim: int = 576  # of a bf16 cache; an FP8 layout has its own
    kvheads: int = 1
    page: int = 64
    causal: int = 0
    kvmin: int | None = None  # lengths are drawn from [kvmin, kvseqlen]
    extratopk: int = 0  # entries into a second cache of `extraseqlen` tokens a sequence, pages of `extrapage`
    extraseqlen: int = 0
    extrapage: int = 64
    lengths: int = 0  # 1: topk_length is given, drawn from [0, topk]
    invalid: str = "none"  # see index_rows
    sink: str = "none"  # normal; mixed: +inf, -inf, +200, -200, 0 in turn
    # KV is a tenth of a standard normal, which FlashMLA's absolute tolerances are made for.
    dist: str = "normal"  # large: q * 640, logits of hundreds; small: KV / 100; outlier: eight KV channels * 5

    @property
    def dims(self) -> int:
        return self.headdim if self.layout == "bf16" else FP8_LAYOUTS[self.layout].dims


def checked_spec(keys: dict[str, Any]) -> Spec:
    unknown = sorted(set(keys) - set(Spec._fields))
    missing = [key for key in Spec._fields if key not in Spec._field_defaults and key not in keys]
    if unknown or missing:
        fault = f"{unknown[0]}: unknown key" if unknown else f"{missing[0]}: missing"
        optional = ", ".join(Spec._field_defaults)
        raise CaseSpecError(f"{fault}; a case has batchsize, qseqlen, kvseqlen, seed and any of {optional}")
    spec = Spec(**keys)
    at_least = {"batchsize": 1, "qseqlen": 1, "kvseqlen": 0, "topk": 0, "numheads": 1, "kvheads": 1, "page": 1, "extrapage": 1}
    for key, low in at_least.items():
        require(type(getattr(spec, key)) is int and getattr(spec, key) >= low, spec, key, f"an integer from {low} on")
    for key, allowed in {"layout": LAYOUTS, "dist": DISTRIBUTIONS, "sink": SINKS, "invalid": INVALID}.items():
        require(getattr(spec, key) in allowed, spec, key, f"one of {', '.join(allowed)}")
    require(spec.dims in (512, 576), spec, "headdim", "512 or 576")
    require(spec.kvmin is None or 0 <= spec.kvmin <= spec.kvseqlen, spec, "kvmin", f"from 0 to kvseqlen, {spec.kvseqlen}")
    if spec.topk:
        require(spec.kvheads == 1, spec, "kvheads", "1 in a sparse case")
        require(spec.causal == 0, spec, "causal", "0 in a sparse case")
    else:
        require(spec.layout == "bf16", spec, "layout", "bf16 in a dense case (topk 0)")
        require(spec.numheads % spec.kvheads == 0, spec, "kvheads", f"a divisor of numheads, {spec.numheads}")
        for key, plain in {"extratopk": 0, "lengths": 0, "sink": "none", "invalid": "none"}.items():
            require(getattr(spec, key) == plain, spec, key, f"{plain} in a dense case (topk 0)")
    return spec


def require(fits: bool, spec: Spec, key: str, allowed: str) -> None:
    if not fits:
        raise CaseSpecError(f"{key}: {getattr(spec, key)} cannot be used; it has to be {allowed}")


class Pages(NamedTuple):
    """Where the tokens of every sequence lie: pages in random order, and one more that belongs to nobody."""

    lengths: torch.Tensor  # int64 [batch]
    table: torch.Tensor  # int64 [batch, max_pages]; past a sequence's end the page that belongs to nobody
    count: int
    page_size: int

    def places(self, sequence: int, positions: torch.Tensor) -> torch.Tensor:
        """page * page_size + offset of positions in a sequence, int64."""
        return self.table[sequence][positions // self.page_size] * self.page_size + positions % self.page_size


def lay_out(batch: int, longest: int, shortest: int | None, page_size: int, generator: torch.Generator) -> Pages:
    low = longest if shortest is None else shortest
    lengths = torch.randint(low, longest + 1, (batch,), generator=generator)
    counts = -(-lengths // page_size)
    order = torch.randperm(int(counts.sum()) + 1, generator=generator)
    table = torch.full((batch, max(1, int(counts.max()))), int(order[-1]))
    for row, pages in zip(table, order[:-1].split(counts.tolist()), strict=True):
        row[: len(pages)] = pages
    return Pages(lengths, table, len(order), page_size)


def index_rows(spec: Spec, pages: Pages, topk: int, generator: torch.Generator) -> torch.Tensor:
    """Distinct random tokens of its sequence for every query token, int64 [batch, q_len, topk]; -1 where there are no more.

    invalid: "some" makes about an eighth of the entries -1 or out of range, anywhere; "lead" the first LEAD (at most half);
    "all" every entry of each third sequence.
    """
    rows = torch.full((spec.batchsize, spec.qseqlen, topk), -1)
    for sequence, length in enumerate(pages.lengths.tolist()):
        for row in rows[sequence]:
            chosen = torch.randperm(length, generator=generator)[:topk]
            row[: len(chosen)] = pages.places(sequence, chosen)
    outside = torch.tensor([-1, pages.count * pages.page_size, MAX_INT32, -MAX_INT32])
    other = outside[torch.randint(len(outside), rows.shape, generator=generator)]
    if spec.invalid == "some":
        return torch.where(torch.rand(rows.shape, generator=generator) < 1 / 8, other, rows)
    if spec.invalid == "lead":
        rows[..., : min(LEAD, topk // 2)] = other[..., : min(LEAD, topk // 2)]
    if spec.invalid == "all":
        rows[::3] = other[::3]
    return rows


class Selection(NamedTuple):
    """The tokens of one cache that a case names, on the CPU."""

    pages: Pages
    indices: torch.Tensor | None  # int64 [batch, q_len, topk], sparse
    length: torch.Tensor | None  # int64 [batch]

    def used(self) -> torch.Tensor:
        """Sorted distinct tokens that some query token attends to, int64."""
        if self.indices is None:
            lengths = enumerate(self.pages.lengths.tolist())
            return torch.cat([self.pages.places(i, torch.arange(length)) for i, length in lengths]).sort().values
        return self.indices[self.valid()].unique()

    def valid(self) -> torch.Tensor:
        assert self.indices is not None
        valid = (self.indices >= 0) & (self.indices < self.pages.count * self.pages.page_size)
        if self.length is not None:
            valid &= torch.arange(self.indices.shape[2]) < self.length[:, None, None]
        return valid


def select(spec: Spec) -> list[Selection]:
    """Of the cache, and of the extra cache if there is one."""
    generator = torch.Generator().manual_seed(spec.seed)
    parts = [(spec.kvseqlen, spec.kvmin, spec.page, spec.topk)]
    if spec.extratopk:
        parts.append((spec.extraseqlen or spec.kvseqlen, None, spec.extrapage, spec.extratopk))
    selections = []
    for longest, shortest, page_size, topk in parts:
        pages = lay_out(spec.batchsize, longest, shortest, page_size, generator)
        indices = index_rows(spec, pages, topk, generator) if topk else None
        length = torch.randint(0, topk + 1, (spec.batchsize,), generator=generator) if spec.lengths else None
        selections.append(Selection(pages, indices, length))
    return selections


# ---- inputs ------------------------------------------------------------------------------------------------------------


def generate_input(device: torch.device | str | None = None, **keys: Any) -> Inputs:
    """The input of one case, as task.py describes it; `Spec` has the keys. Raises CaseSpecError."""
    spec = checked_spec(keys)
    target = torch.device(device or DEVICE)
    generator = torch.Generator(target).manual_seed(spec.seed)
    channels = torch.randperm(spec.dims, generator=generator, device=target)[:8]
    q = torch.randn((spec.batchsize, spec.qseqlen, spec.numheads, spec.dims), generator=generator, device=target)
    q = (q * (640 if spec.dist == "large" else 1)).bfloat16()
    selections = select(spec)
    caches = [fill_cache(spec, selection, channels, generator) for selection in selections]

    def int32(tensor: torch.Tensor | None) -> torch.Tensor | None:
        return None if tensor is None else tensor.to(target, torch.int32)

    main, extra = selections[0], selections[1] if len(selections) > 1 else None
    options: Any = {
        "head_dim_v": V_DIM,
        "softmax_scale": None,
        "causal": bool(spec.causal),
        "is_fp8_kvcache": spec.layout != "bf16",
        "block_table": None if spec.topk else int32(main.pages.table),
        "cache_seqlens": None if spec.topk else int32(main.pages.lengths),
        "indices": int32(main.indices),
        "topk_length": int32(main.length),
        "attn_sink": make_sink(spec, generator),
        "extra_k_cache": caches[1] if extra else None,
        "extra_indices_in_kvcache": int32(extra.indices) if extra else None,
        "extra_topk_length": int32(extra.length) if extra else None,
    }
    return q, caches[0], options


def fill_cache(spec: Spec, selection: Selection, channels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A cache with values in the tokens that are used and NaN everywhere else."""
    pages, device = selection.pages, generator.device
    cache = new_cache(spec.layout, pages.count, pages.page_size, spec.dims, spec.kvheads, device)
    for tokens in selection.used().to(device).split(1 << 16):
        rows = torch.randn((len(tokens), spec.kvheads, spec.dims), generator=generator, device=device) / 10
        if spec.dist == "small":
            rows /= 100
        if spec.dist == "outlier":
            rows[..., channels] *= 5
        write_rows(cache, spec.layout, tokens, rows.bfloat16())
    return cache


def make_sink(spec: Spec, generator: torch.Generator) -> torch.Tensor | None:
    if spec.sink == "none":
        return None
    if spec.sink == "normal":
        return torch.randn(spec.numheads, generator=generator, device=generator.device) * 2
    mixed = torch.tensor([torch.inf, -torch.inf, 200, -200, 0], device=generator.device)
    return mixed.repeat(-(-spec.numheads // 5))[: spec.numheads].contiguous()


def min_bytes(spec: dict[str, Any], format: str | None = None) -> int:
    """Bytes that any kernel must move: the distinct cached tokens, q, out, lse and the index rows, once each."""
    case = checked_spec(spec)
    if format not in (None, case.layout):
        raise CaseSpecError(f"format: {format} is not that of this case; use {case.layout}")
    selections, tokens = select(case), case.batchsize * case.qseqlen
    kv = sum(len(s.used()) for s in selections) * bytes_per_token(case.layout, case.dims, case.kvheads)
    lists = 4 * sum(s.pages.table.numel() if s.indices is None else s.indices.numel() for s in selections)
    return kv + lists + tokens * case.numheads * (2 * case.dims + 2 * V_DIM + 4)


# ---- oracle ------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def ref_kernel(data: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """(out fp64 [batch, q_len, heads, 512], lse fp64 [batch, heads, q_len]), exact up to fp64."""
    sequences = [attend(data, sequence) for sequence in range(data[0].shape[0])]
    return torch.stack([out for out, _ in sequences]), torch.stack([lse for _, lse in sequences])


def attend(data: Inputs, sequence: int) -> tuple[torch.Tensor, torch.Tensor]:
    """out [q_len, heads, 512] and lse [heads, q_len] of one sequence."""
    q, options = data[0][sequence].double(), data[2]
    q_len, heads, dims = q.shape
    kv, valid = dense_tokens(data, sequence) if options["indices"] is None else sparse_tokens(data, sequence)
    scale = dims**-0.5 if options["softmax_scale"] is None else options["softmax_scale"]
    q, kv = q.view(q_len, kv.shape[2], -1, dims), kv.expand(q_len, -1, -1, -1)
    scores = torch.einsum("qkgd,qtkd->kgqt", q, kv).flatten(0, 1) * scale  # [heads, q_len, tokens]
    scores = scores.masked_fill(~valid, -torch.inf)
    lse = scores.logsumexp(-1)
    none = ~valid.any(-1).expand(heads, q_len)
    p = torch.exp(scores - lse.masked_fill(none, 0)[..., None])
    out = torch.einsum("kgqt,qtkd->qkgd", p.unflatten(0, q.shape[1:3]), kv[..., :V_DIM]).flatten(1, 2)
    if options["attn_sink"] is not None:
        out *= torch.sigmoid(lse - options["attn_sink"].double()[:, None]).masked_fill(none, 0).T[..., None]
    return out, lse.masked_fill(none, torch.inf)


def dense_tokens(data: Inputs, sequence: int) -> tuple[torch.Tensor, torch.Tensor]:
    """fp64 KV [1, tokens, kv_heads, dims] of a sequence, and which of them each query sees, [q_len, tokens]."""
    q, cache, options = data
    length, q_len = int(options["cache_seqlens"][sequence]), q.shape[1]
    position = torch.arange(length, device=q.device)
    page = options["block_table"][sequence].long()[position // cache.shape[1]]
    kv = read_rows(cache, "bf16", page * cache.shape[1] + position % cache.shape[1])
    first_hidden = length - q_len + 1 + torch.arange(q_len, device=q.device)[:, None] if options["causal"] else length
    return kv[None], (position < first_hidden).expand(q_len, -1)


def sparse_tokens(data: Inputs, sequence: int) -> tuple[torch.Tensor, torch.Tensor]:
    """fp64 KV [q_len, topk + extra_topk, 1, dims], zeros where not valid, and valid [q_len, topk + extra_topk]."""
    _, cache, options = data
    lists = [(cache, options["indices"], options["topk_length"])]
    if options["extra_k_cache"] is not None:
        lists.append((options["extra_k_cache"], options["extra_indices_in_kvcache"], options["extra_topk_length"]))
    parts = []
    for cache, indices, length in lists:
        index = indices[sequence].long()
        valid = (index >= 0) & (index < cache.shape[0] * cache.shape[1])
        if length is not None:
            valid &= torch.arange(index.shape[1], device=index.device) < length[sequence]
        rows = read_rows(cache, layout_of(cache), index.masked_fill(~valid, 0))
        parts.append((rows.masked_fill(~valid[..., None, None], 0), valid))
    return torch.cat([kv for kv, _ in parts], 1), torch.cat([valid for _, valid in parts], 1)


def layout_of(cache: torch.Tensor) -> str:
    sizes = {layout.nominal_bytes: name for name, layout in FP8_LAYOUTS.items()}
    return "bf16" if cache.dtype == torch.bfloat16 else sizes[cache.shape[3]]


# ---- verdicts ----------------------------------------------------------------------------------------------------------


def describe_mismatch(data: Inputs, output: Any) -> str:
    """What is wrong with the type, shape, dtype or device of `output`, in one line; empty if nothing is."""
    batch, q_len, heads, _ = data[0].shape
    if not isinstance(output, tuple | list) or len(output) != 2:
        return f"output is a {type(output).__name__}; return the tuple (out, lse)"
    wanted = {"out": ((batch, q_len, heads, V_DIM), torch.bfloat16), "lse": ((batch, heads, q_len), torch.float32)}
    for tensor, (name, (shape, dtype)) in zip(output, wanted.items(), strict=True):
        if type(tensor) is not torch.Tensor:
            return f"{name} is a {type(tensor).__name__}; return a torch.Tensor"
        if tuple(tensor.shape) != shape or tensor.dtype != dtype or tensor.device != data[0].device:
            found = f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}"
            return f"{name} is {found}; return {dtype} {list(shape)} on {data[0].device}"
    return ""


def compare(name: str, found: torch.Tensor, expected: torch.Tensor, absolute: float, relative: float) -> str:
    """Why `found` is not `expected`: an element passes on either tolerance, infinities and NaN have to be the same."""
    found = found.double()
    for kind, is_special in {"+inf": torch.isposinf, "-inf": torch.isneginf, "NaN": torch.isnan}.items():
        differ = is_special(found) != is_special(expected)
        if differ.any():
            return f"{name}: {int(differ.sum())} elements differ in being {kind}, the first at {first_place(differ)}"
    error = torch.where(expected.isfinite(), found - expected, 0).abs()
    wrong = (error > absolute) & (error > relative * expected.abs().nan_to_num(posinf=0, neginf=0))
    if not wrong.any():
        return ""
    place = first_place(wrong)
    values = f"{float(found[tuple(place)]):.6g} for {float(expected[tuple(place)]):.6g}"
    limits = f"beyond abs {absolute:.2g} and rel {relative:.2g}"
    return f"{name}: {int(wrong.sum())} of {wrong.numel()} elements {limits}, the first at {place}: {values}"


def first_place(mask: torch.Tensor) -> list[int]:
    return mask.nonzero()[0].tolist()


def cosine_difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """1 - 2 x.y / (x.x + y.y) over all elements, as FlashMLA's tests have it; 0 for two tensors of zeros."""
    x, y = found.double().flatten(), expected.flatten()
    total = float(x @ x + y @ y)
    return 1 - 2 * float(x @ y) / total if total else 0.0


def official_message(data: Inputs, output: Outputs, expected: tuple[torch.Tensor, torch.Tensor]) -> str:
    kind = "dense" if data[2]["indices"] is None else "sparse"
    message = compare("out", output[0], expected[0], OUT_ABS[kind], OUT_REL)
    message = message or compare("lse", output[1], expected[1], LSE_ABS, LSE_REL)
    difference = 0.0 if message else cosine_difference(output[0], expected[0])
    if difference > OUT_COSINE_DIFFERENCE:
        return f"out: cosine difference {difference:.2g}; at most {OUT_COSINE_DIFFERENCE:.0g}"
    return message


@torch.no_grad()
def check_implementation(data: Inputs, output: Any) -> tuple[bool, str]:
    """The tolerances of FlashMLA's own tests against the fp64 oracle."""
    message = describe_mismatch(data, output) or official_message(data, output, ref_kernel(data))
    return not message, message


@torch.no_grad()
def judge(data: Inputs, output: Any) -> dict[str, dict[str, Any]]:
    """Both verdicts. The strict one holds every (token, head) row of out within STRICT_REL_L2 of the oracle."""
    layout = layout_of(data[1])
    if problem := describe_mismatch(data, output):
        unknown = {"format": None, "rel_l2_worst": None, "cosine_worst": None, "max_abs": None, "nan_count": 0}
        return {"official": {"ok": False, "message": problem}, "strict": {"ok": False, **unknown, "message": problem}}
    expected = ref_kernel(data)
    message = official_message(data, output, expected)
    out, norm = output[0].double(), expected[0].norm(dim=-1)
    error = (out - expected[0]).norm(dim=-1)
    rel_l2 = (error / norm.clamp_min(SMALLEST_NORM)).nan_to_num(nan=torch.inf)
    cosine = (out * expected[0]).sum(-1) / (out.norm(dim=-1) * norm)
    cosine = torch.where(norm < SMALLEST_NORM, 1, cosine).nan_to_num(nan=-1)
    failing = (rel_l2 > STRICT_REL_L2).nonzero()
    strict = {
        "ok": not len(failing),
        "format": layout,
        "rel_l2_worst": finite(rel_l2.max()),
        "cosine_worst": finite(cosine.min()),
        "max_abs": finite((out - expected[0]).abs().max()),
        "lse_max_abs": finite((output[1].double() - expected[1]).abs().nan_to_num(nan=0).max()),
        "nan_count": int(output[0].isnan().sum() + output[1].isnan().sum()),
        "message": "",
    }
    if len(failing):
        place, worst = failing[0].tolist(), float(rel_l2.max())
        strict["message"] = (
            f"{len(failing)} of {rel_l2.numel()} rows are more than {STRICT_REL_L2:.2g} off, the worst {worst:.2g}; "
            f"the first is sequence {place[0]}, token {place[1]}, head {place[2]}"
        )
    return {"official": {"ok": not message, "message": message}, "strict": strict}


def finite(value: torch.Tensor) -> float | None:
    return float(value) if value.isfinite() else None  # JSON has no infinity
