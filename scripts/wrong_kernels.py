"""Wrong MLA decode results that must not pass: each a change of an honest kernel or of its output.

Most pass the public check at 8192 keys, where outputs of random inputs are smaller than its tolerance.
"""

from collections.abc import Callable

import torch

from reference import Q_FORMATS, QK_HEAD_DIM, V_HEAD_DIM, Oracles, batches, probabilities
from scripts.honest_kernels import HonestKernel
from task import KvData, input_t, output_t


def _elements(output: output_t, share: float, seed: int = 0) -> torch.Tensor:
    """A random mask [tokens, heads, 512] of `share` of the elements."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(output.shape, generator=generator) < share).to(output.device)


def _one_nan(output: output_t) -> output_t:
    damaged = output.clone()
    damaged[-1, -1, -1] = torch.nan
    return damaged


def _one_element_per_row(output: output_t) -> output_t:
    damaged = output.clone()
    damaged[..., 100] = 0
    return damaged


def _every_25th_row_zero(output: output_t) -> output_t:
    damaged = output.clone()
    damaged.view(-1, output.shape[-1])[::25] = 0
    return damaged


def _two_heads_swapped(output: output_t) -> output_t:
    return output[:, [1, 0, *range(2, output.shape[1])]]


# name -> what happens to the output bf16 [tokens, heads, 512] of an honest kernel
DAMAGES: dict[str, Callable[[output_t], output_t]] = {
    "all zeros": torch.zeros_like,
    "5 % of the elements zero": lambda output: output.masked_fill(_elements(output, 0.05), 0),
    "5 % of the elements doubled": lambda output: torch.where(_elements(output, 0.05), output * 2, output),
    "5 % of the elements negated": lambda output: torch.where(_elements(output, 0.05), -output, output),
    "5 % of the elements off by 0.1": lambda output: torch.where(_elements(output, 0.05), output + 0.1, output),
    "every 25th row zero": _every_25th_row_zero,
    "one element of each row zero": _one_element_per_row,
    "rows shifted by one": lambda output: output.view(-1, output.shape[-1]).roll(1, 0).view_as(output),
    "two heads swapped": _two_heads_swapped,
    "one NaN": _one_nan,
    "values * 1.3": lambda output: output * 1.3,
    "values * 1.1": lambda output: output * 1.1,
}


def _ignoring_keys(kernel: HonestKernel, data: input_t, begin: float, end: float) -> output_t:
    """`kernel` without the keys between two fractions of each sequence."""
    q, kv_data, qo_indptr, kv_indptr, config = data
    lengths = kv_indptr.diff()
    position = torch.arange(len(kv_data["bf16"]), device=q.device) - kv_indptr[:-1].repeat_interleave(lengths)
    length = lengths.repeat_interleave(lengths)
    kept = (position < (begin * length).int()) | (position >= (end * length).int())
    rows = kept.nonzero()[:, 0]
    fp8, scale = kv_data["fp8"]
    values, scales = (part.view(torch.uint8)[rows] for part in kv_data["mxfp4"])
    fp8 = fp8.view(torch.uint8)[rows].view(fp8.dtype)
    fewer: KvData = {"bf16": kv_data["bf16"][rows], "fp8": (fp8, scale), "mxfp4": (values, scales)}
    new_indptr = torch.cat((kept.new_zeros(1), kept)).cumsum(0)[kv_indptr].to(torch.int32)
    return kernel((q, fewer, qo_indptr, new_indptr, config))


def _without_rope(kernel: HonestKernel, data: input_t) -> output_t:
    """Logits from the first 512 dims alone."""
    q, kv_data, qo_indptr, kv_indptr, config = data
    q = q.clone()
    q[..., config["kv_lora_rank"] :] = 0
    return kernel((q, kv_data, qo_indptr, kv_indptr, config))


def _wrong_scale(kernel: HonestKernel, data: input_t) -> output_t:
    """sm_scale as if the head had 192 dims, its size before absorption, and not 576."""
    q, kv_data, qo_indptr, kv_indptr, config = data
    return kernel((q, kv_data, qo_indptr, kv_indptr, {**config, "sm_scale": config["sm_scale"] * 3**0.5}))


def _other_values(kernel: HonestKernel, data: input_t) -> output_t:
    """V read as mxfp4 beside the kernel's K; by a kernel of mxfp4, as bf16."""
    other = "bf16" if kernel.kv_format == "mxfp4" else "mxfp4"
    oracles, output = Oracles(data), torch.empty_like(kernel(data))
    for batch in batches(data):
        q = oracles.queries[Q_FORMATS.index(kernel.q_format), batch.q_rows].view(batch.count, -1, QK_HEAD_DIM)
        keys = oracles.kv(kernel.kv_format, batch.kv_rows).view(batch.count, -1, QK_HEAD_DIM)
        values = oracles.kv(other, batch.kv_rows).view_as(keys)
        rows = probabilities(q, keys, oracles.sm_scale) @ values[..., :V_HEAD_DIM]
        output[batch.q_rows] = rows.view_as(output[batch.q_rows]).bfloat16()
    return output


# name -> the output of a kernel that does its work wrongly
MISTAKES: dict[str, Callable[[HonestKernel, input_t], output_t]] = {
    "second half of the KV ignored": lambda kernel, data: _ignoring_keys(kernel, data, 0.5, 1),
    "last 3 % of the KV ignored": lambda kernel, data: _ignoring_keys(kernel, data, 0.97, 1),
    "one of 32 splits dropped": lambda kernel, data: _ignoring_keys(kernel, data, 10 / 32, 11 / 32),
    "rope part ignored": _without_rope,
    "sm_scale of 192 dims": _wrong_scale,
    "V of another format": _other_values,
}
