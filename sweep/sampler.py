"""What to try next: Optuna's TPE over a backend and its parameters, moved to the nearest valid setting not yet tried.

The sampler's own study lives in memory and is rebuilt from the records: only finished trials are worth storing.
"""

from __future__ import annotations

import logging
import random
import warnings
from collections.abc import Iterable

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from sweep.record import Record
from sweep.space import Grid, Space, is_ordered
from sweep.variant import Variant

STARTUP_TRIALS = 12  # random ones before the model is asked
BACKEND = "backend"


class Proposer:
    """Proposes settings of one space. The same seed and records give the same proposals."""

    def __init__(self, space: Space, seed: int):
        optuna.logging.set_verbosity(logging.ERROR)
        self._space, self._random = space, random.Random(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # constant_liar is called experimental
            sampler = optuna.samplers.TPESampler(n_startup_trials=STARTUP_TRIALS, constant_liar=True, seed=seed)
        self._study = optuna.create_study(sampler=sampler)

    def learn(self, record: Record) -> None:
        """Take a finished trial into account; wrong and failed ones, and settings of another space, say nothing."""
        grid = self._space.grids.get(record.variant.backend)
        point = grid.point(record.variant.params) if grid else None
        if grid is None or point is None or record.median_ns is None:
            return
        distributions: dict[str, BaseDistribution] = {_key(grid, name): _distribution(grid, name) for name in grid.values}
        params: dict[str, int | str] = dict(zip(distributions, point, strict=True))
        if len(self._space.grids) > 1:
            params[BACKEND], distributions[BACKEND] = grid.backend, CategoricalDistribution(list(self._space.grids))
        self._study.add_trial(create_trial(value=record.median_ns, params=params, distributions=distributions))

    def propose(self, count: int, tried: Iterable[Variant]) -> list[Variant]:
        """Up to `count` settings not yet tried; fewer once the space is exhausted."""
        taken, found = set(tried), []
        asked = [self._study.ask() for _ in range(count)]
        for trial in asked:
            variant = self._suggested(trial, taken)
            if variant is None:
                break
            taken.add(variant)
            found.append(variant)
        for trial in asked:  # what is learned comes back as a record
            self._study.tell(trial, state=TrialState.FAIL)
        return found

    def _suggested(self, trial: optuna.Trial, taken: set[Variant]) -> Variant | None:
        grids = list(self._space.grids.values())
        names = [grid.backend for grid in grids]
        chosen = names.index(trial.suggest_categorical(BACKEND, names)) if len(names) > 1 else 0
        first, others = grids[chosen], grids[:chosen] + grids[chosen + 1 :]
        point = [_suggest(trial, first, name) for name in first.values]
        self._random.shuffle(others)
        found = first.nearest(point, taken)
        for grid in others:
            found = found or grid.nearest(grid.points[self._random.randrange(len(grid))], taken)
        return found


def _key(grid: Grid, name: str) -> str:
    return f"{grid.backend}.{name}"


def _distribution(grid: Grid, name: str) -> IntDistribution | CategoricalDistribution:
    """Over the indices of a parameter's values."""
    last = len(grid.values[name]) - 1
    return IntDistribution(0, last) if is_ordered(grid.values[name]) else CategoricalDistribution(list(range(last + 1)))


def _suggest(trial: optuna.Trial, grid: Grid, name: str) -> int:
    distribution = _distribution(grid, name)
    if isinstance(distribution, IntDistribution):
        return trial.suggest_int(_key(grid, name), distribution.low, distribution.high)
    return int(trial.suggest_categorical(_key(grid, name), distribution.choices))  # type: ignore[arg-type]
