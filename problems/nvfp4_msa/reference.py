"""Inputs, fp64 oracle and verdicts of the NVFP4 block-sparse decode problem.

Self-contained with its neighbour pages.py (torch alone beside it). Runs on any torch device:
KERNELPROOF_DEVICE, else the GPU if there is one, else the CPU.
"""

import os
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import torch
from pages import (
    HEAD_DIM,
    NUM_SCALES,
    PAGE_TOKENS,
    TOKEN_BYTES,
    V_SCALES,
    Heads,
    decode,
    encode,
    global_scale,
    read_pages,
    write_pages,
)

Inputs: TypeAlias = tuple[Any, ...]  # task.input_t

DISTRIBUTIONS = ("normal", "large", "onehot", "outlier", "zeros", "bytes")
SLOTS = ("valid", "messy")
GROUPS = (1, 16)  # query heads per KV head, at least and at most
MAX_TOPK = 64
SM_SCALE = HEAD_DIM**-0.5
POISON = 0xFF  # an e4m3 NaN

OFFICIAL_TOLERANCE = 3e-2  # rtol and atol of the public tests of such kernels
DEVICE = os.environ.get("KERNELPROOF_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")

mutable_inputs = ()


class CaseSpecError(ValueError):
    """A case asks for an input that cannot be made; the message names the key, its value and what is allowed."""


# ---- inputs ----------------------------------------------------------------------------------------------------------


class Lists(NamedTuple):
    """Who attends to what, on the CPU: known from the case alone and the same on every device."""

    seq_lens: torch.Tensor  # int64 [requests]
    positions: torch.Tensor  # int64 [requests * qseqlen]; negative: the row sees nothing
    topk: torch.Tensor  # int64 [numkvheads, requests * qseqlen, topk]
    valid: torch.Tensor  # bool, as topk
    generator: torch.Generator


def generate_input(
    batchsize: int,
    qseqlen: int,
    kvseqlen: int,
    topk: int,
    seed: int,
    numkvheads: int = 1,
    groupsize: int = 16,
    kvmin: int | None = None,
    padrows: int = 0,
    vscales: str = "swizzled",
    slots: str = "valid",
    dist: str = "normal",
    device: torch.device | str | None = None,
) -> Inputs:
    """The input of one case, as task.py describes it.

    kvmin: lengths are drawn uniformly from [kvmin, kvseqlen] (0 is a padding request); else all are kvseqlen.
    padrows: rows of q past the last request's.
    slots: "valid": distinct blocks, the row's own among them, then -1; "messy": -1, other negatives, future blocks and
        duplicates anywhere, and every seventh row without a valid slot.
    dist: one of DISTRIBUTIONS (see `_values`).
    Blocks that no row lists share one page of NaN, and so do tokens past the end of a sequence. Raises CaseSpecError.
    """
    spec: dict[str, Any] = {"batchsize": batchsize, "qseqlen": qseqlen, "kvseqlen": kvseqlen, "topk": topk, "seed": seed}
    spec |= {"numkvheads": numkvheads, "kvmin": kvmin, "slots": slots}
    _check_integers(*GROUPS, groupsize=groupsize)
    _check_integers(0, 2**20, padrows=padrows)
    _check_words(dist=(dist, DISTRIBUTIONS), vscales=(vscales, V_SCALES))
    lists, target = make_lists(**spec), torch.device(device or DEVICE)
    generator = torch.Generator(device=target).manual_seed(seed)
    block_table, tokens = _allocate_pages(lists, -(-kvseqlen // PAGE_TOKENS) + 1)
    rows = batchsize * qseqlen + padrows
    q = torch.randn(rows, numkvheads * groupsize, HEAD_DIM, device=target, generator=generator).bfloat16()
    cache, scales = _make_cache(dist, tokens.to(target), numkvheads, vscales, generator)
    config: Any = {
        "num_kv_heads": numkvheads,
        "group_size": groupsize,
        "q_len": qseqlen,
        "topk": topk,
        "head_dim": HEAD_DIM,
        "page_size": PAGE_TOKENS,
        "max_seq_len": kvseqlen,
        "v_scales": vscales,
        "sm_scale": SM_SCALE,
    }
    integers = (_pad_rows(lists.topk, padrows), block_table, lists.seq_lens)
    data = (q, cache, *(tensor.to(target, torch.int32) for tensor in integers), *scales, config)
    _reshape_queries(dist, data)
    return data


def kv_lengths(batchsize: int, kvseqlen: int, generator: torch.Generator, kvmin: int | None = None) -> torch.Tensor:
    if kvmin is None:
        return torch.full((batchsize,), kvseqlen)
    _check_integers(0, kvseqlen, kvmin=kvmin)
    return torch.randint(kvmin, kvseqlen + 1, (batchsize,), generator=generator)


def make_lists(
    batchsize: int,
    qseqlen: int,
    kvseqlen: int,
    topk: int,
    seed: int,
    numkvheads: int = 1,
    kvmin: int | None = None,
    slots: str = "valid",
    **_: Any,
) -> Lists:
    """The lengths and top-k rows of a case. Raises CaseSpecError."""
    _check_integers(1, 2**20, batchsize=batchsize, qseqlen=qseqlen, kvseqlen=kvseqlen, numkvheads=numkvheads)
    _check_integers(1, MAX_TOPK, topk=topk)
    _check_integers(0, 2**63 - 1, seed=seed)
    _check_words(slots=(slots, SLOTS))
    generator = torch.Generator().manual_seed(seed)
    seq_lens = kv_lengths(batchsize, kvseqlen, generator, kvmin)
    positions = (seq_lens[:, None] - qseqlen + torch.arange(qseqlen)).flatten()
    last_blocks = torch.where(positions < 0, -1, positions // PAGE_TOKENS)[None, :, None]  # of the row: its own
    blocks = torch.arange(max(topk, -(-kvseqlen // PAGE_TOKENS)))
    priority = torch.rand(numkvheads, len(positions), len(blocks), generator=generator)
    priority = torch.where(blocks == last_blocks, 2.0, torch.where(blocks > last_blocks, -1.0, priority))
    best = priority.topk(topk)
    chosen = torch.where(best.values < 0, -1, best.indices)
    order = torch.rand(chosen.shape, generator=generator) + (0 if slots == "messy" else 2 * (chosen < 0))
    chosen = chosen.gather(-1, order.argsort(-1))
    if slots == "messy":
        chosen = _disturb(chosen, last_blocks, generator)
    return Lists(seq_lens, positions, chosen, (chosen >= 0) & (chosen <= last_blocks), generator)


def _disturb(chosen: torch.Tensor, last_blocks: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Half of the slots become one of: none, another negative, the next block, a far one, the largest, the first slot's."""
    int32 = torch.iinfo(torch.int32)
    intruders = [torch.tensor(value) for value in (-1, int32.min, int32.max)]
    intruders += [last_blocks + 1, last_blocks + 1000, chosen[..., :1]]
    kinds = torch.randint(2 * len(intruders), chosen.shape, generator=generator)
    for kind, intruder in enumerate(intruders):
        chosen = torch.where(kinds == kind, intruder, chosen)
    blind = (torch.arange(chosen.shape[1]) % 7 == 6)[None, :, None]
    return torch.where(blind & (chosen <= last_blocks), -1, chosen)


def _allocate_pages(lists: Lists, table_stride: int) -> tuple[torch.Tensor, torch.Tensor]:
    """block_table int64 [requests, table_stride] and the tokens int64 [pages] that each page holds, 0 for the poisoned one."""
    requests = len(lists.seq_lens)
    request = (torch.arange(len(lists.positions)) // (len(lists.positions) // requests))[None, :, None].expand_as(lists.topk)
    listed = torch.zeros(requests, table_stride, dtype=torch.bool)
    listed[request[lists.valid], lists.topk[lists.valid]] = True
    count = int(listed.sum())
    page_ids = torch.randperm(count + 1, generator=lists.generator)  # the last one is the poisoned page's
    starts = torch.arange(table_stride) * PAGE_TOKENS
    block_table = torch.where(starts < lists.seq_lens[:, None], page_ids[-1], -1)
    block_table[listed] = page_ids[:-1]
    tokens = torch.zeros(count + 1, dtype=torch.int64)
    tokens[page_ids[:-1]] = (lists.seq_lens[:, None] - starts).clamp(max=PAGE_TOKENS)[listed]
    return block_table, tokens


def _make_cache(
    dist: str, tokens: torch.Tensor, num_kv_heads: int, vscales: str, generator: torch.Generator
) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """Pages of which the first `tokens` tokens are values and the others poison, and the two global scales."""
    chunk_pages = 64 if tokens.device.type == "cpu" else 4096
    chunks, scales = [], _global_scales(dist, generator)
    for chunk in tokens.split(chunk_pages):
        shape = (len(chunk), num_kv_heads, PAGE_TOKENS, HEAD_DIM)
        heads = Heads(*(part for scale in scales for part in _values(dist, shape, scale, generator)))
        past_end = torch.arange(PAGE_TOKENS, device=tokens.device) >= chunk[:, None]
        heads = Heads(*(part.masked_fill(past_end[:, None, :, None], POISON) for part in heads))
        chunks.append(write_pages(heads, vscales))
    return torch.cat(chunks), scales


def _global_scales(dist: str, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """k_scale and v_scale, fp32 [1] each, from a sample of the values."""
    if dist == "bytes":
        return tuple(torch.tensor([scale], device=generator.device) for scale in (1.37e-3, 2.11e-3))
    sample = (16, 1, PAGE_TOKENS, HEAD_DIM)
    return tuple(global_scale(_numbers(dist, sample, generator)) * 1.25 for _ in "kv")


def _values(
    dist: str, shape: tuple[int, ...], scale: torch.Tensor, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Data and block scales of numbers of a distribution; "bytes" are all codes and all finite scales alike."""
    if dist != "bytes":
        return encode(_numbers(dist, shape, generator), scale)
    random: Any = {"device": generator.device, "generator": generator, "dtype": torch.uint8}
    data = torch.randint(256, (*shape[:-1], HEAD_DIM // 2), **random)
    return data, torch.randint(0x7F, (*shape[:-1], NUM_SCALES), **random)


def _numbers(dist: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """fp32 numbers of `shape`.

    normal, large, onehot   normal
    outlier                 every 16th dim is 30 times as large, so that most blocks have neighbours that vanish
    zeros                   normal, but half of the tokens are 0
    """
    x = torch.randn(shape, device=generator.device, generator=generator)
    if dist == "outlier":
        x[..., ::16] *= 30
    elif dist == "zeros":
        x[..., ::2, :] = 0
    return x


def _reshape_queries(dist: str, data: Inputs) -> None:
    """In place. large: logits of +-100; onehot: the key at a row's own position has a logit of about 20, others +-4."""
    q, cache, _, block_table, _, k_scale, _, config = data
    if dist == "large":
        q.mul_(32)
    elif dist == "onehot":
        rows, positions = row_positions(data)
        rows = rows[positions[rows] >= 0]
        pages = block_table[rows // config["q_len"], positions[rows] // PAGE_TOKENS].long()
        keys = read_pages(cache[pages])
        tokens = positions[rows] % PAGE_TOKENS
        each = torch.arange(len(rows), device=q.device)
        own = decode(keys.k_data[each, :, tokens], keys.k_scales[each, :, tokens], k_scale.double())
        own = own.nan_to_num(0.0)  # a row whose own block nobody lists
        q[rows] = (2 * own).repeat_interleave(config["group_size"], dim=1).bfloat16()


def _pad_rows(topk: torch.Tensor, padrows: int) -> torch.Tensor:
    """Top-k rows for the padding rows, listing block 0, and three more that nobody may read."""
    return torch.nn.functional.pad(topk, (0, 0, 0, padrows + 3))


def _check_integers(low: int, high: int, **values: int) -> None:
    for key, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise CaseSpecError(f"{key}: {value} cannot be used; it has to be an integer from {low} to {high}")


def _check_words(**words: tuple[str, tuple[str, ...]]) -> None:
    for key, (value, allowed) in words.items():
        if value not in allowed:
            raise CaseSpecError(f"{key}: {value} is unknown; use one of {', '.join(allowed)}")


def min_bytes(spec: dict, format: str | None = None) -> int:
    """Bytes that any kernel must move for the case `spec`: what is visible of every (request, KV head, block) that is listed,
    once; the queries of rows that see something; the output of all rows.

    Raises CaseSpecError.
    """
    _check_words(format=(format or "nvfp4", ("nvfp4",)))
    lists = make_lists(**spec)
    num_kv_heads, rows, _ = lists.topk.shape
    requests, heads = len(lists.seq_lens), num_kv_heads * spec.get("groupsize", 16)
    visible = (lists.positions[None, :, None] + 1 - lists.topk * PAGE_TOKENS).clamp(max=PAGE_TOKENS)
    kv_head, row, _ = lists.valid.nonzero(as_tuple=True)
    tokens = torch.zeros(num_kv_heads, requests, -(-spec["kvseqlen"] // PAGE_TOKENS), dtype=torch.int64)
    place = (kv_head, row // (rows // requests), lists.topk[lists.valid])
    flat = place[0] * tokens[0].numel() + place[1] * tokens.shape[2] + place[2]
    tokens.view(-1).scatter_reduce_(0, flat, visible[lists.valid], "amax")
    seeing = int(lists.valid.any(-1).sum()) * spec.get("groupsize", 16)  # (head, row) pairs
    written = (rows + spec.get("padrows", 0)) * heads
    return int(tokens.sum()) * 2 * TOKEN_BYTES + 2 * HEAD_DIM * (seeing + written)


# ---- reference -------------------------------------------------------------------------------------------------------


def row_positions(data: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows that belong to a request, int64 [n], and the position of each in its sequence, int64 [n]."""
    seq_lens, q_len = data[4].long(), data[7]["q_len"]
    positions = (seq_lens[:, None] - q_len + torch.arange(q_len, device=seq_lens.device)).flatten()
    return torch.arange(len(positions), device=seq_lens.device), positions


def valid_slots(data: Inputs) -> torch.Tensor:
    """bool [num_kv_heads, requests * q_len, topk]: which slots list a block that the row may see."""
    rows, positions = row_positions(data)
    blocks = data[2][:, : len(rows)]
    own = positions.div(PAGE_TOKENS, rounding_mode="floor")[None, :, None]
    return (blocks >= 0) & (blocks <= own)


@torch.no_grad()
def oracle(data: Inputs) -> torch.Tensor:
    """The exact result on the dequantised cache: fp64 [rows, heads, 128]."""
    q, config = data[0], data[7]
    output = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    heads = output.unflatten(1, (config["num_kv_heads"], config["group_size"]))
    valid = valid_slots(data)
    for kv_head in range(config["num_kv_heads"]):
        seeing = valid[kv_head].any(-1).nonzero()[:, 0]
        for rows in _chunks(seeing, config["topk"]):
            heads[rows, kv_head] = _attend(data, rows, kv_head, valid[kv_head, rows])
    return output


def _chunks(rows: torch.Tensor, topk: int) -> Iterator[torch.Tensor]:
    """Rows in chunks whose keys and values take about 128 MB (CPU) or 4 GB (GPU) of fp64."""
    budget = 1 << (27 if rows.device.type == "cpu" else 32)
    chunk_rows = max(1, budget // (topk * PAGE_TOKENS * HEAD_DIM * 16))
    return iter(rows.split(chunk_rows)) if len(rows) else iter(())


def _attend(data: Inputs, rows: torch.Tensor, kv_head: int, valid: torch.Tensor) -> torch.Tensor:
    """fp64 [n, group_size, 128]: the output of `rows` for the query heads of one KV head; valid: bool [n, topk]."""
    q, cache, topk, block_table, _, k_scale, v_scale, config = data
    blocks = torch.where(valid, topk[kv_head, rows], 0).long()
    pages = block_table[(rows // config["q_len"])[:, None], blocks].long()
    pages = torch.where(valid, pages, pages.gather(1, valid.int().argmax(1, keepdim=True)))  # any valid one
    contents = read_pages(cache[pages.flatten()], config["v_scales"])
    heads = Heads(*(part[:, kv_head].unflatten(0, pages.shape) for part in contents))
    positions = row_positions(data)[1][rows]
    tokens = blocks[..., None] * PAGE_TOKENS + torch.arange(PAGE_TOKENS, device=q.device)
    visible = (valid[..., None] & (tokens <= positions[:, None, None])).flatten(1)  # [n, topk * 128]
    keys, values = (
        torch.where(visible[..., None], decode(codes, scales, scale.double()).flatten(1, 2), 0.0)
        for codes, scales, scale in ((heads.k_data, heads.k_scales, k_scale), (heads.v_data, heads.v_scales, v_scale))
    )
    queries = q[rows].unflatten(1, (config["num_kv_heads"], -1))[:, kv_head].double() * config["sm_scale"]
    scores = torch.bmm(queries, keys.mT).masked_fill_(~visible[:, None], -torch.inf)
    return torch.bmm(torch.softmax(scores, dim=-1), values)


def ref_kernel(data: Inputs) -> torch.Tensor:
    """The oracle's result as a submission would return it: bf16 [rows, heads, 128]."""
    return oracle(data).bfloat16()


# ---- verdicts --------------------------------------------------------------------------------------------------------

# About 2.6 times the torch backend's worst row over task.yml's tests (docs/nvfp4-msa.md); a row is one head of one token.
REL_L2_BOUND = 0.0074  # ||row - oracle|| / ||oracle||, at most
COSINE_BOUND = 0.999981  # at least


def describe_mismatch(data: Inputs, output: Any) -> str:
    """What is wrong with the type, shape, dtype or device of `output`, in one line; empty if nothing is."""
    q = data[0]
    if type(output) is not torch.Tensor:
        return f"output is a {type(output).__name__}; return a torch.Tensor, bf16 {list(q.shape)}"
    if output.shape != q.shape:
        return f"output has shape {list(output.shape)}; return {list(q.shape)}"
    if output.dtype != torch.bfloat16:
        return f"output is {output.dtype}; return torch.bfloat16"
    if output.device != q.device:
        return f"output is on {output.device}; return it on {q.device}, where the inputs are"
    return ""


def check_implementation(data: Inputs, output: Any) -> tuple[bool, str]:
    """rtol = atol = 3e-2 against the oracle for every element, and exact zeros where a row sees nothing."""
    if problem := describe_mismatch(data, output):
        return False, problem
    return _check_elements(output.double(), oracle(data))


def _check_elements(rows: torch.Tensor, expected: torch.Tensor) -> tuple[bool, str]:
    blind = (expected == 0).all(-1)
    if (rows[blind] != 0).any():
        return False, f"{int((rows != 0)[blind].any(-1).sum())} of {int(blind.sum())} rows that see nothing are not exactly 0"
    difference = (rows - expected).abs()
    wrong = ~(difference <= OFFICIAL_TOLERANCE + OFFICIAL_TOLERANCE * expected.abs())
    if not wrong.any():
        return True, f"Maximum error: {difference.max():.3g}"
    place = tuple(wrong.nonzero()[0].tolist())
    where = f"first at [row, head, dim] {list(place)}: {rows[place]:.6g}, expected {expected[place]:.6g}"
    return False, f"{int(wrong.sum())} of {wrong.numel()} elements differ by more than {OFFICIAL_TOLERANCE}; {where}"


def judge(data: Inputs, output: Any) -> dict[str, dict[str, Any]]:
    """Both verdicts: {"official": {"ok", "message"}, "strict": {"ok", "format", "rel_l2_worst", ..., "message"}}."""
    if problem := describe_mismatch(data, output):
        unknown = dict.fromkeys(("format", "rel_l2_worst", "cosine_worst", "max_abs", "first_offending"))
        return {
            "official": {"ok": False, "message": problem},
            "strict": {"ok": False, **unknown, "nan_count": 0, "message": problem},
        }
    rows, expected = output.double(), oracle(data)
    ok, message = _check_elements(rows, expected)
    return {"official": {"ok": ok, "message": message}, "strict": judge_strict(rows, expected)}


@torch.no_grad()
def judge_strict(rows: torch.Tensor, expected: torch.Tensor) -> dict[str, Any]:
    """Relative L2 and cosine of every row against the oracle, fp64 [rows, heads, 128] both. A zero row must be exactly so."""
    difference, norm = (rows - expected).norm(dim=-1), expected.norm(dim=-1)
    rel_l2 = torch.where(difference == 0, 0.0, difference / norm).nan_to_num(nan=torch.inf, posinf=torch.inf)
    cosine = (rows * expected).sum(-1) / (rows.norm(dim=-1) * norm)
    cosine = torch.where(difference == 0, 1.0, cosine).nan_to_num(nan=-1.0)
    failing = ((rel_l2 > REL_L2_BOUND) | (cosine < COSINE_BOUND)).nonzero().tolist()
    max_abs = (rows - expected).abs().max()
    return {
        "ok": not failing,
        "format": "nvfp4",
        "rel_l2_worst": _finite(rel_l2.max()),
        "cosine_worst": _finite(cosine.min()),
        "max_abs": _finite(max_abs),
        "nan_count": int(rows.isnan().sum()),
        "first_offending": failing[0] if failing else None,
        "message": _complaint(failing, rel_l2, cosine) if failing else "",
    }


def _finite(value: torch.Tensor) -> float | None:
    return float(value) if value.isfinite() else None  # JSON has no infinity


def _complaint(failing: list[list[int]], rel_l2: torch.Tensor, cosine: torch.Tensor) -> str:
    row, head = failing[0]
    measured = f"rel_l2 {rel_l2[row, head]:.2g} (limit {REL_L2_BOUND}), cosine {cosine[row, head]:.6g} (limit {COSINE_BOUND})"
    return f"{len(failing)} of {rel_l2.numel()} rows fail; the first is row {row}, head {head}: {measured}"
