#!/usr/bin/env python3
"""Run the HIP kernels of submission.py in the gfx950 emulator: every instantiation that dispatch can reach, and the variants.

python scripts/emulate.py                  all cases, every wave schedule and LDS fill; exit 1 if one is wrong
python scripts/emulate.py --only official  the cases whose names contain a text
python scripts/emulate.py --docs           ... and write docs/mi355x.md (all cases)
python scripts/emulate.py --list           the names of the cases
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import reference  # noqa: E402
from kernels.dispatch import SELECTION  # noqa: E402
from kernels.hip_backend import UNTUNED_TRAITS, Traits, traits_of, tuned_traits  # noqa: E402
from kernels.hip_module import HIP_ARCH  # noqa: E402
from kernels.layout import Shape  # noqa: E402
from scripts.emulation_runs import emulate_cases  # noqa: E402
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

    def compile(self) -> None:
        compile_traits(self.traits)

    def run(self) -> Emulation:
        data = reference.generate_input(**self.spec, device="cpu")
        return emulate(data, self.traits, self.num_kv_splits, page_size=self.page_size, **self.options)


def hip_entry(shape: Shape) -> tuple[Traits, int]:
    """What dispatch.yml gives a shape if the HIP backend serves it."""
    entry = SELECTION.tuned_entry(shape, [HIP_ARCH], ["hip"])
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


def main(argv: list[str] | None = None) -> int:
    from scripts.mi355x_page import write_page

    return emulate_cases(__doc__ or "", all_cases(), write_page, argv)


if __name__ == "__main__":
    sys.exit(main())
