"""A corpus case: a kernel made by another compiler, inputs for it, and what it must compute."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

Argument = torch.Tensor | int | float


@dataclass(frozen=True)
class Expected:
    """What one output must hold. `bound` is the largest admissible |error| of each element; 0 asks for equality."""

    value: torch.Tensor  # float64 or integer, the shape of the output
    bound: torch.Tensor | float = 0.0


@dataclass(frozen=True)
class Problem:
    """Arguments by parameter name (compile-time constants left out) and the expected outputs by parameter name."""

    arguments: dict[str, Argument]
    expected: dict[str, Expected]
    grid: tuple[int, int, int] = (1, 1, 1)
    scratch: tuple[str, ...] = ()  # further arguments that the kernel may write


@dataclass(frozen=True)
class Case:
    """A Triton kernel, how to compile it, and a maker of problems for it.

    `pins` names the facts about the machine that a wrong emulator would get wrong here. `slow` cases are left out of the
    default test run.
    """

    name: str
    kernel: Any
    problem: Callable[[torch.Generator], Problem]
    constants: Mapping[str, Any] = field(default_factory=dict)
    num_warps: int = 4
    options: Mapping[str, Any] = field(default_factory=dict)
    pins: str = ""
    slow: bool = False


@dataclass(frozen=True)
class Deviation:
    """How far one output is from what was expected."""

    output: str
    relative_l2: float
    worst_excess: float  # largest |error| - bound; NaN counts as infinite
    first_wrong: tuple[int, ...] | None

    @property
    def ok(self) -> bool:
        return self.first_wrong is None

    def __str__(self) -> str:
        where = "within its bound" if self.ok else f"wrong first at {self.first_wrong}, {self.worst_excess:.3g} past its bound"
        return f"{self.output}: relative L2 {self.relative_l2:.3g}, {where}"


def compare(name: str, actual: torch.Tensor, expected: Expected) -> Deviation:
    """Compares in float64; NaN equals NaN, and infinities must agree in sign."""
    got = actual.detach().to(torch.float64).reshape(expected.value.shape)
    want = expected.value.to(torch.float64)
    same = (got == want) | (got.isnan() & want.isnan())
    error = torch.where(same, 0.0, (got - want).abs().nan_to_num(nan=torch.inf))
    excess = error - torch.as_tensor(expected.bound, dtype=torch.float64)
    wrong = (excess > 0).nonzero()
    norm = want.nan_to_num(0, 0, 0).norm().clamp_min(torch.finfo(torch.float64).tiny)
    first = tuple(wrong[0].tolist()) if len(wrong) else None
    return Deviation(name, float(error.norm() / norm), float(excess.max()), first)


def dot_bound(a: torch.Tensor, b: torch.Tensor, terms: int) -> torch.Tensor:
    """A priori error bound of an fp32 dot product summed in any order: 2 * terms * 2^-24 * |a| @ |b|.

    Higham, Accuracy and Stability of Numerical Algorithms, section 3.1; the factor 2 leaves room for products and sums
    that the matrix unit truncates instead of rounding.
    """
    return 2 * terms * 2.0**-24 * (a.double().abs() @ b.double().abs())
