"""The variants of one shape: every combination of values that meets the constraints."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sweep.config import BackendSpace, Preset
from sweep.constraints import Constraint
from sweep.errors import SpaceError
from sweep.variant import Scalar, Shape, Variant

MAX_COMBINATIONS = 2_000_000


class Grid:
    """One backend's valid settings for one shape; a point holds the index of each parameter's value.

    Raises SpaceError if there are more combinations than can be enumerated.
    """

    def __init__(self, backend: BackendSpace, values: Mapping[str, Sequence[Scalar]], shape: Shape):
        self.backend, self.values = backend.name, {name: list(choices) for name, choices in values.items()}
        self._constraints = backend.constraints
        self._shape_values = {**shape._asdict(), "rows": shape.q_len * shape.heads}
        total = int(np.prod([len(choices) for choices in self.values.values()], dtype=np.int64))
        if total > MAX_COMBINATIONS:
            raise SpaceError(f"backend {self.backend}: {total:,} combinations; at most {MAX_COMBINATIONS:,} are enumerated")
        valid = self._valid()
        self.points = np.array(valid, dtype=np.int32).reshape(len(valid), len(self.values))  # [valid points, parameters]
        self._rows = {point: row for row, point in enumerate(valid)}

    def __len__(self) -> int:
        return len(self.points)

    def variant(self, point: Sequence[int]) -> Variant:
        """The setting that a point stands for."""
        chosen = zip(self.values.items(), point, strict=True)
        return Variant(self.backend, {name: choices[index] for (name, choices), index in chosen})

    def point(self, params: Mapping[str, Any]) -> tuple[int, ...] | None:
        """The point of a setting, its other parameters ignored; None if the grid lacks it."""
        if any(params.get(name) not in choices for name, choices in self.values.items()):
            return None
        point = tuple(choices.index(params[name]) for name, choices in self.values.items())
        return point if point in self._rows else None

    def nearest(self, point: Sequence[int], taken: set[Variant]) -> Variant | None:
        """The valid setting nearest to any point that is not taken; None if all are.

        Distance is the sum over parameters of the steps between two numbers, over the number of steps; 1 for other values.
        """
        order = np.argsort(self._distances(point), kind="stable")
        return next((v for v in (self.variant(self.points[row].tolist()) for row in order) if v not in taken), None)

    def neighbours(self, variant: Variant) -> Iterator[Variant]:
        """Every valid setting that differs in one parameter: a number by one step, another value by any; if none is valid on a
        side, the nearest valid setting that has the changed value."""
        point = self.point(variant.params)
        if point is None:
            return
        for place, choices in enumerate(self.values.values()):
            steps = (point[place] - 1, point[place] + 1) if is_ordered(choices) else range(len(choices))
            for step in steps:
                if step != point[place] and 0 <= step < len(choices):
                    yield from self._moved(point, place, step)

    def complaint(self) -> str:
        """Why no setting is valid: what each constraint leaves alone."""
        total = int(np.prod([len(choices) for choices in self.values.values()]))
        counts = [f"`{constraint}` leaves {self._count(constraint)}" for constraint in self._constraints]
        return f"backend {self.backend}: of {total} combinations none meets every constraint; alone {', '.join(counts)}"

    def _moved(self, point: Sequence[int], place: int, step: int) -> Iterator[Variant]:
        wanted = (*point[:place], step, *point[place + 1 :])
        rows = np.flatnonzero(self.points[:, place] == step)
        if rows.size:
            yield self.variant(self.points[rows[self._distances(wanted)[rows].argmin()]].tolist())

    def _distances(self, point: Sequence[int]) -> np.ndarray:
        """Distances of all valid points from one [valid points]."""
        gaps = np.abs(self.points - np.asarray(point, dtype=np.int32))
        ordered = np.array([is_ordered(choices) for choices in self.values.values()], dtype=bool)
        steps = np.array([max(len(choices) - 1, 1) for choices in self.values.values()])
        return np.where(ordered, gaps / steps, gaps > 0).sum(axis=1)

    def _valid(self) -> list[tuple[int, ...]]:
        """Grown parameter by parameter: a constraint cuts as soon as all that it depends on is there."""
        points: list[tuple[int, ...]] = [()]
        known, waiting = set(self._shape_values), list(self._constraints)
        for name, choices in self.values.items():
            known.add(name)
            due = [constraint for constraint in waiting if constraint.names <= known]
            waiting = [constraint for constraint in waiting if constraint not in due]
            grown = ((*point, index) for point in points for index in range(len(choices)))
            points = [point for point in grown if self._meets(due, point)]
        return points

    def _meets(self, constraints: Sequence[Constraint], point: Sequence[int]) -> bool:
        values = self._values_at(point) if constraints else {}
        return all(constraint.holds(values) for constraint in constraints)

    def _count(self, constraint: Constraint) -> int:
        every = itertools.product(*map(range, map(len, self.values.values())))
        return sum(constraint.holds(self._values_at(point)) for point in every)

    def _values_at(self, point: Sequence[int]) -> dict[str, Any]:
        """The values of a point, which may end before the last parameter, and of the shape."""
        chosen = zip(self.values.items(), point, strict=False)
        return {name: choices[index] for (name, choices), index in chosen} | self._shape_values


def is_ordered(choices: Sequence[Scalar]) -> bool:
    """Whether the values are numbers in order, so that neighbours in the list are alike."""
    numbers = [value for value in choices if isinstance(value, int | float) and not isinstance(value, bool)]
    return len(numbers) == len(choices) and numbers == sorted(numbers)


class Space:
    """All backends' settings for one shape. Raises SpaceError if there is none, with what each constraint leaves."""

    def __init__(self, backends: Sequence[BackendSpace], preset: Preset, shape: Shape):
        self.shape = shape
        made = [Grid(backend, {**backend.params, **preset.only.get(backend.name, {})}, shape) for backend in backends]
        self.grids = {grid.backend: grid for grid in made if len(grid)}
        if not self.grids:
            raise SpaceError(f"shape {shape}: nothing to search: {'; '.join(grid.complaint() for grid in made)}")

    def __len__(self) -> int:
        return sum(map(len, self.grids.values()))

    def without(self, backends: set[str]) -> None:
        """Forget backends that turned out not to be installed. Raises SpaceError if none is left."""
        self.grids = {name: grid for name, grid in self.grids.items() if name not in backends}
        if not self.grids:
            raise SpaceError(f"shape {self.shape}: none of the backends {', '.join(sorted(backends))} can be used here")

    def part(self, belongs: Callable[[Grid], bool]) -> Space:
        """The settings of some backends, perhaps of none."""
        made = copy.copy(self)
        made.grids = {name: grid for name, grid in self.grids.items() if belongs(grid)}
        return made

    def __iter__(self) -> Iterator[Variant]:
        for grid in self.grids.values():
            yield from (grid.variant(point) for point in grid.points.tolist())

    def exact(self, variant: Variant | None) -> Variant | None:
        """The setting of this space that a variant is, apart from parameters that are not searched."""
        grid = self.grids.get(variant.backend) if variant else None
        point = grid.point(variant.params) if grid and variant else None
        return grid.variant(point) if grid and point is not None else None

    def neighbours(self, variant: Variant) -> list[Variant]:
        """Settings that differ in one parameter."""
        grid = self.grids.get(variant.backend)
        return list(dict.fromkeys(grid.neighbours(variant))) if grid else []
