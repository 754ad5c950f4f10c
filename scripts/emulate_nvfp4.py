#!/usr/bin/env python3
"""Run the HIP kernels of problems/nvfp4_msa/submission.py in the gfx950 emulator.

python scripts/emulate_nvfp4.py                   all cases, every wave schedule and LDS fill; exit 1 if one is wrong
python scripts/emulate_nvfp4.py --only benchmark  the cases whose names contain a text
python scripts/emulate_nvfp4.py --docs            ... and write docs/nvfp4-msa-mi355x.md (all cases)
python scripts/emulate_nvfp4.py --list            the names of the cases
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kernels.nvfp4_msa.hip_backend import HIP_TRAITS_OF_MODULE, HipBackend, Traits  # noqa: E402
from kernels.nvfp4_msa.layout import Shape  # noqa: E402
from scripts.emulation_runs import emulate_cases  # noqa: E402
from scripts.nvfp4_emulation import Emulation, compile_traits, emulate, reference  # noqa: E402

TASK = yaml.safe_load((ROOT / "problems" / "nvfp4_msa" / "task.yml").read_text(encoding="utf-8"))
EMULATED_REQUESTS = 2  # of a benchmark: requests do not differ in what the kernel does with them
# KV heads, query heads of each, query tokens
HEADS = ((1, 16, 1), (4, 16, 1), (1, 8, 2), (2, 16, 1), (4, 4, 3))


@dataclass(frozen=True)
class Case:
    name: str
    traits: Traits
    num_kv_splits: int
    spec: dict[str, Any]  # of reference.generate_input
    num_xcds: int = 1

    @property
    def work(self) -> int:
        """Proportional to the time it takes, roughly."""
        rows = self.spec["batchsize"] * self.spec["qseqlen"] * self.spec.get("numkvheads", 1)
        return rows * (1100 * self.spec["topk"] + 4000 * self.num_kv_splits)

    def compile(self) -> None:
        compile_traits(self.traits)

    def run(self) -> Emulation:
        data = reference.generate_input(**self.spec, device="cpu")
        return emulate(data, self.traits, self.num_kv_splits, num_xcds=self.num_xcds)


def shape_of_spec(spec: dict[str, Any]) -> Shape:
    heads = spec.get("numkvheads", 1), spec.get("groupsize", 16)
    return Shape(spec["batchsize"], spec["qseqlen"], spec["kvseqlen"], spec["topk"], *heads)


def task_case(name: str, spec: dict[str, Any]) -> Case:
    """A case of task.yml with the backend's own choice for its whole batch, emulated on a few requests."""
    params = HipBackend().default_params(shape_of_spec(spec), torch.device("cpu"))
    traits = Traits(params["buffers"], params["waves_per_simd"], spec.get("vscales") != "linear")
    few = spec | {"batchsize": min(spec["batchsize"], EMULATED_REQUESTS)}
    return Case(name, traits, params["num_kv_splits"], few, params["num_xcds"])


def benchmark_name(spec: dict[str, Any]) -> str:
    shape = shape_of_spec(spec)
    heads = f"{shape.num_kv_heads} x {shape.group_size} heads, {shape.q_len} tokens"
    return f"benchmark {shape.batch} x {shape.kv_len}, topk {shape.topk}, {heads}"


def task_cases() -> Iterable[Case]:
    for spec in TASK["tests"]:
        yield task_case(f"test {spec['seed']}", spec)
    for spec in TASK["benchmarks"]:
        yield task_case(benchmark_name(spec), spec)


def corner_cases(traits: Traits) -> Iterable[Case]:
    """Ragged lengths, messy slots, all head counts, every distribution, all with splits and without, on XCDs and not."""
    label = f"{traits.buffers} buffers, {'swizzled' if traits.swizzled else 'linear'}"
    own = {"vscales": "swizzled" if traits.swizzled else "linear", "seed": 6}
    for kv_heads, group, q_len in HEADS:
        sizes = {"batchsize": 3, "qseqlen": q_len, "kvseqlen": 1100, "topk": 7, "numkvheads": kv_heads, "groupsize": group}
        for splits, xcds, slots in ((1, 1, "valid"), (3, 8, "messy"), (7, 2, "messy")):
            spec = {**sizes, **own, "kvmin": 0, "padrows": 2, "slots": slots}
            yield Case(f"{label}: {kv_heads} x {group} heads, {q_len} tokens, {splits} splits", traits, splits, spec, xcds)
    for dist in reference.DISTRIBUTIONS:
        spec = {"batchsize": 2, "qseqlen": 2, "kvseqlen": 900, "topk": 5, "kvmin": 1, "groupsize": 8, "dist": dist, **own}
        yield Case(f"{label}: {dist}", traits, 2, spec)
    for topk, splits in ((1, 1), (64, 1), (64, 64), (64, 9)):
        spec = {"batchsize": 1, "qseqlen": 1, "kvseqlen": 70 * 128 - 5, "topk": topk, "slots": "messy", **own}
        yield Case(f"{label}: {topk} slots, {splits} splits", traits, splits, spec)


def all_cases() -> list[Case]:
    return [*task_cases(), *(case for traits in HIP_TRAITS_OF_MODULE for case in corner_cases(traits))]


def main(argv: list[str] | None = None) -> int:
    from scripts.nvfp4_mi355x_page import write_page

    return emulate_cases(__doc__ or "", all_cases(), write_page, argv)


if __name__ == "__main__":
    sys.exit(main())
