"""A device whose times are known: an Executor over a formula with seeded noise, so that searches can be tested exactly."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from popcorn.cases import Case
from sweep.config import BackendSpace, Preset, SweepConfig
from sweep.constraints import Constraint
from sweep.search import ShapeSearch
from sweep.space import Space
from sweep.store import Store
from sweep.variant import Ask, Machine, Outcome, Shape, Target, Variant

MACHINE = Machine("Simulated GPU X1", "sim_1", "cuda", "1.0", "2.0")
SHAPES = (Shape(4, 1, 1024, 16), Shape(64, 1, 8192, 16))
NAMES = ("splits", "tile", "warps", "mode", "batch", "q_len", "kv_len", "heads", "rows")
SPACE = BackendSpace(
    "sim",
    ("cuda",),
    {"splits": [1, 2, 4, 8, 16, 32], "tile": [16, 32, 64, 128], "warps": [2, 4, 8], "mode": ["a", "b", "c"]},
    (Constraint("splits * tile <= kv_len", NAMES, "sim"), Constraint("mode != 'c' or warps > 2", NAMES, "sim")),
)
OTHER = BackendSpace("other", ("cuda",), {"size": [1, 2, 3, 4]})
PRESET = Preset("test", 18, 6, (4, 6), 3, 3, 15, 41)
CONFIG = SweepConfig({"test": PRESET}, {"sim": SPACE, "other": OTHER}, ("b", "q", "k", "h"), {}, {})
IDENTITY = {"kernels": "k1", "device": "X1"}


def target(shape: Shape) -> Target:
    """A target of a shape."""
    return Target(shape, Case.from_spec({"b": shape.batch, "q": shape.q_len, "k": shape.kv_len, "h": shape.heads}))


def true_ns(variant: Variant, shape: Shape) -> float:
    """The exact time: a bowl in the logarithms of the numbers, its lowest point depending on the shape."""
    if variant.backend == "other":
        return 90_000.0 + 1000 * variant.params["size"]
    params = variant.params
    wanted_splits = 16 if shape.batch < 32 else 4
    wanted = {"splits": wanted_splits, "tile": 64, "warps": 4}
    weights = {"splits": 0.25, "tile": 0.12, "warps": 0.06}
    bowl = 1 + sum(weight * abs(math.log2(params[name] / wanted[name])) for name, weight in weights.items())
    return 20_000 * bowl * {"a": 1.0, "b": 1.3, "c": 1.05}[params["mode"]]


def best_ns(shape: Shape) -> float:
    """The least exact time of the space."""
    return min(true_ns(variant, shape) for variant in Space([SPACE, OTHER], PRESET, shape))


class SimulatedExecutor:
    """Measures by `true_ns` with log-normal noise of relative size `noise`, shared by the turn in part, as drift is.

    `entries`: what the table says; `broken`: variants without a right result; `before`: called before every Ask; `carried`:
    the factor on a variant's time that the one measured before it leaves behind.
    """

    machine = MACHINE

    def __init__(
        self,
        entries: dict[Shape, Variant | None],
        seed: int = 0,
        noise: float = 0.01,
        broken: Callable[[Variant], str] = lambda variant: "ok",
        before: Callable[[], None] = lambda: None,
        carried: Callable[[Variant | None, Variant], float] = lambda earlier, variant: 1.0,
    ):
        self.entries, self.noise, self.broken, self.before = entries, noise, broken, before
        self.carried = carried
        self.random = random.Random(seed)
        self.asked: list[Ask] = []

    def run(self, asks: Sequence[Ask]) -> Iterator[tuple[int, list[Outcome]]]:
        for index, ask in enumerate(asks):
            self.before()
            self.asked.append(ask)
            yield index, self.measure(ask)

    def measure(self, ask: Ask) -> list[Outcome]:
        samples: list[list[int]] = [[] for _ in ask.variants]
        earlier = None
        for turn in range(ask.samples):
            drift = self.random.gauss(0, self.noise)
            for place in ask.order(turn):
                used = ask.variants[place] or self.entries[ask.target.shape]
                if used is not None:
                    noisy = true_ns(used, ask.target.shape) * math.exp(drift + self.random.gauss(0, self.noise))
                    samples[place].append(round(noisy * self.carried(earlier, used)))
                    earlier = used
        return [self.outcome(ask, place, samples[place]) for place in range(len(ask.variants))]

    def outcome(self, ask: Ask, place: int, samples: list[int]) -> Outcome:
        used = ask.variants[place] or self.entries[ask.target.shape]
        if used is None:
            return Outcome((), "failed", "the table says nothing")
        status = self.broken(used)
        if status != "ok":
            return Outcome((), status, f"{used} is {status}")
        return Outcome(tuple(samples), described=used)

    def close(self) -> None:
        pass


def store_in(folder: Path) -> Store:
    """A store in a file of a folder."""
    return Store(f"sqlite:///{folder / 'studies.sqlite'}", CONFIG)


def searches_in(store: Store, entries: dict[Shape, Variant | None], preset: Preset = PRESET, **more: Any) -> list[ShapeSearch]:
    """A search for every shape of `entries`."""
    found = []
    for shape, entry in entries.items():
        study = store.study(f"sim/X1/{shape}", IDENTITY)
        found.append(ShapeSearch(target(shape), Space([SPACE, OTHER], preset, shape), study, preset, entry, **more))
    return found


def worst(shape: Shape) -> Variant:
    """A spoiled entry: the slowest setting."""
    return max(Space([SPACE], PRESET, shape), key=lambda variant: true_ns(variant, shape))
