"""Case files: one case a line, `key: value; key: value`.

The grammar is the official evaluator's, so that every case file read here is also read there: a key is an identifier,
a value an identifier or an integer, blank lines and comments do not exist. `true` and `false` are booleans; `True` and
`False`, which is how a runner writes YAML's booleans, stay strings.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from popcorn.errors import PopcornError

CaseValue = int | str | bool

_PAIR = re.compile(r"\s*([a-zA-Z_]\w*):\s*([a-zA-Z_]\w*|[+-]?[0-9]+)\s*")
_ALLOWED = "allowed is `key: value; key: value`, a key an identifier, a value an identifier or an integer"
_MAX_DIGITS = 4300  # Python's own limit on the digits of an integer


class CaseError(PopcornError):
    """A case is malformed; the message names file, line, fault and grammar."""


@dataclass(frozen=True)
class Case:
    """One case: the keyword arguments of `generate_input`, and the line that says so on the wire."""

    spec: dict[str, CaseValue]
    text: str

    @classmethod
    def from_spec(cls, spec: Mapping[str, CaseValue], source: str = "case") -> "Case":
        """The case that a runner makes of a mapping: written with `str`, then read back as the evaluator reads it.

        Raises CaseError if the mapping cannot be written on the wire (floats, lists, spaces).
        """
        return parse_case("; ".join(f"{key}: {value}" for key, value in spec.items()), source)

    def with_seed(self, seed: int | None) -> "Case":
        """This case under a run's secret seed. The text stays: it names the case, not the draw."""
        if seed is None or "seed" not in self.spec:
            return self
        return replace(self, spec={**self.spec, "seed": combine_seed(int(self.spec["seed"]), seed)})


def combine_seed(case_seed: int, seed: int) -> int:
    """The seed of a case with public seed `case_seed` in a run with secret seed `seed` (Cantor's pairing, as official).

    Both are integers of any size; the result is large whenever the secret is.
    """
    return case_seed + (case_seed + seed) * (case_seed + seed + 1) // 2


def parse_cases(text: str, source: str) -> list[Case]:
    """The cases of a case file's text; `source` is its name in messages. Raises CaseError naming the line."""
    return [parse_case(line, f"{source}, line {number}") for number, line in enumerate(text.splitlines(), start=1)]


def parse_case(line: str, source: str) -> Case:
    """One case of one line; `source` is the place named in messages. Raises CaseError."""
    if not line.strip():
        raise CaseError(f"{source}: the line is empty; the official evaluator rejects blank lines, so remove it")
    spec: dict[str, CaseValue] = {}
    for part in line.split(";"):
        key, value = _parse_pair(part, source)
        if key in spec:
            raise CaseError(f"{source}: the key {key!r} stands twice; keep one")
        spec[key] = value
    return Case(spec, line)


def _parse_pair(part: str, source: str) -> tuple[str, CaseValue]:
    matched = _PAIR.fullmatch(part)
    if matched is None:
        shown = part.strip() or "nothing between two semicolons, or after the last"
        raise CaseError(f"{source}: {shown!r} is not a case; {_ALLOWED}")
    return matched[1], _parse_value(matched[2], source)


def _parse_value(word: str, source: str) -> CaseValue:
    if word[0] not in "+-0123456789":
        return {"true": True, "false": False}.get(word, word)
    if len(word) > _MAX_DIGITS:
        raise CaseError(f"{source}: an integer of {len(word)} digits; at most {_MAX_DIGITS} are read")
    return int(word)
