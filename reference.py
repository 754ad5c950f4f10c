"""Inputs, reference and verdicts of the mixed-MLA decode problem.

Self-contained (torch and task.py's two type names), so that it can be dropped into a public problem folder. Runs on any torch
device: KERNELPROOF_DEVICE, else the GPU if there is one, else the CPU.
"""

import os
from collections.abc import Iterator
from typing import Any

import torch

from task import input_t, output_t

NUM_HEADS = 16
NUM_KV_HEADS = 1
KV_LORA_RANK = 512
QK_ROPE_HEAD_DIM = 64
QK_HEAD_DIM = KV_LORA_RANK + QK_ROPE_HEAD_DIM
V_HEAD_DIM = KV_LORA_RANK
SM_SCALE = 1.0 / QK_HEAD_DIM**0.5

MXFP4_BLOCK = 32
NUM_BLOCKS = QK_HEAD_DIM // MXFP4_BLOCK
FP4_DTYPE = getattr(torch, "float4_e2m1fn_x2", torch.uint8)
E8M0_DTYPE = getattr(torch, "float8_e8m0fnu", torch.uint8)
E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)

# KV format -> bytes of one KV row. fp8's scale is one number for the whole cache.
BYTES_PER_KV_ROW = {
    "bf16": 2 * QK_HEAD_DIM,
    "fp8": QK_HEAD_DIM,
    "mxfp4": QK_HEAD_DIM // 2 + NUM_BLOCKS,
}
FORMATS = tuple(BYTES_PER_KV_ROW)
DISTRIBUTIONS = ("normal", "large", "onehot", "constant", "outlier")

OFFICIAL_TOLERANCE = 0.1  # rtol and atol of the check that the leaderboard ran
OFFICIAL_MISMATCH_RATIO = 0.05  # ... which, when that fails, still passes this share of mismatching elements

DEVICE = os.environ.get("KERNELPROOF_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")


class CaseSpecError(ValueError):
    """A case asks for an input that cannot be made; the message names the key, its value and what is allowed."""


# ---- formats ---------------------------------------------------------------------------------------------------------


def fp8_dtype(device: torch.device) -> torch.dtype:
    """e4m3fnuz on gfx942 (MI300), e4m3fn on gfx950, NVIDIA and CPU."""
    on_rocm = device.type == "cuda" and torch.version.hip is not None
    is_gfx942 = on_rocm and torch.cuda.get_device_properties(device).gcnArchName.startswith("gfx942")
    return torch.float8_e4m3fnuz if is_gfx942 else torch.float8_e4m3fn


def fp8_scale(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Per-tensor scale max|x| / max(dtype), as SGLang's scaled_fp8_quant has it: a scalar of x's dtype. x may be empty."""
    low, high = torch.aminmax(x) if x.numel() else (x.new_zeros(()), x.new_zeros(()))
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


def mxfp4_decode(packed: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Values of MXFP4 rows: E2M1 pairs [n, 288] and E8M0 scales [n, >= 18], both also as uint8. Returns `dtype` [n, 576]."""
    values = torch.tensor(E2M1_VALUES + tuple(-v for v in E2M1_VALUES), dtype=dtype, device=packed.device)
    codes = packed.view(torch.uint8).int()
    elements = values[torch.stack((codes & 15, codes >> 4), dim=-1)]  # [n, 288, 2]
    exponents = scales.view(torch.uint8)[:, :NUM_BLOCKS, None].int()
    powers = torch.where(exponents == 255, torch.nan, torch.ldexp(elements.new_ones(()), exponents - 127))
    return (elements.view(-1, NUM_BLOCKS, MXFP4_BLOCK) * powers.to(dtype)).view(-1, QK_HEAD_DIM)


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
    _check_spec(batchsize=batchsize, qseqlen=qseqlen, numheads=numheads)
    if dist not in DISTRIBUTIONS:
        raise CaseSpecError(f"dist: {dist} is unknown; use one of {', '.join(DISTRIBUTIONS)}")
    target = torch.device(device or DEVICE)
    generator = torch.Generator(device=target).manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.bfloat16, device=target, generator=generator)

    q = draw(batchsize * qseqlen, numheads, QK_HEAD_DIM)  # the order of these two draws is the official one
    kv = draw(sum(lengths), NUM_KV_HEADS, QK_HEAD_DIM)
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
    _check_spec(batchsize=batchsize, kvseqlen=kvseqlen)
    if kvmin is None:
        return [kvseqlen] * batchsize
    if not 0 <= kvmin <= kvseqlen:
        raise CaseSpecError(f"kvmin: {kvmin} is out of range; use 0 to kvseqlen = {kvseqlen}")
    generator = torch.Generator().manual_seed(seed ^ 0x6B766D696E)  # "kvmin": apart from the values' generator
    return torch.randint(kvmin, kvseqlen + 1, (batchsize,), generator=generator).tolist()


def _check_spec(**sizes: int) -> None:
    for key, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise CaseSpecError(f"{key}: {value} is not a size; use an integer of at least 1")


def _reshape_values(dist: str, q: torch.Tensor, kv: torch.Tensor, kv_indptr: list[int], generator: torch.Generator) -> None:
    """Turns normal q [total_q, heads, 576] and kv [total_kv, 1, 576] into another distribution, in place.

    large     logits of +-100: q * 16, and in every eighth row one element of 600, beyond what e4m3 holds
    onehot    every query row meets its own copy among the keys, with a logit of about 24 against the others' +-4
    constant  all KV rows of a sequence are equal
    outlier   eight of the 576 KV channels are 30 times as large
    """
    rows = q.view(-1, QK_HEAD_DIM)
    if dist == "large":
        rows.mul_(16)
        channel = torch.randint(QK_HEAD_DIM, (rows[::8].shape[0], 1), device=q.device, generator=generator)
        rows[::8].scatter_(1, channel, 600.0)
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
    total, device = kv.shape[0], kv.device
    dtype = fp8_dtype(device)
    fp8 = torch.empty_like(kv, dtype=dtype)
    packed = torch.empty((total, NUM_KV_HEADS, QK_HEAD_DIM // 2), dtype=torch.uint8, device=device)
    scale_shape = (-(-total // 256) * 256, 24) if scale_padding else (total, NUM_BLOCKS)
    scales = torch.full(scale_shape, 0xFF, dtype=torch.uint8, device=device)
    scale = fp8_scale(kv, dtype)
    chunk_rows = 4096 if device.type == "cpu" else 65536  # temporaries stay in the L2 cache of a CPU
    for begin in range(0, total, chunk_rows):
        chunk = slice(begin, min(begin + chunk_rows, total))
        fp8[chunk] = fp8_cast(kv[chunk] / scale, dtype)
        packed[chunk, 0], scales[chunk, :NUM_BLOCKS] = mxfp4_encode(kv[chunk, 0])
    return {
        "bf16": kv,
        "fp8": (fp8, scale.float().reshape(1)),
        "mxfp4": (packed.view(FP4_DTYPE), scales.view(E8M0_DTYPE)),
    }


# ---- reference and official verdict ----------------------------------------------------------------------------------


def _batches(qo_indptr: torch.Tensor, kv_indptr: torch.Tensor, max_kv_rows: int) -> Iterator[tuple[int, slice, slice]]:
    """Neighbouring sequences of equal lengths, `max_kv_rows` together at most: (how many, their q rows, their KV rows)."""
    qo, kv = qo_indptr.tolist(), kv_indptr.tolist()
    lengths = [(q_end - q_begin, end - begin) for q_begin, q_end, begin, end in zip(qo, qo[1:], kv, kv[1:], strict=False)]
    first = 0
    for last in range(1, len(lengths) + 1):
        full = (last - first + 1) * lengths[first][1] > max_kv_rows
        if full or last == len(lengths) or lengths[last] != lengths[first]:
            yield last - first, slice(qo[first], qo[last]), slice(kv[first], kv[last])
            first = last


def _attention(q: torch.Tensor, kv: torch.Tensor, sm_scale: float) -> torch.Tensor:
    """softmax(sm_scale q K^T) V in the precision of its arguments; zeros where there are no keys.

    q [n, rows, 576], kv [n, length, 576] -> [n, rows, 512]
    """
    scores = torch.softmax(torch.bmm(q, kv.mT).mul_(sm_scale), dim=-1)
    return torch.bmm(scores, kv[..., :V_HEAD_DIM])


@torch.no_grad()
def ref_kernel(data: input_t) -> output_t:
    """The published a8w8 numerics: per-tensor fp8 q, fp8 KV, the rest in fp32. Returns bf16 [total_q, num_heads, 512]."""
    q, kv_data, qo_indptr, kv_indptr, config = data
    kv_fp8, kv_scale = kv_data["fp8"]
    q_scale = fp8_scale(q, kv_fp8.dtype)
    q_codes = fp8_cast(q / q_scale, kv_fp8.dtype)
    logit_scale = config["sm_scale"] * q_scale.float() * kv_scale
    output = torch.empty((*q.shape[:2], config["v_head_dim"]), dtype=torch.bfloat16, device=q.device)
    for count, q_rows, kv_rows in _batches(qo_indptr, kv_indptr, max_kv_rows=1 << 16):
        codes = kv_fp8[kv_rows].float().view(count, -1, QK_HEAD_DIM)
        queries = (q_codes[q_rows].float() * logit_scale).view(count, -1, QK_HEAD_DIM)
        output[q_rows] = (_attention(queries, codes, 1.0) * kv_scale).view_as(output[q_rows])
    return output


def check_implementation(data: input_t, output: object) -> tuple[bool, str]:
    """The verdict of the public leaderboard: rtol = atol = 0.1, and even so up to 5 % of the elements may mismatch (NaN does).

    Returns (passed, message), the message as the public check words it. A wrong type, device or dtype, over which that check
    stumbles or which it lets through, is refused in one line.
    """
    problem = describe_mismatch(data, output)
    if problem or not isinstance(output, torch.Tensor):
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
    places = [tuple(index.tolist()) for index in mismatched.nonzero()[:5]]
    lines = [f"Number of mismatched elements: {count}"]
    lines += [f"ERROR at {place}: {output[place]} {expected[place]}" for place in places]
    lines += [f"... and {count - 5} more mismatched elements."] if count > 5 else []
    return False, "\\n".join(lines)  # a literal \n: the message travels on one line of the result pipe


def describe_mismatch(data: input_t, output: object) -> str:
    """What is wrong with the type, shape, dtype or device of `output`, in one line; empty if nothing is."""
    q, config = data[0], data[4]
    shape = (*q.shape[:2], config["v_head_dim"])
    if type(output) is not torch.Tensor:
        return f"output is a {type(output).__name__}; return a torch.Tensor, bf16 {list(shape)}"
    if tuple(output.shape) != shape:
        return f"SIZE MISMATCH: output has shape {list(output.shape)}; return {list(shape)}"
    if output.dtype != torch.bfloat16:
        return f"output is {output.dtype}; return torch.bfloat16"
    if output.device != q.device:
        return f"output is on {output.device}; return it on {q.device}, where the inputs are"
    return ""


# ---- bytes -----------------------------------------------------------------------------------------------------------


def bytes_by_format(spec: dict) -> dict[str, int]:
    """KV format -> bytes of q, KV and output once each. spec: the arguments of generate_input. Raises CaseSpecError."""
    lengths = kv_lengths(spec["batchsize"], spec["kvseqlen"], spec["seed"], spec.get("kvmin"))
    rows = spec["batchsize"] * spec["qseqlen"] * spec.get("numheads", NUM_HEADS)
    q_and_output = 2 * rows * (QK_HEAD_DIM + V_HEAD_DIM)
    return {name: q_and_output + sum(lengths) * per_row for name, per_row in BYTES_PER_KV_ROW.items()}


def min_bytes(spec: dict, format: str | None = None) -> int:
    """Bytes that any kernel must move for the case `spec`, reading KV as `format` (None: the cheapest one)."""
    by_format = bytes_by_format(spec)
    if format is None:
        return min(by_format.values())
    if format not in by_format:
        raise CaseSpecError(f"format: {format} is unknown; use one of {', '.join(FORMATS)}")
    return by_format[format]
