"""Emulated honest MLA decode kernels: what correct code may do to a result by the arithmetic it chooses, and nothing else.

Operands are read exactly (bf16, fp8 or MXFP4 values), products are exact and sums fp32, as on tensor cores. What varies is the
precision of the probabilities, the order and splitting of the sums, and Hopper's short fp8 accumulators.
"""

from dataclasses import dataclass

import torch

from reference import Q_FORMATS, QK_HEAD_DIM, V_HEAD_DIM, Batch, Oracles, batches, fp8_cast
from task import input_t, output_t


@dataclass(frozen=True)
class HonestKernel:
    """softmax(sm_scale q K^T) V by online softmax over tiles of keys, with split KV."""

    kv_format: str
    q_format: str = "bf16"
    p_dtype: torch.dtype = torch.float32  # of the probabilities (at most 1) that are multiplied with V
    p_scale: float = 1.0  # they are multiplied with it before rounding
    sum_rounded_p: bool = False  # the softmax denominator sums them after rounding instead of before
    num_kv_splits: int = 1
    tile: int = 64  # keys
    reverse: bool = False  # tiles from the last key to the first
    short_accumulator: bool = False  # sums as in Hopper's fp8 wgmma
    partial_dtype: torch.dtype = torch.float32  # of the outputs of splits before they are combined

    def __call__(self, data: input_t) -> output_t:
        """The output bf16 [total_q, heads, 512] of this kernel."""
        output = torch.empty((*data[0].shape[:2], V_HEAD_DIM), dtype=torch.bfloat16, device=data[0].device)
        oracles = Oracles(data)
        for batch in batches(data):
            output[batch.q_rows] = self._attention(oracles, batch).view_as(output[batch.q_rows]).bfloat16()
        return output

    def _attention(self, oracles: Oracles, batch: Batch) -> torch.Tensor:
        """fp32 [sequences, rows, 512]"""
        q = oracles.queries[Q_FORMATS.index(self.q_format), batch.q_rows].float().view(batch.count, -1, QK_HEAD_DIM)
        kv = oracles.kv(self.kv_format, batch.kv_rows).float().view(batch.count, -1, QK_HEAD_DIM)
        if kv.shape[1] == 0:
            return q.new_zeros(*q.shape[:2], V_HEAD_DIM)
        splits = [
            self._split(q, keys, oracles.sm_scale) for keys in kv.tensor_split(self.num_kv_splits, dim=1) if keys.shape[1]
        ]
        partial, lse = (torch.stack(parts) for parts in zip(*splits, strict=True))
        weights = torch.softmax(lse, dim=0)
        return (weights * partial.to(self.partial_dtype)).sum(0)

    def _split(self, q: torch.Tensor, kv: torch.Tensor, sm_scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Output fp32 [sequences, rows, 512] over these keys, and the log of their sum of exponentials [sequences, rows, 1]."""
        peak = q.new_full((*q.shape[:2], 1), -torch.inf)
        total = torch.zeros_like(peak)
        output = q.new_zeros(*q.shape[:2], V_HEAD_DIM)
        tiles = kv.split(self.tile, dim=1)
        for keys in reversed(tiles) if self.reverse else tiles:
            scores = self._matmul(q, keys.mT) * sm_scale
            new_peak = torch.maximum(peak, scores.amax(-1, keepdim=True))
            p = torch.exp(scores - new_peak)
            rounded = self._round(p)
            fade = torch.exp(peak - new_peak)
            total = total * fade + (rounded if self.sum_rounded_p else p).sum(-1, keepdim=True)
            output = self._matmul(rounded, keys[..., :V_HEAD_DIM], output * fade)
            peak = new_peak
        return output / total, peak + total.log()

    def _round(self, p: torch.Tensor) -> torch.Tensor:
        if self.p_dtype == torch.float32:
            return p
        scaled = p * self.p_scale
        rounded = fp8_cast(scaled, self.p_dtype) if self.p_dtype.itemsize == 1 else scaled.to(self.p_dtype)
        return rounded.float() / self.p_scale

    def _matmul(self, a: torch.Tensor, b: torch.Tensor, start: torch.Tensor | None = None) -> torch.Tensor:
        """start + a @ b, with sums in fp32 or, 32 products at a time, in the short accumulator."""
        if not self.short_accumulator:
            return a @ b if start is None else start + a @ b
        total = a.new_zeros(a.shape[0], a.shape[1], b.shape[2]) if start is None else start
        for a_step, b_step in zip(a.split(32, dim=2), b.split(32, dim=1), strict=True):
            total = _short_add(total, a_step @ b_step)
        return total


def _short_add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a + b with both cut to 13 fraction bits of the larger one (DeepSeek-V3 technical report, section 3.3.2)."""
    exponent = torch.frexp(torch.maximum(a.abs(), b.abs())).exponent - 1
    unit = torch.ldexp(torch.ones_like(a), exponent - 13)
    return torch.trunc(a / unit) * unit + torch.trunc(b / unit) * unit


BF16, F16, E4M3 = torch.bfloat16, torch.float16, torch.float8_e4m3fn


def honest_kernels(kv_format: str) -> dict[str, HonestKernel]:
    """Name -> kernel. fp8 probabilities belong to fp8 matrix instructions: a kernel that reads bf16 KV does not have them."""

    def kernel(**choices) -> HonestKernel:
        return HonestKernel(kv_format, **choices)

    kernels = {
        "P fp32": kernel(),
        "P bf16": kernel(p_dtype=BF16),
        "P bf16, sums rounded P": kernel(p_dtype=BF16, sum_rounded_p=True, tile=128),
        "P bf16, 32 splits": kernel(p_dtype=BF16, num_kv_splits=32, tile=16),
        "P bf16, 7 splits, bf16 partials": kernel(p_dtype=BF16, num_kv_splits=7, partial_dtype=BF16),
        "P f16": kernel(p_dtype=F16),
        "P f16, 16 splits, reverse": kernel(p_dtype=F16, num_kv_splits=16, reverse=True),
    }
    if kv_format == "bf16":
        return kernels
    fp8 = {"q_format": "fp8", "p_dtype": E4M3}
    return kernels | {
        "P fp8 * 448": kernel(**fp8, p_scale=448.0),
        "P fp8 * 448, sums rounded P": kernel(**fp8, p_scale=448.0, sum_rounded_p=True),
        "P fp8 * 256, 32 splits": kernel(**fp8, p_scale=256.0, num_kv_splits=32),
        "P fp8 * 256, reverse": kernel(**fp8, p_scale=256.0, reverse=True, tile=128),
        "P fp8 unscaled": kernel(**fp8),
        "P fp8 * 448, short accumulator": kernel(**fp8, p_scale=448.0, short_accumulator=True),
        "P fp8 * 448, short accumulator, 8 splits": kernel(**fp8, p_scale=448.0, short_accumulator=True, num_kv_splits=8),
    }
