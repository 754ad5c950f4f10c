#!/usr/bin/env python3
"""Measure a submission beside the public MLA decode kernels: all take turns, call by call, on the same fresh inputs.

    python scripts/bench_peers.py                                          every peer that is installed
    python scripts/bench_peers.py --peers sdpa --cases smoke --device cpu
    python scripts/bench_peers.py --cases official --json peers.json --markdown peers.md

A peer is a submission too (scripts/peers/): it runs in a worker of its own under the robust policy, and every output is
judged. What it plans, it plans at its first call of a shape, which is not timed. One that is not installed, has no kernel
for a case, is wrong or crashes says so in its place, and the others go on.
"""

import argparse
import ast
import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness import policies  # noqa: E402
from harness.cli import choose_cases  # noqa: E402
from harness.devices import describe_device, select_device  # noqa: E402
from harness.errors import Exit, HarnessError, SubmissionNotLoaded  # noqa: E402
from harness.problem import load_problem  # noqa: E402
from popcorn.cases import CaseError  # noqa: E402
from scripts.bundle import SECTION_MARK, blank  # noqa: E402
from scripts.peer_report import geomeans_ns, markdown, record_of_run  # noqa: E402
from scripts.peer_turns import Entrants, Turn  # noqa: E402

PEERS = ROOT / "scripts" / "peers"
COMMON = PEERS / "common.py"
OURS = "ours"


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; 0 if the submission itself was measured on every case."""
    options = parser().parse_args(argv)
    try:
        return run(options)
    except (HarnessError, CaseError) as error:
        print(f"error: {error}", file=sys.stderr)
        return int(getattr(error, "exit_code", Exit.BAD_CASES))


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--submission", type=Path, default=ROOT / "submission.py", help="what the peers are compared with")
    made.add_argument("--peers", default=",".join(peer_names()), help="default: %(default)s")
    made.add_argument("--cases", help="official, smoke, a file or 'key: value; ...'; default: official on a GPU, else smoke")
    made.add_argument("--device", help="cpu, cuda or cuda:N; default: the first GPU, else the CPU")
    made.add_argument("--budget-s", type=float, default=5.0, help="seconds of sampling a case for each; default: %(default)s")
    made.add_argument("--timeout-s", type=float, default=900.0, help="a case may keep one busy as long, compiling included")
    made.add_argument("--json", type=Path, help="write the record, rewritten after every case")
    made.add_argument("--markdown", type=Path, help="write the table")
    return made


def peer_names() -> list[str]:
    """Every peer in scripts/peers/."""
    return sorted(path.stem for path in PEERS.glob("*.py") if path != COMMON)


def run(options: argparse.Namespace) -> int:
    """Measure as `options` say; the exit code."""
    device = select_device(options.device)
    about = describe_device(device)
    problem = load_problem(ROOT / "configs")
    cases_from, cases = choose_cases(options.cases, problem, "benchmark", about)
    policy = policies.robust("benchmark", about, options.budget_s)
    with tempfile.TemporaryDirectory(prefix="peers-") as scratch:
        files = {OURS: existing(options.submission), **staged(options.peers, Path(scratch))}
        turns: list[Turn] = []
        with Entrants(problem, policy, device, cases, files, Path(scratch), options.timeout_s) as entrants:
            for name, reason in entrants.missing.items():
                print(f"{name}: not available: {reason}")
            for case in cases:
                turns.append(entrants.take_turns(case))
                record = record_of_run(about, cases_from, options.budget_s, turns, entrants.missing)
                write(options.json, lambda record=record: json.dumps(record, indent=1) + "\n")
        print(table := markdown(record, [name for name in files if name not in entrants.missing]))
        write(options.markdown, lambda: table)
    return int(Exit.OK if geomeans_ns(turns).get(OURS) else Exit.VERDICT_FAILED)


def existing(path: Path) -> Path:
    """The submission. Raises SubmissionNotLoaded."""
    if not path.is_file():
        raise SubmissionNotLoaded(f"{path}: no such submission file")
    return path


def write(path: Path | None, text: Callable[[], str]) -> None:
    """Write a file that was asked for."""
    if path:
        path.write_text(text(), encoding="utf-8")


def staged(wanted: str, folder: Path) -> dict[str, Path]:
    """The peers as files that can be submitted: what they have in common, then their own. Raises SubmissionNotLoaded."""
    made = {}
    for name in filter(None, wanted.split(",")):
        if name not in peer_names():
            raise SubmissionNotLoaded(f"--peers {name}: no such peer; there are {', '.join(peer_names())}")
        made[name] = folder / f"peer_{name}.py"  # not the name of the package that it imports
        made[name].write_text(section(COMMON) + section(PEERS / f"{name}.py"), encoding="utf-8")
    return made


def section(path: Path) -> str:
    """A file as a section of a generated submission: imports of the common part vanish, lines keep their numbers."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and node.module == "scripts.peers.common":
            blank(lines, node)
    return "\n".join([f"{SECTION_MARK}{path.relative_to(ROOT)}", *lines]) + "\n"


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(int(Exit.INTERRUPTED))
