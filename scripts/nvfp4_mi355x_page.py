"""docs/nvfp4-msa-mi355x.md: what is known of the NVFP4 kernels on an MI355X without the card. Written by
scripts/emulate_nvfp4.py --docs."""

from __future__ import annotations

from typing import Any

from gfx950.emulator import Schedule, estimate
from kernels.nvfp4_msa.hip_backend import HIP_TRAITS_OF_MODULE, Traits
from kernels.nvfp4_msa.layout import HEAD_BYTES
from scripts.emulate_nvfp4 import EMULATED_REQUESTS, TASK, benchmark_name, task_case
from scripts.mi355x_page import PAGE as MLA_PAGE
from scripts.mi355x_page import PEAK_BYTES_PER_NS, scaled, summary
from scripts.nvfp4_emulation import Emulation, decode_report, emulate, reference

PAGE = MLA_PAGE.with_name("nvfp4-msa-mi355x.md")

PAGE_TEXT = """\
# NVFP4 block-sparse decode on an MI355X

<!-- Written by `python scripts/emulate_nvfp4.py --docs`. -->

**No MI355X was available.** Nothing on this page was measured on one. **Emulated**: the gfx950 machine code of every kernel in
the module, under every wave schedule and LDS fill of the emulator, against the problem's fp64 oracle and its strict bounds,
with ticket counters checked after every launch. **Compile-checked only**: the launcher and its binding. **Not at all**: torch's
inline loader on ROCm, launch overheads, caches, XCDs, HBM, clocks.

{summary}

## The kernel

One workgroup of 4 waves takes a query row, a KV head with its 1 to 16 query heads, and one split of the row's valid slots.

- **Slots.** Lane i of a wave reads slot i and its page; a ballot counts the valid ones and a permute closes the gaps. No LDS,
  no second pass, and any mess among the slots costs nothing.
- **Blocks.** Wave w takes tokens 32 w .. 32 w + 31 of every block, {wave_bytes:,} bytes, by LDS-DMA into its own ring of LDS
  buffers. Waves share nothing until the end: there is no barrier in the loop, only waits for a count of loads. With three
  buffers two blocks are on their way while one is computed.
- **Scores.** K as A and Q as B, MFMA 16x16x32. E2M1 times E4M3 is exact in f16, as in bf16, but only f16 has packed
  multiplications: a pair of K values costs one conversion and one multiplication, scales of a token sit in one register.
  Q is scaled by a power of two per head, so that f16 loses nothing that bf16 holds. The result lies as the second product
  needs it.
- **V.** Transposing LDS reads give 8 tokens of two dims to a lane. Scales are converted once per wave into LDS as f16, in the
  order in which the second product needs them, swizzled or linear alike; those behind the row's position become zero, since a
  page may hold NaN there.
- **Merge and combine.** The waves' sums meet in LDS; with several splits, rows in bf16 with the base-2 logarithm of their
  weight go to memory and the workgroup that draws the last ticket combines them.
- **XCDs.** With `num_xcds` X, requests are dealt to the XCDs in turn; all rows and splits of one stay in the L2 cache of one.
  It is used where a request has several query tokens. What it brings is not measured.

## Tickets

One counter for each (row, KV head), zero between launches: the last workgroup to arrive sets it back. A launch that is cut
short leaves some above zero, and rows would then be combined before their splits are complete, in every later launch. So the
plan notes when a launch begins and when its call has returned, and zeroes the counters before the next launch if one did not;
`HipPlan.recover()` does the same for whoever stops a launch by other means. Both are tested by stopping the emulated launch
between two tickets. Workgroups are emulated 1 to 256 at a time, in orders from lockstep to random, with stores that stay
invisible to others until their wave has waited for them: without the release fence before the ticket the emulation fails.

## Registers, LDS, instructions

`per block`: wave instructions for one more block of 128 tokens, all four waves, all query heads of a KV head. `fixed`: those of
a workgroup with one split and no block. A block has {block_bytes:,} bytes of K, V and scales per KV head; the cache bytes
requested are exactly those of the listed blocks.

{kernels}

## The benchmarks of task.yml

With the splits that the backend chooses, emulated with up to {requests} requests, counters scaled to the batch. `estimate`: the
busiest of HBM, matrix, vector and LDS pipes at peak rates, nothing waited for; a lower bound. `KV bytes`: requested over those
of the listed blocks. `roofline`: the problem's `min_bytes` at 8 TB/s.

{benchmarks}
"""


def kernel_costs(traits: Traits) -> tuple[float, float]:
    """Wave instructions of one more block, and those that a workgroup executes without one."""
    blocks, counts = (16, 32), []
    for topk in blocks:
        order = "swizzled" if traits.swizzled else "linear"
        data = reference.generate_input(1, 1, 64 * 128, topk, 3, vscales=order, device="cpu")
        counts.append(emulate(data, traits, 1, schedules=(Schedule.to_barrier(),), lds_fills=("nan",)).run.instructions)
    per_block = (counts[1] - counts[0]) / (blocks[1] - blocks[0])
    return per_block, counts[0] - per_block * blocks[0]


def table(header: str, rows: list[list[Any]]) -> str:
    lines = [f"| {header} |", "|" + "---|" * (header.count("|") + 1)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def kernel_table() -> str:
    rows = []
    for traits in HIP_TRAITS_OF_MODULE:
        r, (per_block, fixed) = decode_report(traits), kernel_costs(traits)
        name = f"{traits.buffers} buffers, {'swizzled' if traits.swizzled else 'linear'} V scales"
        resources = [r.vgprs + r.agprs, r.sgprs, r.vgpr_spills + r.sgpr_spills, r.scratch_bytes, r.lds_bytes]
        rows.append([name, *resources, r.waves_per_simd, f"{per_block:.0f}", f"{fixed:.0f}", r.code_bytes])
    header = "kernel | VGPRs | SGPRs | spills | scratch | LDS bytes | waves per SIMD | per block | fixed | code bytes"
    return table(header, rows)


def benchmark_table(results: dict[str, Emulation]) -> str:
    rows = []
    for spec in TASK["benchmarks"]:
        name = benchmark_name(spec)
        result, case = results[name], task_case(name, spec)
        factor = spec["batchsize"] / case.spec["batchsize"]
        bound = estimate(scaled(result.run.counters, factor))
        roofline_us = reference.min_bytes(spec) / PEAK_BYTES_PER_NS / 1000
        cells = [name.removeprefix("benchmark "), case.num_kv_splits, case.num_xcds]
        cells += [f"{result.run.instructions * factor / 1e6:.2f} M", f"{bound.lower_bound_ns / 1000:.2f}", bound.bound]
        rows.append([*cells, f"{roofline_us:.2f}", f"{result.kv_bytes_ratio:.3f}", f"{result.rel_l2_worst:.4f}"])
    header = "batch x kv, topk, heads | splits | XCDs | instructions | estimate us | bound by | roofline us | KV bytes"
    return table(f"{header} | worst relative L2", rows)


def write_page(results: dict[str, Emulation], runs: int, wrong: list[str]) -> None:
    text = PAGE_TEXT.format(
        summary=summary(results, runs, wrong),
        wave_bytes=HEAD_BYTES // 4,
        block_bytes=HEAD_BYTES,
        kernels=kernel_table(),
        requests=EMULATED_REQUESTS,
        benchmarks=benchmark_table(results),
    )
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE.name}")
