"""Corpus kernels ready for the emulator, and the comparison of what they write with what was expected."""

from dataclasses import dataclass
from typing import Any

import torch

from gfx950 import CodeObject
from gfx950.emulator import Buffer, Run, Verdict, verify

from . import flydsl_problems
from .case import Argument, Case, Deviation, Problem, compare
from .triton_build import build

SEED = 7


@dataclass(frozen=True)
class Prepared:
    """A kernel with its arguments: `names` says which of the problem's arguments stands where ("" = none of them)."""

    code: CodeObject
    problem: Problem
    names: tuple[str, ...]
    args: tuple[Any, ...]
    block: int  # work-items in a workgroup
    lds_bytes: int = 0  # dynamic LDS

    def verify(self, **options: Any) -> Verdict:
        """The emulator's verdict, expected outputs included; by default under every schedule and LDS fill."""
        launch = {"grid": self.problem.grid, "block": self.block, "args": self.args, "lds_bytes": self.lds_bytes}
        return verify(self.code, **launch, check=self.complaint, **options)

    def deviations(self, run: Run) -> list[Deviation]:
        outputs = dict(zip(self.names, run.args, strict=True))
        return [compare(name, torch.as_tensor(outputs[name]), e) for name, e in self.problem.expected.items()]

    def complaint(self, run: Run) -> str | None:
        return "; ".join(str(d) for d in self.deviations(run) if not d.ok) or None


def argument(name: str, value: Argument, problem: Problem) -> Any:
    """Arrays become named buffers that may be written only if the problem says so."""
    if not isinstance(value, torch.Tensor):
        return value
    return Buffer(value, name, writable=name in problem.expected or name in problem.scratch)


def prepare_triton(case: Case, seed: int = SEED) -> Prepared:
    """Compiles the case. The scratch pointers that Triton appends to the parameters are null, as at a real launch."""
    problem = case.problem(torch.Generator().manual_seed(seed))
    built = build(case, problem)
    code = CodeObject.load(built.code, name=f"{case.name}.hsaco")
    declared = [arg for arg in code.kernel().args if not arg.hidden]
    names = built.parameters + ("",) * (len(declared) - len(built.parameters))
    args = tuple(argument(n, problem.arguments[n], problem) if n else None for n in names)
    return Prepared(code, problem, names, args, built.block, built.lds_bytes)


def prepare_flydsl(name: str, seed: int = SEED) -> Prepared:
    """A FlyDSL kernel: each tensor is a pointer and the bytes of its layout. Raises wheels.Unreachable."""
    make, block = flydsl_problems.PROBLEMS[name]
    problem = make(torch.Generator().manual_seed(seed))
    code = CodeObject.load(flydsl_problems.code_objects()[name], name=f"{name}.hsaco")
    names, args = [], []
    for n, tensor in problem.arguments.items():
        names += [n, ""]
        args += [argument(n, tensor, problem), flydsl_problems.layout_bytes(tensor)]
    return Prepared(code, problem, tuple(names), tuple(args), block)
