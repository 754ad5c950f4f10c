"""Inputs, reference and verdicts of the mixed-MLA decode problem.

Self-contained (torch and task.py's two type names), so that it can be dropped into a public problem folder. Runs on any torch
device: KERNELPROOF_DEVICE, else the GPU if there is one, else the CPU.
"""

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from task import input_t, output_t

NUM_HEADS, NUM_KV_HEADS = 16, 1
KV_LORA_RANK, QK_ROPE_HEAD_DIM = 512, 64
QK_HEAD_DIM, V_HEAD_DIM = KV_LORA_RANK + QK_ROPE_HEAD_DIM, KV_LORA_RANK
SM_SCALE = 1.0 / QK_HEAD_DIM**0.5
MXFP4_BLOCK = 32
NUM_BLOCKS = QK_HEAD_DIM // MXFP4_BLOCK
FP4_DTYPE = getattr(torch, "float4_e2m1fn_x2", torch.uint8)
E8M0_DTYPE = getattr(torch, "float8_e8m0fnu", torch.uint8)

# KV format -> bytes of one KV row. fp8's scale is one number for the whole cache.
BYTES_PER_KV_ROW = {"bf16": 2 * QK_HEAD_DIM, "fp8": QK_HEAD_DIM, "mxfp4": QK_HEAD_DIM // 2 + NUM_BLOCKS}
FORMATS = tuple(BYTES_PER_KV_ROW)
DISTRIBUTIONS = ("normal", "large", "onehot", "constant", "outlier")

OFFICIAL_TOLERANCE = 0.1  # rtol and atol of the check that the leaderboard ran
OFFICIAL_MISMATCH_RATIO = 0.05  # ... which, when that fails, still passes this share of mismatching elements
mutable_inputs = ()  # positions of the input tuple that a submission may write
DEVICE = os.environ.get("KERNELPROOF_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")


class CaseSpecError(ValueError):
    """A case asks for an input that cannot be made; the message names the key, its value and what is allowed."""


# ---- formats ---------------------------------------------------------------------------------------------------------


def fp8_dtype(device: torch.device) -> torch.dtype:
    """e4m3fnuz on gfx942 (MI300), e4m3fn on gfx950, NVIDIA and CPU."""
    is_rocm = device.type == "cuda" and torch.version.hip is not None
    arch = torch.cuda.get_device_properties(device).gcnArchName if is_rocm else ""
    return torch.float8_e4m3fnuz if arch.startswith("gfx942") else torch.float8_e4m3fn


def fp8_scale(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Per-tensor scale max|x| / max(dtype), as SGLang's scaled_fp8_quant has it: a scalar of x's dtype. x may be empty."""
    low, high = torch.aminmax(x if x.numel() else x.new_zeros(1))
    return torch.maximum(-low, high).clamp(min=1e-12) / torch.finfo(dtype).max


def fp8_cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """x saturated and rounded to fp8 `dtype`."""
    limits = torch.finfo(dtype)
    return x.clamp(limits.min, limits.max).to(dtype)


def mxfp4_encode(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantises finite bf16 [n, 576] to MXFP4 by the bit rules of AITER's dynamic_mxfp4_quant.

    Returns uint8 [n, 288] (two E2M1 codes a byte, the even dim in the low nibble) and uint8 [n, 18] (E8M0 exponents, one for
    32 dims). The rules are stated on fp32 bits; a bf16 is the upper half of them, so int16 arithmetic gives the same.
    """
    blocks = rows.view(-1, NUM_BLOCKS, MXFP4_BLOCK)
    amax_bits = (blocks.view(torch.int16) & 0x7FFF).amax(-1, keepdim=True)  # int16 [n, 18, 1]
    scale = (((amax_bits + 0x20) >> 7) - 2).clamp_(min=0).to(torch.int32)  # amax rounded to a power of two, over 4
    # x * 2^-e is exact in bf16 unless it is so small that its code is 0 anyway.
    power = ((254 - scale) << 23).view(torch.float32).bfloat16()
    bits = (blocks * power).view(torch.int16)  # int16 [n, 18, 32]
    codes = _e2m1_codes(bits).view(torch.int32)  # the codes of two neighbours
    packed = (codes | (codes >> 12)) & 0xFF
    return packed.to(torch.uint8).view(-1, QK_HEAD_DIM // 2), scale.to(torch.uint8).view(-1, NUM_BLOCKS)


def _e2m1_codes(bits: torch.Tensor) -> torch.Tensor:
    """int16 patterns of bf16 numbers -> int16 E2M1 codes: to nearest, ties to even, saturating at 6."""
    magnitude = bits & 0x7FFF
    one_mantissa_bit = ((magnitude >> 6) & 1).add_(magnitude).add_(31) >> 6  # rounded to even; 1.0 is 254 here and code 2
    normal = one_mantissa_bit.sub_(252).clamp_(2, 7)
    subnormal = (magnitude > 0x3E80).to(torch.int16)  # above 0.25: code 1
    return torch.where(magnitude < 0x3F40, subnormal, normal) | ((bits >> 12) & 8)  # 0.75 and up: normal


def mxfp4_decode(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Exact values of MXFP4 rows: E2M1 pairs [n, 288] and E8M0 scales [n, >= 18], both also as uint8. Returns fp64 [n, 576]."""
    codes = packed.view(torch.uint8).to(torch.int16)
    codes = torch.stack((codes, codes >> 4), dim=-1)  # [n, 288, 2]
    # The three low bits of a code, as the lowest exponent bits and the first mantissa bit of an f16, are its value * 2^-14.
    elements = ((codes & 7) << 9 | (codes & 8) << 12).view(torch.float16).double()
    exponents = scales.view(torch.uint8)[:, :NUM_BLOCKS, None].to(torch.int64)
    powers = ((exponents - 127 + 14 + 1023) << 52).view(torch.float64)
    powers = torch.where(exponents == 255, torch.nan, powers)
    return (elements.view(-1, NUM_BLOCKS, MXFP4_BLOCK) * powers).view(-1, QK_HEAD_DIM)


# ---- inputs ----------------------------------------------------------------------------------------------------------


def generate_input(
    batchsize: int,
    qseqlen: int,
    kvseqlen: int,
    seed: int,
    kvmin: int | None = None,
    dist: str = "normal",
    numheads: int = NUM_HEADS,
    device: torch.device | str | None = None,
    scale_padding: bool = False,
) -> input_t:
    """The input of one case, as task.py describes it; without the keys after `seed` it is the official one, bit for bit.

    kvmin: lengths are drawn uniformly from [kvmin, kvseqlen] (see `kv_lengths`).
    dist: one of DISTRIBUTIONS (see `_reshape_values`).
    scale_padding: pad the MXFP4 scale buffer as older AITER does, with undefined bytes (0xFF, NaN, here).
    Raises CaseSpecError.
    """
    lengths = kv_lengths(batchsize, kvseqlen, seed, kvmin)
    _check_integers(1, 2**31 - 1, qseqlen=qseqlen, numheads=numheads)
    if dist not in DISTRIBUTIONS:
        raise CaseSpecError(f"dist: {dist} is unknown; use one of {', '.join(DISTRIBUTIONS)}")
    target = torch.device(device or DEVICE)
    generator = torch.Generator(device=target).manual_seed(seed)
    bf16: Any = {"dtype": torch.bfloat16, "device": target, "generator": generator}
    q = torch.randn((batchsize * qseqlen, numheads, QK_HEAD_DIM), **bf16)  # the official order: q first
    kv = torch.randn((sum(lengths), NUM_KV_HEADS, QK_HEAD_DIM), **bf16)
    kv_indptr = torch.tensor([0, *lengths], device=target).cumsum(0).to(torch.int32)
    qo_indptr = torch.arange(batchsize + 1, dtype=torch.int32, device=target) * qseqlen
    _reshape_values(dist, q, kv, kv_indptr.tolist(), generator)
    config: Any = {
        "batch_size": batchsize,
        "num_heads": numheads,
        "num_kv_heads": NUM_KV_HEADS,
        "qk_head_dim": QK_HEAD_DIM,
        "kv_lora_rank": KV_LORA_RANK,
        "qk_rope_head_dim": QK_ROPE_HEAD_DIM,
        "v_head_dim": V_HEAD_DIM,
        "q_seq_len": qseqlen,
        "kv_seq_len": kvseqlen,
        "sm_scale": SM_SCALE,
    }
    return q, quantize_kv(kv, scale_padding), qo_indptr, kv_indptr, config


def kv_lengths(batchsize: int, kvseqlen: int, seed: int, kvmin: int | None = None) -> list[int]:
    """KV length of every sequence: known from the case alone and the same on every device (a CPU generator of its own)."""
    _check_integers(1, 2**31 - 1, batchsize=batchsize, kvseqlen=kvseqlen)
    _check_integers(-(2**63), 2**64 - 1, seed=seed)  # what torch takes
    if kvmin is None:
        return [kvseqlen] * batchsize
    _check_integers(0, kvseqlen, kvmin=kvmin)
    generator = torch.Generator().manual_seed(seed ^ 0x6B766D696E)  # "kvmin": apart from the values' generator
    return torch.randint(kvmin, kvseqlen + 1, (batchsize,), generator=generator).tolist()


def _check_integers(low: int, high: int, **values: int) -> None:
    for key, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise CaseSpecError(f"{key}: {value} cannot be used; it has to be an integer from {low} to {high}")


def _reshape_values(dist: str, q: torch.Tensor, kv: torch.Tensor, kv_indptr: list[int], generator: torch.Generator) -> None:
    """Turns normal q [total_q, heads, 576] and kv [total_kv, 1, 576] into another distribution, in place.

    large     logits of +-100: q * 16, and in every eighth row one element of 600, beyond what e4m3 holds
    onehot    every query row meets its own copy among the keys, with a logit of about 24 against the others' +-4
    constant  all KV rows of a sequence are equal
    outlier   eight of the 576 KV channels are 30 times as large
    """
    rows = q.view(-1, QK_HEAD_DIM)
    if dist == "large":
        channel = torch.randint(QK_HEAD_DIM, (len(rows[::8]), 1), device=q.device, generator=generator)
        rows.mul_(16)[::8].scatter_(1, channel, 600.0)
    elif dist == "outlier":
        kv[..., torch.randperm(QK_HEAD_DIM, device=q.device, generator=generator)[:8]] *= 30
    elif dist in ("onehot", "constant"):
        starts = torch.rand(len(kv_indptr) - 1, device=q.device, generator=generator).tolist()
        queries = rows.view(len(starts), -1, QK_HEAD_DIM)
        for own_queries, begin, end, start in zip(queries, kv_indptr, kv_indptr[1:], starts, strict=False):
            keys = kv[begin:end, 0]
            if dist == "constant":
                keys.copy_(keys[:1].clone().expand_as(keys))
            else:
                _plant_queries(own_queries, keys, start)


def _plant_queries(queries: torch.Tensor, keys: torch.Tensor, start: float) -> None:
    """Overwrites keys, evenly spread from the fraction `start` of the sequence on, with as many queries as there are keys."""
    count, length = min(len(queries), len(keys)), len(keys)
    if count:
        places = (torch.arange(count, device=keys.device) * (length // count) + int(start * length)) % length
        keys[places] = queries[:count]


def quantize_kv(kv: torch.Tensor, scale_padding: bool = False) -> Any:
    """The three formats of task.KvData from bf16 kv [total_kv, 1, 576], in chunks: beside the result it needs a few MB."""
    total, device, dtype = kv.shape[0], kv.device, fp8_dtype(kv.device)
    fp8, scale = torch.empty_like(kv, dtype=dtype), fp8_scale(kv, dtype)
    packed = torch.empty((total, NUM_KV_HEADS, QK_HEAD_DIM // 2), dtype=torch.uint8, device=device)
    scale_shape = (-(-total // 256) * 256, 24) if scale_padding else (total, NUM_BLOCKS)
    scales = torch.full(scale_shape, 0xFF, dtype=torch.uint8, device=device)
    chunk_rows = 4096 if device.type == "cpu" else 65536  # temporaries stay in the L2 cache of a CPU
    for begin in range(0, total, chunk_rows):
        chunk = slice(begin, min(begin + chunk_rows, total))
        fp8[chunk] = fp8_cast(kv[chunk] / scale, dtype)
        packed[chunk, 0], scales[chunk, :NUM_BLOCKS] = mxfp4_encode(kv[chunk, 0])
    mxfp4 = (packed.view(FP4_DTYPE), scales.view(E8M0_DTYPE))
    return {"bf16": kv, "fp8": (fp8, scale.float().reshape(1)), "mxfp4": mxfp4}


def bytes_by_format(spec: dict) -> dict[str, int]:
    """KV format -> bytes of q, KV and output once each. spec: the arguments of generate_input. Raises CaseSpecError."""
    total_kv = sum(kv_lengths(spec["batchsize"], spec["kvseqlen"], spec["seed"], spec.get("kvmin")))
    rows = spec["batchsize"] * spec["qseqlen"] * spec.get("numheads", NUM_HEADS)
    return {name: 2 * rows * (QK_HEAD_DIM + V_HEAD_DIM) + total_kv * size for name, size in BYTES_PER_KV_ROW.items()}


def min_bytes(spec: dict, format: str | None = None) -> int:
    """Bytes that any kernel must move for the case `spec`, reading KV as `format` (None: the cheapest one)."""
    by_format = bytes_by_format(spec)
    if format is None:
        return min(by_format.values())
    if format not in by_format:
        raise CaseSpecError(f"format: {format} is unknown; use one of {', '.join(FORMATS)}")
    return by_format[format]


# ---- reference and official verdict ----------------------------------------------------------------------------------


class Batch(NamedTuple):
    """Neighbouring sequences of equal lengths."""

    count: int
    q_rows: slice
    kv_rows: slice


def batches(data: input_t, max_kv_rows: int | None = None) -> Iterator[Batch]:
    """The sequences of `data` in order, in batches of at most `max_kv_rows` KV rows (a longer one is a batch of its own)."""
    if max_kv_rows is None:
        max_kv_rows = 1 << (14 if data[0].device.type == "cpu" else 17)  # 75 MB or 600 MB as fp64
    qo, kv = data[2].tolist(), data[3].tolist()
    lengths = [(q_end - q_begin, end - begin) for q_begin, q_end, begin, end in zip(qo, qo[1:], kv, kv[1:], strict=False)]
    first = 0
    for last in range(1, len(lengths) + 1):
        full = (last - first + 1) * lengths[first][1] > max_kv_rows
        if full or last == len(lengths) or lengths[last] != lengths[first]:
            yield Batch(last - first, slice(qo[first], qo[last]), slice(kv[first], kv[last]))
            first = last


def probabilities(q: torch.Tensor, kv: torch.Tensor, sm_scale: float) -> torch.Tensor:
    """softmax(sm_scale q K^T) in the precision of its arguments: q [n, rows, 576], kv [n, length, 576] -> [n, rows, length]."""
    return torch.softmax(torch.bmm(q, kv.mT).mul_(sm_scale), dim=-1)


@torch.no_grad()
def ref_kernel(data: input_t) -> output_t:
    """The published a8w8 numerics: per-tensor fp8 q, fp8 KV, the rest in fp32. Returns bf16 [total_q, num_heads, 512]."""
    q, kv_data, _, _, config = data
    kv_fp8, kv_scale = kv_data["fp8"]
    q_scale = fp8_scale(q, kv_fp8.dtype)
    q_codes = fp8_cast(q / q_scale, kv_fp8.dtype)
    logit_scale = config["sm_scale"] * q_scale.float() * kv_scale
    output = torch.empty((*q.shape[:2], config["v_head_dim"]), dtype=torch.bfloat16, device=q.device)
    for count, q_rows, kv_rows in batches(data):
        codes = kv_fp8[kv_rows].float().view(count, -1, QK_HEAD_DIM)
        queries = (q_codes[q_rows].float() * logit_scale).view(count, -1, QK_HEAD_DIM)
        rows = torch.bmm(probabilities(queries, codes, 1.0), codes[..., :V_HEAD_DIM]) * kv_scale
        output[q_rows] = rows.view_as(output[q_rows])
    return output


def check_implementation(data: input_t, output: Any) -> tuple[bool, str]:
    """The verdict of the public leaderboard: rtol = atol = 0.1, and even so up to 5 % of the elements may mismatch (NaN does).

    Returns (passed, message), the message as the public check words it. A wrong type, device or dtype, over which that check
    stumbles or which it lets through, is refused in one line.
    """
    if problem := describe_mismatch(data, output):
        return False, problem
    expected = ref_kernel(data)
    difference = (output.float() - expected.float()).abs()
    mismatched = ~(difference <= OFFICIAL_TOLERANCE + OFFICIAL_TOLERANCE * expected.abs())
    count = int(mismatched.count_nonzero())
    if count == 0:
        return True, f"Maximum error: {difference.max()}"
    ratio = count / output.numel()
    if ratio <= OFFICIAL_MISMATCH_RATIO:
        limits = f"(<= tol_err_ratio={OFFICIAL_MISMATCH_RATIO}) with rtol={OFFICIAL_TOLERANCE}, atol={OFFICIAL_TOLERANCE}"
        return True, f"warning: mismatch_ratio={ratio:.6f} {limits}"
    places = [tuple(index) for index in mismatched.nonzero()[:5].tolist()]
    lines = [f"Number of mismatched elements: {count}", *(f"ERROR at {i}: {output[i]} {expected[i]}" for i in places)]
    return False, "\\n".join([*lines, f"... and {count - 5} more mismatched elements."])  # a literal \n: the pipe has lines


def describe_mismatch(data: input_t, output: Any) -> str:
    """What is wrong with the type, shape, dtype or device of `output`, in one line; empty if nothing is."""
    q, config = data[0], data[4]
    shape = [*q.shape[:2], config["v_head_dim"]]
    if type(output) is not torch.Tensor:
        return f"output is a {type(output).__name__}; return a torch.Tensor, bf16 {shape}"
    if list(output.shape) != shape:
        return f"SIZE MISMATCH: output has shape {list(output.shape)}; return {shape}"
    if output.dtype != torch.bfloat16:
        return f"output is {output.dtype}; return torch.bfloat16"
    if output.device != q.device:
        return f"output is on {output.device}; return it on {q.device}, where the inputs are"
    return ""


# ---- strict verdict ----------------------------------------------------------------------------------------------------


class NoiseBound(NamedTuple):
    """How far the arithmetic of an honest kernel may take an output row from the exact result of what it read."""

    rel_l2: float  # ||row - oracle|| / ||oracle||, at most
    cosine: float  # at least
    element_rms: float  # root mean square of (row - oracle) / natural size (see Oracles.expected), at most
    element_max: float  # and its largest magnitude


# BEGIN GENERATED BOUNDS by scripts/strict_bounds.py from measured noise; docs/strict-bounds.md explains
STRICT_BOUNDS = {
    "bf16": NoiseBound(rel_l2=0.0074, cosine=0.999981, element_rms=0.0059, element_max=0.025),
    "fp8": NoiseBound(rel_l2=0.078, cosine=0.9971, element_rms=0.052, element_max=0.32),
    "mxfp4": NoiseBound(rel_l2=0.078, cosine=0.9971, element_rms=0.052, element_max=0.32),
}
# END GENERATED BOUNDS

# What a kernel may make of q: nothing; the published per-tensor fp8; the same, scale and quotient in fp32; a saturating cast.
Q_FORMATS = ("bf16", "fp8", "fp8_f32_scale", "fp8_cast")
# The ways to read an input: KV format and q format.
ORACLES = tuple((kv_format, q_format) for kv_format in FORMATS for q_format in Q_FORMATS)


class RowErrors(NamedTuple):
    """Distances of output rows from oracles, tensors of one shape. Rows that are not finite are infinitely far."""

    rel_l2: torch.Tensor
    cosine: torch.Tensor
    element_rms: torch.Tensor
    element_max: torch.Tensor
    max_abs: torch.Tensor
    worst_dim: torch.Tensor  # dim of element_max or of a NaN
    excess: torch.Tensor  # the largest ratio of an error to its bound: a row passes up to 1
    oracle: torch.Tensor  # index into ORACLES


def row_errors(rows: torch.Tensor, values: torch.Tensor, sizes: torch.Tensor, first_oracle: int) -> RowErrors:
    """Compares rows fp64 [rows, 512] with values and sizes fp64 [oracles, rows, 512] of ORACLES[first_oracle:], one KV format.

    A row that should be zero must be exactly so.
    """
    bound = STRICT_BOUNDS[ORACLES[first_oracle][0]]
    difference, norm = (rows - values).abs(), values.norm(dim=-1)
    in_sizes = difference / sizes.clamp(min=1e-30)
    element_max, worst_dim = in_sizes.max(-1)
    rel_l2 = difference.norm(dim=-1) / torch.where(norm > 0, norm.clamp(min=1e-30), 1e-300)
    errors = (rel_l2, in_sizes.square().mean(-1).sqrt(), element_max, difference.amax(-1))
    rel_l2, element_rms, element_max, max_abs = (error.nan_to_num(nan=torch.inf, posinf=torch.inf) for error in errors)
    cosine = (rows * values).sum(-1) / (rows.norm(dim=-1) * norm).clamp(min=1e-300)
    cosine = torch.where(max_abs == 0, 1.0, cosine).nan_to_num(nan=-1.0)
    ratios = [rel_l2 / bound.rel_l2, (1 - cosine) / (1 - bound.cosine)]
    ratios += [element_rms / bound.element_rms, element_max / bound.element_max]
    oracle = torch.arange(first_oracle, first_oracle + len(values), device=rows.device)[:, None].expand_as(worst_dim)
    return RowErrors(rel_l2, cosine, element_rms, element_max, max_abs, worst_dim, torch.stack(ratios).amax(0), oracle)


class Oracles:
    """The exact (fp64) results of one input for every way to read it."""

    def __init__(self, data: input_t) -> None:
        q, self.kv_data, _, _, config = data
        self.sm_scale = config["sm_scale"]
        dtype = self.kv_data["fp8"][0].dtype
        scale, scale_f32 = fp8_scale(q, dtype), fp8_scale(q.float(), dtype)
        scaled = fp8_cast(q / scale, dtype).double() * scale.double()
        scaled_f32 = fp8_cast(q.float() / scale_f32, dtype).double() * scale_f32.double()
        # fp64 [q formats, total_q, heads, 576], in the order of Q_FORMATS
        self.queries = torch.stack((q.double(), scaled, scaled_f32, fp8_cast(q, dtype).double()))

    def kv(self, kv_format: str, rows: slice) -> torch.Tensor:
        """KV rows as a kernel reading `kv_format` sees them: fp64 [n, 576]."""
        if kv_format == "bf16":
            return self.kv_data["bf16"][rows, 0].double()
        values, scale = self.kv_data[kv_format][0][rows, 0], self.kv_data[kv_format][1]
        return values.double() * scale.double() if kv_format == "fp8" else mxfp4_decode(values, scale[rows])

    def expected(self, kv_format: str, q_formats: slice, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Values and natural sizes of the outputs of `batch`: fp64 [q formats, rows, 512] each, a row being (token, head).

        size = sqrt(sum p^2 v^2 + value^2 / 16 + rms^2 / 64). Independent relative errors e of the probabilities p shift an
        element by e times the root of the first term, however much its sum cancels or adds up. The second allows for rounding
        the sum; the third, the mean square of the row's values, for probabilities too small for their format.
        """
        q = self.queries[q_formats, batch.q_rows]
        q = q.reshape(len(q), batch.count, -1, QK_HEAD_DIM).transpose(0, 1)  # [sequences, q formats, rows, 576]
        kv = self.kv(kv_format, batch.kv_rows).view(batch.count, -1, QK_HEAD_DIM)
        p, v = probabilities(q.flatten(1, 2), kv, self.sm_scale), kv[..., :V_HEAD_DIM]
        values, variances = torch.bmm(p, v), torch.bmm(p.square_(), v.square())
        squares = values.square()
        sizes = (variances + squares / 16 + squares.mean(-1, keepdim=True) / 64).sqrt_()
        values, sizes = (x.view(*q.shape[:3], V_HEAD_DIM).transpose(0, 1).flatten(1, 2) for x in (values, sizes))
        return values, sizes

    def errors(self, rows: torch.Tensor, batch: Batch, oracle: int) -> RowErrors:
        """Distances [rows] of the output rows of `batch` from ORACLES[oracle]."""
        kv_format, q_index = ORACLES[oracle][0], oracle % len(Q_FORMATS)
        errors = row_errors(rows, *self.expected(kv_format, slice(q_index, q_index + 1), batch), oracle)
        return RowErrors(*(field[0] for field in errors))

    def all_errors(self, rows: torch.Tensor, batch: Batch) -> RowErrors:
        """Distances [oracles, rows] of the output rows of `batch` from every oracle."""
        firsts = range(0, len(ORACLES), len(Q_FORMATS))
        parts = [row_errors(rows, *self.expected(ORACLES[i][0], slice(None), batch), i) for i in firsts]
        return RowErrors(*(torch.cat(field) for field in zip(*parts, strict=True)))


def judge_rows(data: input_t, output: output_t) -> tuple[RowErrors, RowErrors]:
    """Distances of the output rows from their nearest oracle, [rows], and of the longest sequence from all, [oracles, rows].

    The oracle nearest to the longest sequence is tried first; batches in which it leaves a row failing are compared with all.
    The first batch in which a row fails even so settles the verdict, so later ones keep the distances from the first oracle.
    """
    oracles, parts = Oracles(data), list(batches(data))
    longest = max(batches(data, max_kv_rows=0), key=lambda batch: batch.kv_rows.stop - batch.kv_rows.start)

    def rows(batch: Batch) -> torch.Tensor:
        return output[batch.q_rows].double().reshape(-1, V_HEAD_DIM)

    probe = oracles.all_errors(rows(longest), longest)
    means = probe.rel_l2.mean(-1).tolist()
    likely = next(i for i, mean in enumerate(means) if mean <= min(means) * (1 + 1e-6))  # of equals, the first
    judged = [oracles.errors(rows(batch), batch, likely) for batch in parts]
    for i in torch.stack([errors.excess.amax() > 1 for errors in judged]).nonzero()[:, 0].tolist():
        errors = oracles.all_errors(rows(parts[i]), parts[i])
        nearest = errors.rel_l2.argmin(0, keepdim=True)
        judged[i] = RowErrors(*(field.gather(0, nearest)[0] for field in errors))
        if (judged[i].excess > 1).any():
            break
    return RowErrors(*(torch.cat(field) for field in zip(*judged, strict=True))), probe


@torch.no_grad()
def judge_strict(data: input_t, output: Any) -> dict[str, Any]:
    """The verdict that only the arithmetic noise of honest kernels passes; docs/strict-bounds.md describes rule and fields."""
    if problem := describe_mismatch(data, output):
        unknown = dict.fromkeys(("format", "rel_l2_worst", "cosine_worst", "max_abs", "first_offending", "error_per_head"))
        return {"ok": False, **unknown, "nan_count": 0, "message": problem}
    errors, probe = judge_rows(data, output)
    num_heads = output.shape[1]
    counts = torch.bincount(errors.oracle, minlength=len(ORACLES)).tolist()
    kv_format, q_format = ORACLES[counts.index(max(counts))]
    failing = (errors.excess > 1).nonzero()[:, 0].tolist()

    def place(row: int) -> list[int]:
        return [row // num_heads, row % num_heads, int(errors.worst_dim[row])]  # token, head, dim

    def finite(value: torch.Tensor) -> float | None:
        return float(value) if value.isfinite() else None  # JSON has no infinity

    return {
        "ok": not failing,
        "format": kv_format,
        "q_format": q_format,
        "rows_by_format": {"/".join(ORACLES[i]): count for i, count in enumerate(counts) if count},
        "rel_l2_worst": finite(errors.rel_l2.max()),
        "cosine_worst": finite(errors.cosine.min()),
        "element_rms_worst": finite(errors.element_rms.max()),
        "element_max_worst": finite(errors.element_max.max()),
        "max_abs": finite(errors.max_abs.max()),
        "rel_l2_to_bf16": finite(probe.rel_l2[0].max()),
        "nan_count": int(output.isnan().sum()),
        "worst_row": place(int(errors.excess.argmax())),
        "first_offending": place(failing[0]) if failing else None,
        "error_per_head": [finite(error) for error in errors.rel_l2.view(-1, num_heads).amax(0)],
        "message": _complaint(errors, failing, place(failing[0])) if failing else "",
    }


def _complaint(errors: RowErrors, failing: list[int], place: list[int]) -> str:
    """One line on the first failing row: what was measured, and the limits."""
    row = {name: field[failing[0]].item() for name, field in errors._asdict().items()}
    kv_format, q_format = ORACLES[row["oracle"]]
    limits = STRICT_BOUNDS[kv_format]._asdict().items()
    measured = ", ".join(f"{name} {row[name]:.{6 if name == 'cosine' else 2}g} (limit {limit})" for name, limit in limits)
    where = f"the first is token {place[0]}, head {place[1]}, worst at dim {place[2]}"
    found = f"{measured} from {kv_format} KV with {q_format} q" if row["max_abs"] < torch.inf else "not finite"
    return f"{len(failing)} of {len(errors.excess)} rows fail; {where}: {found}"


def judge(data: input_t, output: Any) -> dict[str, dict[str, Any]]:
    """Both verdicts: {"official": {"ok", "message"}, "strict": {"ok", "format", "message", errors ...}}."""
    ok, message = check_implementation(data, output)
    return {"official": {"ok": ok, "message": message}, "strict": judge_strict(data, output)}
