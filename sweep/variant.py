"""What is tuned and measured: a case's shape, one setting of one backend, the measurements of it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from popcorn.cases import Case
from sweep.turns import order_of_turn

Scalar = bool | int | float | str


class Shape(NamedTuple):
    """What dispatch looks up; q_len and kv_len are the longest of a batch."""

    batch: int
    q_len: int
    kv_len: int
    heads: int

    def __str__(self) -> str:
        return "x".join(map(str, self))


@dataclass(frozen=True)
class Target:
    """One entry to tune: a shape, and the case that it is measured on."""

    shape: Shape
    case: Case

    def __str__(self) -> str:
        return str(self.shape)


@dataclass(frozen=True, eq=False)
class Variant:
    """One backend with one setting of its parameters. Equal settings are equal variants, whatever their order."""

    backend: str
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The same text for equal variants."""
        return json.dumps([self.backend, self.params], sort_keys=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Variant) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return " ".join([self.backend, *(f"{name}={_plain(value)}" for name, value in self.params.items())])

    def within(self, other: Variant | None) -> bool:
        """Whether `other` is this variant, its remaining parameters being the backend's defaults."""
        return other is not None and self.backend == other.backend and self.params.items() <= other.params.items()


def variant_from(data: Mapping[str, Any]) -> Variant:
    """The variant of a table entry or of what a submission says about itself."""
    return Variant(str(data["backend"]), dict(data["params"]))


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Ask:
    """Measure these variants of one case in turn, `samples` turns; None: whatever the dispatch table says.

    `tag` names the step of the search: a resumed search asks for the same step under the same name.
    """

    target: Target
    variants: tuple[Variant | None, ...]
    samples: int
    tag: str = ""

    def order(self, turn: int) -> tuple[int, ...]:
        """The places of the variants in the order of a turn; every executor keeps to it."""
        return order_of_turn(len(self.variants), turn, zlib.crc32(self.tag.encode()))


@dataclass(frozen=True)
class Outcome:
    """What came of one variant of an Ask: samples, or why there are none."""

    samples_ns: tuple[int, ...] = ()
    status: str = "ok"  # ok, wrong (a verdict fails), failed (no output), unavailable (the backend is not there)
    message: str = ""
    described: Variant | None = None  # what the submission says it used

    @property
    def ok(self) -> bool:
        return self.status == "ok"


@dataclass(frozen=True)
class Machine:
    """What variants are measured on."""

    name: str
    arch: str
    kind: str  # cpu, cuda, hip
    driver: str | None = None
    torch: str | None = None

    @property
    def labels(self) -> list[str]:
        """What dispatch.yml may call it, most specific first: words of its name, then its architecture."""
        return ["cpu"] if self.kind == "cpu" else [*self.name.split(), self.arch]
