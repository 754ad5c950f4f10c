"""What the problem's judge says about outputs, as records."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from harness.errors import HarnessError, RefereeOutOfMemory
from harness.problem import Problem, describe
from harness.result import Official, Strict

STRICT_FIELDS = {field.name: field.type for field in dataclasses.fields(Strict) if field.name != "details"}


@dataclass(frozen=True)
class Verdict:
    """Both verdicts on one or more outputs."""

    official: Official
    strict: Strict | None = None

    @property
    def ok(self) -> bool:
        """Whether every verdict there is passes."""
        return self.official.ok and (self.strict is None or self.strict.ok)

    def worst(self, other: "Verdict") -> "Verdict":
        """Verdict by verdict the worse of the two: a failure before a pass, then the larger error."""
        official = other.official if self.official.ok and not other.official.ok else self.official
        if self.strict is None or other.strict is None:
            return Verdict(official, self.strict or other.strict)
        return Verdict(official, max(self.strict, other.strict, key=_badness))

    def with_changed_inputs(self, positions: list[int]) -> "Verdict":
        """The same, failed strictly if inputs were written that may not be. Official checks never look."""
        if not positions:
            return self
        which = ", ".join(map(str, positions))
        return Verdict(self.official, Strict(False, f"input {which} was changed; the problem allows that for none but its "
                                             "mutable_inputs: work on a copy"))  # fmt: skip


def judge(problem: Problem, data: Any, output: Any, strict: bool = True) -> Verdict:
    """The verdict on an output; without `strict` the official one alone, which costs a fraction of both.

    A judge that raises on what it was given has found it wrong.
    Raises HarnessError: RefereeOutOfMemory and the problem's own faults say nothing about the output.
    """
    try:
        said = problem.judge(data, output) if strict else _official(problem, data, output)
    except HarnessError:
        raise
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise RefereeOutOfMemory(error) from None
    except Exception as error:
        return Verdict(Official(False, f"the judge could not read the output: {describe(error)}"))
    official = Official(bool(said["official"]["ok"]), str(said["official"].get("message", "")))
    return Verdict(official, _strict(said["strict"]) if said.get("strict") else None)


def _official(problem: Problem, data: Any, output: Any) -> dict[str, Any]:
    ok, message = problem.check_implementation(data, output)
    return {"official": {"ok": ok, "message": message}}


def _strict(said: dict[str, Any]) -> Strict:
    plain = {key: _plain(value) for key, value in said.items()}
    known = {key: plain.pop(key) for key in STRICT_FIELDS if key in plain}
    return Strict(**known, details=plain)


def _plain(value: Any) -> Any:
    """JSON's types for numpy's and torch's scalars and for nested values of them."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return _plain(value.item()) if hasattr(value, "item") else str(value)


def _badness(strict: Strict) -> tuple[bool, float]:
    worst = strict.rel_l2_worst
    return not strict.ok, float("inf") if worst is None or worst != worst else worst
