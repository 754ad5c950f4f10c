"""Bad settings on purpose: the beginning of the test that a sweep finds back."""

from __future__ import annotations

import random

from sweep.space import Space
from sweep.variant import Variant

SEED = 1


def spoiled(space: Space, entry: Variant | None) -> Variant:
    """A valid setting far from the entry: of 64 drawn at random the one that differs in most parameters, always the same."""
    backend = entry.backend if entry and entry.backend in space.grids else next(iter(space.grids))
    grid = space.grids[backend]
    drawn = random.Random(f"{SEED}{space.shape}").choices(range(len(grid)), k=64)
    candidates = [grid.variant(grid.points[row].tolist()) for row in drawn]
    return max(candidates, key=lambda variant: _differences(variant, entry))


def _differences(variant: Variant, entry: Variant | None) -> int:
    return sum(entry is not None and entry.params.get(name) != value for name, value in variant.params.items())
