"""docs/mi355x.md: what is known of the MI355X submission without the card. Written by scripts/emulate.py --docs."""

from __future__ import annotations

import dataclasses
import resource
import subprocess
import time
from datetime import date
from pathlib import Path
from typing import Any

from gfx950 import compile_hip
from gfx950.emulator import Counters, Estimate, Schedule, estimate
from gfx950.emulator.executor import BufferTraffic
from kernels.dispatch import SELECTION
from kernels.hip_backend import Traits, device_source, tuned_traits
from kernels.hip_module import HIP_ARCH
from kernels.layout import Shape
from reference import bytes_by_format, generate_input
from scripts.emulate import EMULATED_SEQUENCES, OFFICIAL_SHAPES, VARIANTS, hip_entry
from scripts.hip_emulation import SIGNATURE, Emulation, decode_report, emulate

PAGE = Path(__file__).resolve().parent.parent / "docs" / "mi355x.md"
PEAK_BYTES_PER_NS = 8000  # MI355X data sheet

HEAD = """\
# The submission on an MI355X

<!-- Written by `python scripts/emulate.py --docs`. -->

**No MI355X was available.** Nothing on this page was measured on one:

- **emulated**: every instantiation of the HIP kernels that `configs/dispatch.yml` can reach, and the variants, as gfx950
  machine code, under every wave schedule and LDS fill of the emulator, against fp64 results with the strict bounds of
  `reference.py`. Times derived from it are lower bounds: what one resource alone would need at its peak;
- **compile-checked only**: the host launcher (against the HIP headers of the triton wheel) and its binding (against torch's);
- **tested against a stand-in only**: the calls into AITER. The stand-in has AITER's signatures and executes its paged,
  scheduled semantics in torch;
- **not at all**: torch's inline loader on ROCm, launch overheads, caches, HBM, clocks.

On a machine with the card, this runs everything for real and prints what to report back:

    python scripts/on_mi355x.py
"""


def scaled(counters: Counters, factor: float) -> Counters:
    """Counters of `factor` times as many sequences."""

    def grown(numbers: dict[str, int]) -> dict[str, int]:
        return {name: round(value * factor) for name, value in numbers.items()}

    def traffic(one: BufferTraffic) -> BufferTraffic:
        values = (one.requested_load, one.requested_store, one.unique_load, one.unique_store)
        return BufferTraffic(one.name, *(round(value * factor) for value in values))

    names = ("lds_read_bytes", "lds_write_bytes", "lds_cycles", "lds_conflict_cycles", "barriers", "workgroups")
    return dataclasses.replace(
        counters,
        by_class=grown(counters.by_class),
        cycles=grown(counters.cycles),
        buffers={name: traffic(one) for name, one in counters.buffers.items()},
        **{name: round(getattr(counters, name) * factor) for name in names},
    )


def full_estimate(shape: Shape, result: Emulation, emulated: int) -> Estimate:
    return estimate(scaled(result.run.counters, shape.batch / emulated))


def roofline_us(shape: Shape, seed: int, kv_format: str) -> float:
    spec = {"batchsize": shape.batch, "qseqlen": 1, "kvseqlen": shape.kv_len, "seed": seed}
    return bytes_by_format(spec)[kv_format] / PEAK_BYTES_PER_NS / 1000


def describe(traits: Traits) -> str:
    """The fields that differ from the plainest kernel, in words."""
    flags = [
        name for name in ("paged", "fp8_pv", "direct_cvt", "preload_v", "setprio", "last_arriver") if getattr(traits, name)
    ]
    rows = f"{16 * traits.row_blocks} rows"
    return ", ".join([traits.format, rows, f"tile {traits.tile}", f"{traits.buffers} buffers", *flags])


def chosen(shape: Shape) -> str:
    """What serves the shape where both AITER and hipcc are installed."""
    entry = SELECTION.tuned_entry(shape, [HIP_ARCH], ["hip", "aiter"])
    return "-" if entry is None else entry["backend"]


def shape_rows(results: dict[str, Emulation], emulated: int) -> list[str]:
    rows = [
        "| batch x kv | first choice | HIP kernel | splits | instructions | estimate us | bound by | roofline us | KV bytes |"
    ]
    rows += ["|---|---|---|---|---|---|---|---|---|"]
    for shape, seed in OFFICIAL_SHAPES.items():
        result, (traits, splits) = results[f"official {shape.batch}x{shape.kv_len}"], hip_entry(shape)
        bound = full_estimate(shape, result, min(shape.batch, emulated))
        instructions = result.run.instructions / min(shape.batch, emulated) * shape.batch
        cells = [f"{shape.batch} x {shape.kv_len}", chosen(shape), describe(traits), splits, f"{instructions / 1e6:.2f} M"]
        cells += [f"{bound.lower_bound_ns / 1000:.2f}", bound.bound, f"{roofline_us(shape, seed, traits.format):.2f}"]
        rows.append("| " + " | ".join(map(str, [*cells, f"{result.kv_bytes_ratio:.3f}"])) + " |")
    return rows


def kernel_rows(per_tile: dict[Traits, float]) -> list[str]:
    rows = ["| kernel | VGPRs | SGPRs | spills | scratch | LDS bytes | waves per SIMD | instructions per tile | code bytes |"]
    rows += ["|---|---|---|---|---|---|---|---|---|"]
    for traits, count in per_tile.items():
        r = decode_report(traits)
        cells = [describe(traits), r.vgprs + r.agprs, r.sgprs, r.vgpr_spills, r.scratch_bytes, r.lds_bytes, r.waves_per_simd]
        rows.append("| " + " | ".join(map(str, [*cells, f"{count:.0f}", r.code_bytes])) + " |")
    return rows


def instructions_per_tile(traits: Traits) -> float:
    """Of one more tile of 32 tokens in a long sequence: four waves, all query rows of a workgroup."""
    runs = []
    for tokens in (1024, 2048):
        data = generate_input(1, 1, tokens, 3, numheads=16 * traits.row_blocks, device="cpu")
        options = {"page_size": 64, "schedules": (Schedule.to_barrier(),), "lds_fills": ("nan",)}
        runs.append(emulate(data, traits, 1, **options))
    short, long = runs
    return (long.run.instructions - short.run.instructions) / (long.tiles - short.tiles)


def device_compile_s() -> float:
    """CPU seconds for the device code of the whole module that a submission compiles, on this machine's clang."""
    instances = [
        f"template __global__ void mla_decode<Traits{{{each.initializer()}}}>({SIGNATURE});" for each in tuned_traits()
    ]
    started = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    compile_hip(device_source() + "\n".join(instances) + f"\n// {time.time_ns()}\n", flags=[f"-DUNCACHED={time.time_ns()}"])
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - started


BODY = """\
{summary}

## The official shapes

`first choice`: the backend that serves the shape where both are installed; without AITER the HIP kernel beside it does.
Emulated with the full KV length and up to {sequences} sequences, counters scaled to the batch. `estimate`: the busiest of HBM,
matrix, vector and LDS pipes at peak rates, nothing waited for. `roofline`: KV in the kernel's format, q and output at 8 TB/s.
`KV bytes`: requested over needed.

{shapes}

## The kernels

`instructions per tile`: wave instructions that one more tile of 32 tokens takes, all four waves and all query rows of a
workgroup. The tuned competition entry, compiled by the same clang, takes 1257 to 1611 (fp8, 16 rows) and 4731 (mxfp4);
AITER's production fp8 object takes 687. The first {reachable} are those that dispatch reaches. They are compiled together:
{compile_s:.0f} s of CPU time for the device here (clang-22).

{kernels}

If `hipcc` or `ninja` is missing, the HIP backend says so and AITER, Triton or torch takes its place.
"""


def summary(results: dict[str, Any], runs: int, wrong: list[str]) -> str:
    """One line: how many cases, what came of them, when and at which commit."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=PAGE.parent)
    worst = max(result.rel_l2_worst for result in results.values())
    right = f"all right, no finding; worst relative L2 of a row {worst:.4f}"
    verdict = f"**WRONG: {', '.join(wrong)}**" if wrong else right
    return f"{len(results)} cases, {runs} runs: {verdict}. {date.today()}, commit {commit.stdout.strip()}."


def write_page(results: dict[str, Emulation], runs: int, wrong: list[str]) -> None:
    per_tile = {traits: instructions_per_tile(traits) for traits in dict.fromkeys([*tuned_traits(), *VARIANTS.values()])}
    body = BODY.format(
        summary=summary(results, runs, wrong),
        sequences=EMULATED_SEQUENCES,
        shapes="\n".join(shape_rows(results, EMULATED_SEQUENCES)),
        reachable=len(tuned_traits()),
        compile_s=device_compile_s(),
        kernels="\n".join(kernel_rows(per_tile)),
    )
    PAGE.write_text(f"{HEAD}\n{body}", encoding="utf-8")
    print(f"wrote {PAGE.name}")
