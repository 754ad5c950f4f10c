"""Ranking without the card: gfx950 settings by the emulator's counters. ESTIMATES: nothing is measured, nothing changes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sweep.errors import UsageError
from sweep.report_text import clock
from sweep.run import Deadline
from sweep.screen import HIP, toolchain_works
from sweep.setup import Setup
from sweep.space import Space
from sweep.variant import Shape, Variant

SHOWN = 8
SPLITS, SPLITS_TRIED = "num_kv_splits", 4
LABEL = "ESTIMATE by the emulator's counters: no card was involved, real times are longer and may rank otherwise"


@dataclass(frozen=True)
class Ranked:
    """A setting and the least time that its busiest resource needs."""

    variant: Variant
    lower_bound_ns: float
    bound: str


def estimate_all(setup: Setup, out: Callable[[str], None] = print) -> dict[Shape, list[Ranked]]:
    """Rank `preset.trials` settings of the HIP kernels for every shape; screened and wrong ones are left out.

    Raises UsageError where LLVM's gfx950 tools, the packages of the extra `gfx950` or the backend's space are missing.
    """
    if not toolchain_works():
        raise UsageError("--estimate: gfx950 tools are missing; run `make toolchain`, `.venv/bin/pip install -e '.[gfx950]'`")
    out(LABEL)
    deadline, found = Deadline(setup.preset.minutes), {}
    for number, (target, space) in enumerate(zip(setup.targets, setup.spaces(), strict=True)):
        variants = sample_of(space, setup.preset.trials)
        out(f"{target.shape}: {len(variants)} settings")
        found[target.shape] = rank(target.shape, variants, deadline)
        out("\n".join(_lines(target.shape, found[target.shape])))
        left = deadline.left_s((number + 1) / len(setup.targets))
        out(f"  {number + 1} of {len(setup.targets)} shapes, about {clock(left or 0)} left")
    out(LABEL)
    return found


def rank(shape: Shape, variants: Sequence[Variant], deadline: Deadline) -> list[Ranked]:
    """Those that pass the screen and compute right, by their lower bound."""
    from scripts.hip_screen import estimate_of, fault_of

    ranked = []
    for variant in variants:
        if deadline.is_late():
            break
        found = None if fault_of(variant.params) else estimate_of(shape, variant.params)
        if found is not None and not isinstance(found, str):
            ranked.append(Ranked(variant, found.lower_bound_ns, found.bound))
    return sorted(ranked, key=lambda one: one.lower_bound_ns)


def sample_of(space: Space, count: int) -> list[Variant]:
    """Up to `count` settings of the HIP backend, always the same: kernels drawn at random, each with several split counts,
    since a kernel is compiled once for all of them."""
    if HIP not in space.grids:
        raise UsageError(f"--estimate ranks the {HIP} backend; the space has {', '.join(space.grids)}")
    kernels: dict[str, list[Variant]] = {}
    for variant in space:
        if variant.backend == HIP:
            kernel = {name: value for name, value in variant.params.items() if name != SPLITS}
            kernels.setdefault(Variant(HIP, kernel).key, []).append(variant)
    drawn = random.Random(0).sample(sorted(kernels), min(max(count // SPLITS_TRIED, 1), len(kernels)))
    return [variant for key in drawn for variant in _spread(kernels[key])]


def _spread(variants: list[Variant]) -> list[Variant]:
    """A few split counts, evenly over those that there are."""
    step = max(len(variants) / SPLITS_TRIED, 1)
    return [variants[int(number * step)] for number in range(min(SPLITS_TRIED, len(variants)))]


def _lines(shape: Shape, ranked: Sequence[Ranked]) -> list[str]:
    lines = [f"{shape}: {len(ranked)} settings compute right and pass the screen"]
    return lines + [f"  at least {one.lower_bound_ns / 1e3:8.2f} us ({one.bound:<9})  {one.variant}" for one in ranked[:SHOWN]]
