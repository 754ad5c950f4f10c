"""configs/sweep.yml: presets, and per backend the parameters with their values and constraints. docs/sweep.md describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from harness.compare import MIN_SAMPLES
from sweep.constraints import Constraint
from sweep.errors import SpaceError
from sweep.variant import Scalar, Shape

SHAPE_NAMES = (*Shape._fields, "rows")  # rows: query rows that share one sequence's KV
DEVICE_KINDS = ("cpu", "cuda", "hip")


@dataclass(frozen=True)
class Preset:
    """How much is measured. Counts are per shape; `minutes` is for everything, without it there is no limit."""

    name: str
    trials: int  # candidates that the sampler proposes
    batch: int  # candidates that race against each other
    race_samples: tuple[int, ...]  # samples that each step of a race adds
    refine_rounds: int  # rounds over all neighbours of the best
    finalists: int
    final_samples: int
    duel_samples: int
    final_rounds: int = 3  # at most, of `final_samples` each
    minutes: float | None = None
    exhaustive: bool = False  # every combination instead of the sampler's proposals
    whole: int = 0  # a backend with at most so many settings is tried whole, beside the sampler's proposals
    only: dict[str, dict[str, list[Scalar]]] = field(default_factory=dict)  # backend -> parameter -> values

    def __post_init__(self) -> None:
        counts = (self.trials, self.batch, self.finalists, self.final_samples, self.final_rounds, *self.race_samples)
        if min(counts) < 1 or not self.race_samples or min(self.refine_rounds, self.whole) < 0 or (self.minutes or 1) <= 0:
            raise SpaceError(f"preset {self.name}: counts and minutes must be positive, race_samples a list of counts")
        if self.duel_samples < MIN_SAMPLES:
            limit = f"a ratio has no interval below {MIN_SAMPLES}"
            raise SpaceError(f"preset {self.name}: duel_samples is {self.duel_samples}; {limit}")


@dataclass(frozen=True)
class BackendSpace:
    """What can be set of one backend."""

    name: str
    devices: tuple[str, ...]  # kinds (cpu, cuda, hip) or architectures (sm_90, gfx950) that it exists for
    params: dict[str, list[Scalar]]
    constraints: tuple[Constraint, ...] = ()
    compiles: bool = False  # a new setting may need a compiler: prepared in parallel before it is timed

    def serves(self, kind: str, arch: str) -> bool:
        """Whether the backend exists for such a device at all; whether it is installed is another matter."""
        return kind in self.devices or arch in self.devices


@dataclass(frozen=True)
class SweepConfig:
    """The file."""

    presets: dict[str, Preset]
    backends: dict[str, BackendSpace]
    shape_keys: tuple[str, ...]  # the case keys of batch, q_len, kv_len and heads
    shape_defaults: dict[str, int]
    compile_case: dict[str, int]  # keys that make a case small without changing what is compiled for it

    def shape_of(self, spec: Mapping[str, Any]) -> Shape:
        """The shape that dispatch sees for a case. Raises SpaceError for a case without the keys."""
        values = {**self.shape_defaults, **spec}
        missing = [key for key in self.shape_keys if not isinstance(values.get(key), int)]
        if missing:
            raise SpaceError(f"case {dict(spec)}: has no number {', '.join(missing)}, which dispatch looks up")
        return Shape(*(values[key] for key in self.shape_keys))


def load_config(path: Path) -> SweepConfig:
    """Read configs/sweep.yml. Raises SpaceError naming the place."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpaceError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SpaceError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    top = _mapping(data, str(path), ("shape", "compile_case", "presets", "backends"))
    shape = _mapping(top.get("shape"), "shape", ("keys", "defaults"))
    backends = {name: _backend(name, entry) for name, entry in _mapping(top.get("backends"), "backends").items()}
    presets = {name: _preset(name, entry) for name, entry in _mapping(top.get("presets"), "presets").items()}
    for preset in presets.values():
        _check_only(preset, backends)
    keys = tuple(shape.get("keys", ()))
    if len(keys) != len(Shape._fields):
        raise SpaceError(f"shape.keys: {list(keys)}; the case keys of {', '.join(Shape._fields)} belong here")
    return SweepConfig(presets, backends, keys, dict(shape.get("defaults", {})), dict(top.get("compile_case", {})))


def _preset(name: str, entry: Any) -> Preset:
    known = tuple(Preset.__dataclass_fields__)[1:]
    values = _mapping(entry, f"preset {name}", known)
    try:
        return Preset(name, **{**values, "race_samples": tuple(values.get("race_samples", ()))})
    except TypeError as error:
        raise SpaceError(f"preset {name}: {str(error).partition(') ')[2] or error}; docs/sweep.md lists the keys") from None


def _backend(name: str, entry: Any) -> BackendSpace:
    where = f"backend {name}"
    values = _mapping(entry, where, ("devices", "params", "constraints", "compiles"))
    params = _mapping(values.get("params"), f"{where}: params")
    for parameter, choices in params.items():
        if parameter in SHAPE_NAMES:
            raise SpaceError(f"{where}: a parameter may not be called {parameter}, which names a part of the shape")
        if not isinstance(choices, list) or not choices or len(set(map(repr, choices))) < len(choices):
            raise SpaceError(f"{where}: {parameter}: {choices}; give a list of different values")
    names = (*params, *SHAPE_NAMES)
    constraints = tuple(Constraint(str(text), names, where) for text in values.get("constraints") or ())
    devices = tuple(values.get("devices") or ())
    if not devices:
        raise SpaceError(f"{where}: devices: say which exist for it: {', '.join(DEVICE_KINDS)}, or an architecture")
    return BackendSpace(name, devices, params, constraints, bool(values.get("compiles", False)))


def _check_only(preset: Preset, backends: Mapping[str, BackendSpace]) -> None:
    for name, params in _mapping(preset.only, f"preset {preset.name}: only", tuple(backends)).items():
        for parameter, values in _mapping(params, f"preset {preset.name}: {name}", tuple(backends[name].params)).items():
            known = backends[name].params[parameter]
            if not isinstance(values, list) or not values or any(value not in known for value in values):
                raise SpaceError(f"preset {preset.name}: {name}: {parameter}: {values}; choose from {known}")


def _mapping(value: Any, where: str, known: tuple[str, ...] | None = None) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SpaceError(f"{where}: expected keys and values, not {type(value).__name__}")
    unknown = [key for key in value if not isinstance(key, str) or (known is not None and key not in known)]
    if unknown:
        raise SpaceError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(known or ())}")
    return value
