"""Running emulation cases one after the other: the command line of scripts/emulate.py and scripts/emulate_nvfp4.py."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from gfx950.emulator import Run, Verdict


class Result(Protocol):
    """What a case comes to: all runs, the worst relative L2 of a row in any, the tiles of KV that one launch walks over."""

    verdict: Verdict
    tiles: int

    @property
    def run(self) -> Run: ...
    @property
    def rel_l2_worst(self) -> float: ...


class Case(Protocol):
    """name: unique. work: proportional to the time it takes, roughly."""

    @property
    def name(self) -> str: ...
    @property
    def work(self) -> int: ...
    def compile(self) -> None: ...
    def run(self) -> Any: ...


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def result_line(name: str, result: Result) -> str:
    count, word = result.run.instructions, "right" if result.verdict.ok else "WRONG"
    per_tile = f"{count / result.tiles:8.0f}" if result.tiles else f"{'-':>8}"
    return f"{name:<50} {word:<7} {result.rel_l2_worst:8.4f} {count:13,} {per_tile}"


def run_cases(cases: Sequence[Case]) -> dict[str, Any]:
    """Prints a line for each case as it ends, with the time left. Returns the results by name."""
    results, done, started = {}, 0, time.monotonic()
    total = sum(case.work for case in cases)
    print(f"{'case':<50} {'verdict':<7} {'rel. L2':>8} {'instructions':>13} {'per tile':>8}   time left")
    for case in cases:
        result = results[case.name] = case.run()
        done += case.work
        left = (time.monotonic() - started) / done * (total - done)
        print(f"{result_line(case.name, result)}   {clock(left)}", flush=True)
        if not result.verdict.ok:
            print("\n".join(f"    {line}" for line in str(result.verdict).splitlines()[:12]))
    return results


def emulate_cases(
    doc: str, all_cases: Sequence[Case], write_page: Callable[[dict[str, Any], int, list[str]], None], argv: list[str] | None
) -> int:
    """The command that `doc` describes. write_page(results, runs, wrong) writes the page of --docs. Returns the exit code."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose names contain TEXT")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--docs", action="store_true", help="write the page on these kernels; runs all cases")
    options = parser.parse_args(argv)
    cases = [case for case in all_cases if options.docs or options.only in case.name]
    if not cases:
        parser.error(f"no case has {options.only!r} in its name; --list shows them")
    if options.list:
        print("\n".join(case.name for case in cases))
        return 0
    torch.set_num_threads(1)
    for case in cases:
        case.compile()
    started = time.monotonic()
    results = run_cases(cases)
    wrong = [name for name, result in results.items() if not result.verdict.ok]
    runs = sum(len(result.verdict.runs) for result in results.values())
    print(f"{len(results)} cases, {runs} runs, {len(wrong)} wrong, {clock(time.monotonic() - started)}")
    if options.docs:
        write_page(results, runs, wrong)
    return 1 if wrong else 0
