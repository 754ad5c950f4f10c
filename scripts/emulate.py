#!/usr/bin/env python3
"""Run the HIP kernels of submission.py in the gfx950 emulator: every instantiation that dispatch can reach, and the variants.

python scripts/emulate.py                  all cases, every wave schedule and LDS fill; exit 1 if one is wrong
python scripts/emulate.py --only official  the cases whose names contain a text
python scripts/emulate.py --docs           ... and write docs/mi355x.md (all cases)
python scripts/emulate.py --list           the names of the cases
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import reference  # noqa: E402
from kernels.dispatch import tuned_entry  # noqa: E402
from kernels.hip_backend import UNTUNED_TRAITS, Traits, traits_of, tuned_traits  # noqa: E402
from kernels.hip_module import HIP_ARCH  # noqa: E402
from kernels.layout import Shape  # noqa: E402
from scripts.hip_emulation import Emulation, compile_traits, emulate  # noqa: E402

OFFICIAL = [(4, 1024, 4217), (4, 8192, 4220), (32, 1024, 5412), (32, 8192, 5415), (64, 1024, 1357), (64, 8192, 1360)]
OFFICIAL += [(256, 1024, 9823), (256, 8192, 9826)]
OFFICIAL_SHAPES = {Shape(batch, 1, kv_len, 16): seed for batch, kv_len, seed in OFFICIAL}
EMULATED_SEQUENCES = 2  # of an official batch: sequences do not differ in what the kernels do with them

VARIANTS = {
    "one buffer, occupancy 4": Traits(buffers=1, waves_per_simd=4),
    "two buffers, occupancy 3": Traits(buffers=2, waves_per_simd=3),
    "three buffers, occupancy 2": Traits(buffers=3, waves_per_simd=2),
    "tile 64": Traits(tile=64, waves_per_simd=2),
    "fp8 PV": Traits(fp8_pv=True, tile=128, waves_per_simd=1),
    "DIRECT_CVT": Traits(direct_cvt=True),
    "PRELOAD_V": Traits(preload_v=True),
    "SETPRIO": Traits(setprio=True),
    "last arriver": Traits(last_arriver=True),
    "32 rows": Traits(row_blocks=2, waves_per_simd=2),
    "paged": Traits(paged=True),
    "paged, one buffer": Traits(paged=True, buffers=1),
    "mxfp4": Traits(format="mxfp4"),
    "mxfp4, 32 rows": Traits(format="mxfp4", row_blocks=2, waves_per_simd=2),
    "mxfp4, paged": Traits(format="mxfp4", paged=True),
    "bf16": Traits(format="bf16", waves_per_simd=2),
    "bf16, paged": Traits(format="bf16", paged=True, waves_per_simd=2),
}


@dataclass(frozen=True)
class Case:
    name: str
    traits: Traits
    num_kv_splits: int
    spec: dict[str, Any]  # of reference.generate_input
    page_size: int = 0
    options: dict[str, Any] = field(default_factory=dict)  # of emulate

    @property
    def work(self) -> int:
        """Proportional to the time it takes, roughly."""
        rows = self.spec["qseqlen"] * self.spec.get("numheads", 16)
        return self.spec["batchsize"] * (self.spec["kvseqlen"] + 600 * self.num_kv_splits) * -(-rows // 16)

    def run(self) -> Emulation:
        data = reference.generate_input(**self.spec, device="cpu")
        return emulate(data, self.traits, self.num_kv_splits, page_size=self.page_size, **self.options)


def hip_entry(shape: Shape) -> tuple[Traits, int]:
    """What dispatch.yml gives a shape if the HIP backend serves it."""
    entry = tuned_entry(shape, [HIP_ARCH], ["hip"])
    if entry is None:
        raise LookupError(f"configs/dispatch.yml has no hip entry for {HIP_ARCH} near {shape}; official shapes need one")
    return traits_of(entry["params"]), entry["params"]["num_kv_splits"]


def official_cases() -> Iterable[Case]:
    for shape, seed in OFFICIAL_SHAPES.items():
        spec = {"batchsize": min(shape.batch, EMULATED_SEQUENCES), "qseqlen": 1, "kvseqlen": shape.kv_len, "seed": seed}
        yield Case(f"official {shape.batch}x{shape.kv_len}", *hip_entry(shape), spec)


def corner_cases(label: str, traits: Traits) -> Iterable[Case]:
    """Ragged lengths with empty sequences, several tokens, 32 heads, every distribution, all with splits and without."""
    page = 16 if traits.paged else 0
    for q_len, heads, splits in ((1, 16, 3), (4, 16, 1), (3, 32, 5)):
        spec = {"batchsize": 3, "qseqlen": q_len, "kvseqlen": 300, "kvmin": 0, "seed": 6, "numheads": heads}
        yield Case(f"{label}: ragged, {q_len} tokens, {heads} heads", traits, splits, spec, page)
    for dist in reference.DISTRIBUTIONS:
        spec = {"batchsize": 2, "qseqlen": 2, "kvseqlen": 150, "kvmin": 30, "seed": 3, "dist": dist}
        yield Case(f"{label}: {dist}", traits, 2, spec, page)
    if traits.format == "mxfp4":
        spec = {"batchsize": 2, "qseqlen": 1, "kvseqlen": 100, "seed": 4, "scale_padding": True}
        yield Case(f"{label}: padded scales", traits, 2, spec, page)
    for size in (1, 2, 64) if traits.paged else ():
        spec = {"batchsize": 2, "qseqlen": 1, "kvseqlen": 200, "kvmin": 1, "seed": 5}
        yield Case(f"{label}: pages of {size}, shuffled", traits, 2, spec, size)


def all_cases() -> list[Case]:
    reachable = {f"dispatched {number}": traits for number, traits in enumerate(tuned_traits())}
    known = {traits: label for label, traits in reachable.items()}
    variants = {label: traits for label, traits in VARIANTS.items() if traits not in known}
    small = [case for label, traits in {**reachable, **variants}.items() for case in corner_cases(label, traits)]
    most = {"batchsize": 1, "qseqlen": 1, "kvseqlen": 4096, "seed": 7}
    small.append(Case("64 splits, second launch", UNTUNED_TRAITS[1], 64, most))
    small.append(Case("64 splits, last arriver", VARIANTS["last arriver"], 64, most))
    return [*official_cases(), *small]


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def run_cases(cases: list[Case]) -> dict[str, Emulation]:
    """Prints a line for each case as it ends, with the time left."""
    results, done, started = {}, 0, time.monotonic()
    total = sum(case.work for case in cases)
    print(f"{'case':<50} {'verdict':<7} {'rel. L2':>8} {'instructions':>13} {'per tile':>8}   time left")
    for case in cases:
        result = results[case.name] = case.run()
        done += case.work
        left = (time.monotonic() - started) / done * (total - done)
        verdict, count = result.verdict, result.run.instructions
        per_tile = f"{count / result.tiles:8.0f}" if result.tiles else f"{'-':>8}"
        word = "right" if verdict.ok else "WRONG"
        print(f"{case.name:<50} {word:<7} {result.rel_l2_worst:8.4f} {count:13,} {per_tile}   {clock(left)}", flush=True)
        if not verdict.ok:
            print("\n".join(f"    {line}" for line in str(verdict).splitlines()[:12]))
    return results


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose names contain TEXT")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--docs", action="store_true", help="write docs/mi355x.md; runs all cases")
    options = parser.parse_args(argv)
    cases = [case for case in all_cases() if options.docs or options.only in case.name]
    if not cases:
        parser.error(f"no case has {options.only!r} in its name; --list shows them")
    if options.list:
        print("\n".join(case.name for case in cases))
        return 0
    torch.set_num_threads(1)
    for traits in dict.fromkeys(case.traits for case in cases):
        compile_traits(traits)
    started = time.monotonic()
    results = run_cases(cases)
    wrong = [name for name, result in results.items() if not result.verdict.ok]
    runs = sum(len(result.verdict.runs) for result in results.values())
    print(f"{len(results)} cases, {runs} runs, {len(wrong)} wrong, {clock(time.monotonic() - started)}")
    if options.docs:
        from scripts.mi355x_page import write_page

        write_page(results, runs, wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
