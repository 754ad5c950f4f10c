"""Regenerate the tables of docs/emulator-trust.md by running the trust corpus in the gfx950 emulator.

    python scripts/emulator_trust.py            rewrite the tables (a few minutes)
    python scripts/emulator_trust.py --check    change nothing, exit 1 when a table is out of date

Needs Triton, the LLVM tools of `make toolchain`, and the package index for FlyDSL's and AITER's wheels.
"""

# pyright: reportMissingImports=false
# The corpus lies with the tests, outside of what pyright resolves.
import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "emulator-trust.md"
BLOCK = re.compile(r"(<!-- trust: (\w+) -->\n)(.*?)(<!-- /trust -->)", re.S)
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "gfx950")]

import triton  # noqa: E402
from corpus import aiter_cases, aiter_others, aiter_wheel, flydsl_problems  # noqa: E402
from corpus.assumptions import PINNED_BY, Assumption, inverted  # noqa: E402
from corpus.running import Prepared, prepare_flydsl, prepare_triton  # noqa: E402
from corpus.triton_cases import CASES, FAMILIES  # noqa: E402

from gfx950 import CodeObject  # noqa: E402
from gfx950.emulator import CONJUNCTION, Run, Verdict  # noqa: E402

BY_NAME = {case.name: case for case in CASES}


def markdown(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def executed_opcodes(code: CodeObject, runs: Iterable[Run]) -> set[str]:
    """Mnemonics, encoding suffixes left out, that at least one run executed."""
    return {
        re.sub(r"_(e32|e64|dpp|sdwa)$", "", line.text.split()[0])
        for run in runs
        for line, count in zip(code.code, run.executed, strict=True)
        if count
    }


class Family:
    """What a group of kernels has shown."""

    def __init__(self, name: str, kernels: Iterable[Prepared]) -> None:
        self.name = name
        self.kernels = self.right = self.launches = 0
        self.opcodes: set[str] = set()
        for kernel in kernels:
            verdict = kernel.verify()
            self.add(verdict, executed_opcodes(kernel.code, verdict.runs))

    def add(self, verdict: Verdict, opcodes: set[str]) -> None:
        self.kernels += 1
        self.right += verdict.ok
        self.launches += len(verdict.runs)
        self.opcodes |= opcodes

    def row(self) -> list[str]:
        return [self.name, str(self.kernels), str(self.right), str(self.launches), str(len(self.opcodes))]


def corpus_table() -> str:
    """Kernels by other compilers, each under every schedule and LDS fill."""
    families = [Family(f"Triton: {name}", map(prepare_triton, cases)) for name, cases in FAMILIES.items()]
    families.append(Family("FlyDSL", map(prepare_flydsl, flydsl_problems.PROBLEMS)))
    total = ["**together**", *(str(sum(getattr(f, key) for f in families)) for key in ("kernels", "right", "launches"))]
    total.append(str(len(set().union(*(family.opcodes for family in families)))))
    header = ["kernels by another compiler", "kernels", "right, nothing reported", "launches", "distinct opcodes executed"]
    versions = f"\nTriton {triton.__version__}, {flydsl_problems.REQUIREMENT.replace('==', ' ')}.\n"
    return markdown(header, [*(family.row() for family in families), total]) + versions


def worst_error(kernel: Prepared) -> float:
    run = kernel.verify(schedules=CONJUNCTION[:1], lds_fills=("nan",)).runs[0]
    return max(deviation.relative_l2 for deviation in kernel.deviations(run))


def assumption_rows() -> Iterable[list[str]]:
    for assumption in Assumption:
        for name in PINNED_BY[assumption]:
            right = worst_error(prepare_triton(BY_NAME[name]))
            with inverted(assumption):
                wrong = worst_error(prepare_triton(BY_NAME[name]))
            yield [assumption.fact, name, magnitude(right), f"{wrong:.1f}" if wrong < 100 else "> 100"]


def magnitude(error: float) -> str:
    return "exact" if error == 0 else f"{error:.0e}"


def assumptions_table() -> str:
    header = ["fact", "kernel", "relative L2", "relative L2 with the fact inverted"]
    return markdown(header, assumption_rows())


def object_row(case: aiter_cases.ObjectCase) -> list[str]:
    work = case.batch()
    run, out = aiter_cases.run_case(case, work)
    kinds = ", ".join(sorted({finding.kind for finding in run.findings})) or "nothing"
    _, prompt = aiter_cases.run_case(case, work, schedule=aiter_cases.LOCKSTEP.without_latency())
    errors = [f"{aiter_cases.error(case, work, o):.2g}" for o in (out, prompt)]
    note = "" if case.output_scaled else " (output times kv_scale)"
    return [f"`{case.name}`", *errors[:1], errors[1] + note, kinds]


def objects_table() -> str:
    header = ["object", "relative L2, one instruction each in turn", "memory answering at once", "reported"]
    lengths = ", ".join(map(str, aiter_cases.LENGTHS))
    where = f"\n{aiter_wheel.REQUIREMENT.replace('==', ' ')}; KV lengths {lengths}, 2 splits.\n"
    return markdown(header, map(object_row, aiter_cases.CASES)) + where


def other_row(case: aiter_others.OtherCase) -> list[str]:
    kernel = case.make()
    verdict = kernel.verify()
    worst = max(deviation.relative_l2 for run in verdict.runs for deviation in kernel.deviations(run))
    kinds = ", ".join(sorted({finding.kind for finding in verdict.findings})) or "nothing"
    return [f"`{case.path}`", str(len(verdict.runs)), f"{worst:.1g}", kinds]


def others_table() -> str:
    header = ["object", "launches, all within the bound", "worst relative L2", "reported"]
    return markdown(header, map(other_row, aiter_others.CASES))


TABLES = {"corpus": corpus_table, "assumptions": assumptions_table, "objects": objects_table, "others": others_table}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when a table is out of date")
    check = parser.parse_args().check
    old = DOCUMENT.read_text()
    new = BLOCK.sub(lambda block: block[1] + TABLES[block[2]]() + block[4], old)
    if check and new != old:
        print(f"{DOCUMENT.relative_to(ROOT)} is out of date: run python scripts/emulator_trust.py", file=sys.stderr)
        return 1
    if not check:
        DOCUMENT.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
