"""Runs corpus problems in the emulator and compares what they wrote with what was expected."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from gfx950 import CodeObject
from gfx950.emulator import Buffer, Run, Schedule, launch

from .case import Argument, Case, Deviation, Problem, compare
from .triton_build import Built, build


@dataclass(frozen=True)
class Outcome:
    """One launch: the emulator's own account and the outputs' deviations."""

    run: Run
    deviations: tuple[Deviation, ...]

    @property
    def ok(self) -> bool:
        return self.run.ok and all(d.ok for d in self.deviations)

    def __str__(self) -> str:
        lines = [f"schedule {self.run.schedule.name}, LDS {self.run.lds_fill}", *map(str, self.deviations)]
        return "\n".join([*lines, *map(str, self.run.findings)])


def copied(arguments: dict[str, Argument]) -> dict[str, Argument]:
    """Fresh tensors of the same contents, so that one problem serves several launches."""
    return {name: a.clone() if isinstance(a, torch.Tensor) else a for name, a in arguments.items()}


def run_problem(code: CodeObject, problem: Problem, arguments: dict[str, Argument], args: list[Any], **launch_options: Any) -> Outcome:
    """Launches with `args`, which are made of `arguments`, and compares the outputs among them."""
    run = launch(code, grid=problem.grid, args=args, strict=False, **launch_options)
    deviations = [compare(name, torch.as_tensor(arguments[name]), e) for name, e in problem.expected.items()]
    return Outcome(run, tuple(deviations))


def triton_args(built: Built, code: CodeObject, arguments: dict[str, Argument], problem: Problem) -> list[Any]:
    """Kernel arguments in order; only expected outputs and atomics' targets may be written. Scratch pointers are null."""
    given = [named_argument(n, arguments[n], problem) for n in built.parameters]
    declared = [arg for arg in code.kernel(built.name).args if not arg.hidden]
    return given + [None] * (len(declared) - len(given))


def named_argument(name: str, argument: Argument, problem: Problem) -> Any:
    if not isinstance(argument, torch.Tensor):
        return argument
    written = name in problem.expected or name in problem.scratch
    return Buffer(argument, name, writable=written)


def run_triton(case: Case, schedule: Schedule | None = None, lds_fill: str = "nan", seed: int = 7) -> Outcome:
    problem = case.problem(torch.Generator().manual_seed(seed))
    built = build(case, problem)
    code = CodeObject.load(built.code, name=f"{case.name}.hsaco")
    arguments = copied(problem.arguments)
    args = triton_args(built, code, arguments, problem)
    return run_problem(code, problem, arguments, args, block=built.block, lds_bytes=built.lds_bytes, schedule=schedule,
                       lds_fill=lds_fill)  # fmt: skip
