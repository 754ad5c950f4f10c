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
LABEL = "ESTIMATE by the emulator's counters: no card was involved, real times are longer and may rank otherwise"


@dataclass(frozen=True)
class Ranked:
    """A setting and the least time that its busiest resource needs."""

    variant: Variant
    lower_bound_ns: float
    bound: str


def estimate_all(setup: Setup, out: Callable[[str], None] = print) -> dict[Shape, list[Ranked]]:
    """Rank `preset.trials` settings of the HIP kernels for every shape; screened ones are left out.

    Raises UsageError where LLVM's gfx950 tools or the backend's space are missing.
    """
    if not toolchain_works():
        raise UsageError("--estimate: LLVM's gfx950 tools are missing; run `make toolchain`")
    out(LABEL)
    deadline, found = Deadline(setup.preset.minutes), {}
    for number, (target, space) in enumerate(zip(setup.targets, setup.spaces(), strict=True)):
        found[target.shape] = rank(target.shape, _sample(space, setup.preset.trials), deadline)
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


def _sample(space: Space, count: int) -> list[Variant]:
    """Settings of the HIP backend, drawn evenly over the space, always the same ones."""
    if HIP not in space.grids:
        raise UsageError(f"--estimate ranks the {HIP} backend; the space has {', '.join(space.grids)}")
    grid = space.grids[HIP]
    rows = random.Random(0).sample(range(len(grid)), min(count, len(grid)))
    return [grid.variant(grid.points[row].tolist()) for row in rows]


def _lines(shape: Shape, ranked: Sequence[Ranked]) -> list[str]:
    lines = [f"{shape}: {len(ranked)} settings compute right and pass the screen"]
    return lines + [f"  at least {one.lower_bound_ns / 1e3:8.2f} us ({one.bound:<9})  {one.variant}" for one in ranked[:SHOWN]]
