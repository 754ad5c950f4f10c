"""Results that the terminal tests draw, and the snapshots they are held to.

`UPDATE_SNAPSHOTS=1 pytest ...` writes the snapshots anew: look at the difference before you commit it.
"""

import io
import os
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from harness.result import CaseResult, Official, Result, Status, Strict, read_result

ROOT = Path(__file__).parents[2]
SNAPSHOTS = Path(__file__).parent / "snapshots"
H200 = read_result(ROOT / "tests" / "support" / "results" / "h200-official-robust.json")


def console_of(width: int, height: int = 40, color: bool = False) -> Console:
    """A terminal that writes into a buffer, without colour unless asked for."""
    system = "standard" if color else None
    return Console(
        file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=system, highlight=False, record=True,
        legacy_windows=False, _environ={},
    )  # fmt: skip


def mixed_result() -> Result:
    """A run in which things go wrong: a case that only the official check accepts, a crash, warnings."""
    good, other = H200.cases[:2]
    assert other.strict is not None
    wrong = replace(
        other, status=Status.WRONG, strict=replace(other.strict, ok=False, message="row 3: relative L2 0.4; at most 0.01"),
        warnings=("the official check accepts this output, the strict one does not",),
    )  # fmt: skip
    crashed = CaseResult(
        {"batchsize": 1, "qseqlen": 2, "kvseqlen": 512, "seed": 7, "kvmin": 0}, Status.CRASHED,
        message="the submission was killed by SIGSEGV", detail="  kernels/hip/a.py:3, in f", printed="one line\n",
    )  # fmt: skip
    refused = CaseResult(
        {"size": 8}, Status.WRONG, official=Official(False, "values differ"), strict=Strict(False, "values differ")
    )
    return replace(H200, cases=(good, wrong, crashed, refused), cases_total=4, score=None)


def check_snapshot(name: str, text: str) -> None:
    """Compare `text` with the file `name`; trailing blanks do not count."""
    path, said = SNAPSHOTS / name, "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(said, encoding="utf-8")
    assert said == path.read_text(encoding="utf-8")
