"""verify(): a kernel is right only if it is right under every schedule and LDS fill, with no finding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from ..codeobject import CodeObject
from .arguments import RawKernarg
from .buffers import Buffer
from .findings import Finding
from .launch import FILLS, Run, launch
from .program import program_of
from .schedule import CONJUNCTION, Schedule

MAX_THREADS = 2
Check = Callable[[Run], str | None]


@dataclass(frozen=True)
class Verdict:
    """The conjunction. `failures`: what `check` said, by run; `findings`: each once, over all runs."""

    kernel: str
    runs: list[Run]
    findings: list[Finding]
    failures: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.findings and not self.failures

    def __str__(self) -> str:
        runs = f"{len(self.runs)} runs ({len({run.schedule for run in self.runs})} schedules)"
        if self.ok:
            return f"{self.kernel}: right in {runs}, {self.runs[0].instructions} wave instructions each"
        lines = [f"{self.kernel}: WRONG in {runs}"]
        return "\n  ".join(lines + self.failures + [str(finding) for finding in self.findings])


def verify(
    code: CodeObject,
    kernel_name: str | None = None,
    *,
    grid: Sequence[int] | int,
    block: Sequence[int] | int,
    args: Sequence[Any] | RawKernarg = (),
    check: Check | None = None,
    schedules: Sequence[Schedule] = CONJUNCTION,
    lds_fills: Sequence[str] = tuple(FILLS),
    threads: int = MAX_THREADS,
    **options: Any,
) -> Verdict:
    """Run every schedule with every LDS fill on copies of the buffers, and `check` each result.

    check: gets a Run, whose `args` are this run's arrays; returns None if they are right, else what is wrong.
    options: as for launch() (lds_bytes, workgroups_in_flight, budget). Read-only Buffers are shared, all others copied.
    Raises as launch(), except that findings are collected in the verdict.
    """
    kernel = code.kernel(kernel_name)
    program_of(code)  # decode once, before the threads

    def one(case: tuple[Schedule, str]) -> tuple[Run, str | None]:
        schedule, fill = case
        own = _copies(args)
        options_here = dict(options, schedule=schedule, lds_fill=fill, strict=False)
        run = launch(code, kernel.name, grid=grid, block=block, args=own, **options_here)
        problem = check(run) if check else None
        return run, f"{schedule.name}, LDS filled with {fill}: {problem}" if problem else None

    with ThreadPoolExecutor(max(1, min(threads, MAX_THREADS))) as pool:
        results = list(pool.map(one, product(schedules, lds_fills)))
    runs = [run for run, _ in results]
    return Verdict(kernel.display_name, runs, _distinct(runs), [problem for _, problem in results if problem])


def _distinct(runs: Sequence[Run]) -> list[Finding]:
    found: dict[tuple[str, int, int | None], Finding] = {}
    for run in runs:
        for finding in run.findings:
            found.setdefault((finding.kind, finding.pc, finding.other_pc), finding)
    return list(found.values())


def _copies(args: Sequence[Any] | RawKernarg) -> Sequence[Any] | RawKernarg:
    """The same arguments over fresh arrays; arrays that were one stay one."""
    memo: dict[int, Any] = {}
    if isinstance(args, RawKernarg):
        return RawKernarg(args.data, {offset: _copy(buffer, memo) for offset, buffer in args.pointers.items()})
    return [_copy(value, memo) for value in args]


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    if id(value) not in memo:
        memo[id(value)] = _fresh_copy(value, memo)
    return memo[id(value)]


def _fresh_copy(value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, Buffer):
        pointers = {offset: _copy(target, memo) for offset, target in value.pointers.items()}
        array = value.array if not value.writable and not pointers else _copy(value.array, memo)
        return Buffer(array, value.name, value.writable, value.offset, pointers)
    if isinstance(value, np.ndarray):
        return value.copy()
    return value.clone() if hasattr(value, "data_ptr") else value
