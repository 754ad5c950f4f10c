"""MLA decode in plain torch: any device, any format, any lengths. Chunked split-KV with an online softmax, in fp32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from kernels.layout import V_DIM, Shape
from task import input_t

E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


class Group(NamedTuple):
    """Consecutive sequences of equal lengths, computed as one batch."""

    count: int
    q_start: int
    q_len: int
    kv_start: int
    kv_len: int


class TorchBackend:
    name = "torch"

    def available(self, device: torch.device) -> str | None:
        return None

    def default_params(self, shape: Shape, device: torch.device) -> dict[str, Any]:
        # bf16 is read fastest on a CPU: widening it is one vector shift, fp8 and fp4 need a table look-up per value.
        return {"format": "bf16", "chunk_tokens": 4096}

    def plan(self, data: input_t, params: dict[str, Any]) -> Callable[[input_t], torch.Tensor]:
        reader = KV_READERS[params["format"]]
        chunk_tokens = int(params["chunk_tokens"])

        def run(data: input_t) -> torch.Tensor:
            q, kv_data, qo_indptr, kv_indptr, config = data
            out = torch.zeros(q.shape[0], q.shape[1], V_DIM, dtype=torch.bfloat16, device=q.device)
            read_rows = reader(kv_data)
            for group in equal_groups(qo_indptr.tolist(), kv_indptr.tolist(), chunk_tokens):
                attend_group(q, read_rows, out, group, config["sm_scale"], chunk_tokens)
            return out

        return run


def equal_groups(qo_indptr: list[int], kv_indptr: list[int], chunk_tokens: int) -> Iterator[Group]:
    """Runs of sequences with equal q and kv lengths, cut so that a batch holds at most `chunk_tokens` KV rows if it can.
    Sequences without KV or without queries are left out: their output stays zero."""
    batch = len(kv_indptr) - 1
    first = 0
    while first < batch:
        q_len, kv_len = (indptr[first + 1] - indptr[first] for indptr in (qo_indptr, kv_indptr))
        limit = min(batch, first + max(1, chunk_tokens // max(kv_len, 1)))
        end = first + 1
        while end < limit and (qo_indptr[end + 1] - qo_indptr[end], kv_indptr[end + 1] - kv_indptr[end]) == (q_len, kv_len):
            end += 1
        if q_len and kv_len:
            yield Group(end - first, qo_indptr[first], q_len, kv_indptr[first], kv_len)
        first = end


def attend_group(
    q: torch.Tensor,  # [total_q, heads, 576] bf16
    read_rows: Callable[[slice], torch.Tensor],
    out: torch.Tensor,  # [total_q, heads, 512] bf16
    group: Group,
    sm_scale: float,
    chunk_tokens: int,
) -> None:
    """Write the group's rows of `out`. Scores and output are computed transposed: K @ q^T is the faster order on a CPU."""
    q_rows = slice(group.q_start, group.q_start + group.count * group.q_len)
    rows = group.q_len * q.shape[1]
    q_t = (q[q_rows].float() * sm_scale).view(group.count, rows, q.shape[2]).transpose(1, 2)  # [count, 576, rows]
    peak = q_t.new_full((group.count, 1, rows), float("-inf"))
    total = torch.zeros_like(peak)
    acc = q_t.new_zeros(group.count, V_DIM, rows)
    for start in range(0, group.kv_len, chunk_tokens):
        k = read_chunk(read_rows, group, start, min(chunk_tokens, group.kv_len - start))  # [count, chunk, 576] fp32
        scores = torch.bmm(k, q_t)  # [count, chunk, rows]
        new_peak = torch.maximum(peak, scores.amax(dim=1, keepdim=True))
        p = scores.sub_(new_peak).exp_()
        rescale = (peak - new_peak).exp()
        total = total * rescale + p.sum(dim=1, keepdim=True)
        acc = torch.baddbmm(acc.mul_(rescale), k[:, :, :V_DIM].transpose(1, 2), p)
        peak = new_peak
    out[q_rows] = (acc / total).transpose(1, 2).reshape(out[q_rows].shape).to(out.dtype)


def read_chunk(read_rows: Callable[[slice], torch.Tensor], group: Group, start: int, length: int) -> torch.Tensor:
    """Tokens [start, start + length) of every sequence of the group: fp32 [count, length, 576]."""
    if group.count == 1:
        first = group.kv_start + start
        return read_rows(slice(first, first + length)).unsqueeze(0)
    # A batch of several sequences fits into one chunk (see equal_groups), so it is read whole.
    rows = read_rows(slice(group.kv_start, group.kv_start + group.count * group.kv_len))
    return rows.view(group.count, group.kv_len, -1)


def bf16_reader(kv_data: Any) -> Callable[[slice], torch.Tensor]:
    kv = kv_data["bf16"]  # [total_kv, 1, 576] bf16
    return lambda rows: kv[rows, 0].float()


def fp8_reader(kv_data: Any) -> Callable[[slice], torch.Tensor]:
    kv, scale = kv_data["fp8"]  # [total_kv, 1, 576] e4m3, [1] fp32
    return lambda rows: kv[rows, 0].float() * scale


def mxfp4_reader(kv_data: Any) -> Callable[[slice], torch.Tensor]:
    packed, scale = (tensor.view(torch.uint8) for tensor in kv_data["mxfp4"])  # [total_kv, 1, 288], [>= total_kv, >= 18]
    pairs = e2m1_pairs(packed.device)
    powers = e8m0_powers(packed.device)

    def read(rows: slice) -> torch.Tensor:
        values = pairs[packed[rows, 0].int()].flatten(1)  # [rows, 576]
        blocks = values.view(values.shape[0], -1, 32)
        return (blocks * powers[scale[rows, : blocks.shape[1]].int()].unsqueeze(-1)).flatten(1)

    return read


def e2m1_pairs(device: torch.device) -> torch.Tensor:
    """fp32 [256, 2]: the two values of a packed byte, low nibble first."""
    values = torch.tensor(E2M1_VALUES, device=device)
    values = torch.cat([values, -values])
    byte = torch.arange(256, device=device)
    return torch.stack([values[byte & 15], values[byte >> 4]], dim=1)


def e8m0_powers(device: torch.device) -> torch.Tensor:
    """fp32 [256]: 2^(byte - 127), NaN for 255 (OCP MX 1.0, section 5.4.1)."""
    exponent = torch.arange(-127, 129, device=device, dtype=torch.float64)
    powers = torch.exp2(exponent).float()
    powers[255] = float("nan")
    return powers


KV_READERS = {"bf16": bf16_reader, "fp8": fp8_reader, "mxfp4": mxfp4_reader}
