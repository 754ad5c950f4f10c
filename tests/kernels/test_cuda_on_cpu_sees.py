"""Faults put into the CUDA kernels: the CPU machine notices each, or what it says of the kernels would mean little."""

import cuda_on_cpu
import pytest
import torch
from cpu_build import compiler
from mla_oracle import BF16_REL_L2, make_input, oracle, worst_rel_l2

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler that knows _Float16")
FAULTS = {
    "scores before the tile has arrived": ("block.cuh", "    mbar_wait(full + stage * 8, (t / STAGES) & 1);\n", ""),
    "a tile that is never released": ("block.cuh", "    if (lane == 0) mbar_arrive(empty + (uint32_t)t % STAGES * 8);\n", ""),
    "shares summed before they have arrived": ("combine.cuh", "    mbar_poll(e.inbox_full, 0);\n", ""),
    "an expectation one byte short": ("combine.cuh", "cluster * ROWS * 8);", "cluster * ROWS * 8 - 8);"),
    "a block that leaves early": (
        "combine.cuh",
        "  if (a.cluster > 1) cluster_wait();                     // nobody leaves while its outbox is being read\n",
        "",
    ),
    "sums without the last tile": ("block.cuh", "if (i + 1 >= mine) {", "if (i + 2 == max(mine, 2)) {"),
    "sums before they are there": ("direct.cuh", "    mbar_poll(smem_u32(smem) + L::SUMS_FULL, 0);\n", ""),
    "totals before they are there": (
        "combine.cuh",
        "  bar_sync(TOTALS_BARRIER, N + 32);                      // nobody",
        "  bar_arrive(TOTALS_BARRIER, N + 32);                    // nobody",
    ),
    "rows of the next sequence": (
        "block.cuh",
        "    if (rows < TILE) clear_rows<KV>(",
        "    if (false) clear_rows<KV>(",
    ),
    "a parity wait two phases behind": (
        "block.cuh",
        "    if (STAGES % NWG && t >= STAGES) mbar_wait(",
        "    if (false) mbar_wait(",
    ),
}
MXFP4_FAULTS = {
    "P and V before they are there": ("hold.cuh", "      mbar_wait(L::full(smem0, stage), phase);\n", ""),
    "V overwritten while it is read": ("unpacked.cuh", "if (group == 0 && turn > 0) mbar_wait(", "if (false) mbar_wait("),
    "packed rows before they have arrived": ("unpacked.cuh", "      mbar_wait(at.full(smem0), at.phase);\n", ""),
    "a barrier of another warpgroup's turn": ("unpacked.cuh", "rows, t + L::PACKED, at.reused()", "rows, t + L::PACKED, at"),
    "products before they are complete": (
        "hold.cuh",
        "g < 3 ? wgmma_wait<1>(part) : wgmma_wait<0>(part)",
        "wgmma_wait<2>(part)",
    ),
    "a stage overwritten by the combine": (
        "hold.cuh",
        "    bar_sync(HOLD_BARRIER, 128);                         // nobody",
        "    // nobody",
    ),
    "P without its low parts": ("hold.cuh", "d[b][i + 8], 0.0625f, d[b][i]", "d[b][i + 8], 0.f, d[b][i]"),
    "a new maximum that goes unheard": ("hold.cuh", "if (__any_sync(~0u, grew))", "if (false)"),
    "maxima of one warpgroup for another's tile": (
        "hold.cuh",
        "factor[i] = part_weight(own[i], reference[i])",
        "factor[i] = 1.f",
    ),
    "queries in the order of their dims": ("block.cuh", "q.template store<B::KV == Kv::e5m2>(", "q.template store<false>("),
}
QUICK = ("scores before the tile has arrived", "shares summed before they have arrived")


@pytest.mark.parametrize("fault", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in FAULTS])
def test_fault(fault):
    data = make_input([900, 130])
    expected = oracle(data, "fp8")[:1]
    data[1]["fp8"][0].view(torch.uint8)[900:] = 0x7F  # the second sequence is NaN

    def wrong(seed):
        try:
            out = cuda_on_cpu.decode(data, "fp8_wide", 1 + seed % 2, 1, seed, change=FAULTS[fault])
        except RuntimeError:
            return True
        return not worst_rel_l2(out[:1], expected) < BF16_REL_L2

    assert any(wrong(seed) for seed in range(40))


@pytest.mark.parametrize("fault", [pytest.param(name, marks=pytest.mark.slow) for name in MXFP4_FAULTS])
def test_mxfp4_fault(fault):
    data = make_input([900, 130])
    expected = oracle(data, "mxfp4")

    def wrong(seed):
        try:
            out = cuda_on_cpu.decode(data, "mxfp4", 1 + seed % 2, 1, seed, change=MXFP4_FAULTS[fault])
        except RuntimeError:
            return True
        return not worst_rel_l2(out, expected) < 1.5 * BF16_REL_L2

    assert any(wrong(seed) for seed in range(40))
