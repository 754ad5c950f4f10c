"""Run the corpus of cheats, controls and wrong submissions against the harness: what is caught, and by which defence.

python scripts/integrity.py                      every CPU entry; exit 1 on a miss or a false alarm
python scripts/integrity.py --only super_batch   one entry (repeatable)
python scripts/integrity.py --prove --official   also with each cheat's defences off, and as public evaluators run it
python scripts/integrity.py --docs               docs/integrity.md from the committed results, nothing is run
python scripts/integrity.py --gpu --prove --jobs 4 --limit-s 300 --json docs/results/integrity-h200.json
                                                 on a GPU, those that need one first, in less than six minutes
"""

import argparse
import functools
import json
import math
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from exploits.corpus import KINDS_OF_ENTRY, Entry, load_corpus  # noqa: E402
from exploits.findings import Finding, Outcome, investigate, write_findings  # noqa: E402
from exploits.report import render  # noqa: E402
from exploits.trials import Bench, Rules  # noqa: E402

DOCUMENT = ROOT / "docs" / "integrity.md"
RESULTS = ROOT / "docs" / "results"
COLUMNS = "{:<26} {:<4} {:<12} {:<13} {:>9}  {}"


def options(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add("--only", action="append", default=[], metavar="NAME", help="this entry alone; repeatable")
    add("--kind", choices=KINDS_OF_ENTRY, help="cheats, controls or wrong submissions alone")
    add("--gpu", action="store_true", help="run on the GPU, the entries that need one too")
    add("--mode", choices=("benchmark", "leaderboard"), default="benchmark")
    add("--policy", choices=("robust", "official"), default="robust", help="the harness's rules of measurement")
    add("--prove", action="store_true", help="also with each cheat's defences off: it must then succeed")
    add("--official", action="store_true", help="also un-isolated, as public evaluators run it")
    add("--jobs", type=int, default=1, metavar="N", help="entries at a time; times are compared, so leave processors free")
    add("--limit-s", type=float, metavar="S", help="begin no entry after this many seconds; those are left out")
    add("--json", type=Path, metavar="FILE", help="write what was found here, again after every entry")
    add("--docs", action="store_true", help="write docs/integrity.md from docs/results/integrity-*.json")
    add("--check", action="store_true", help="with --docs: write nothing, exit 1 if the page is out of date")
    return made.parse_args(argv)


def chosen(corpus: list[Entry], wanted: argparse.Namespace) -> list[Entry]:
    """The entries to run. Exits with a message for a name that is no entry."""
    if unknown := set(wanted.only) - {entry.name for entry in corpus}:
        sys.exit(f"no entry {', '.join(sorted(unknown))}; there are {', '.join(entry.name for entry in corpus)}")
    runnable = [entry for entry in corpus if entry.needs in ("any", "gpu" if wanted.gpu else "cpu")]
    if left_out := [entry.name for entry in corpus if entry.name in wanted.only and entry not in runnable]:
        sys.exit(f"{', '.join(left_out)}: needs a {'CPU; leave --gpu out' if wanted.gpu else 'GPU; add --gpu'}")
    found = [entry for entry in runnable if not wanted.only or entry.name in wanted.only]
    found = [entry for entry in found if not wanted.kind or entry.kind == wanted.kind]
    return sorted(found, key=lambda entry: entry.needs == "any")


def show(finding: Finding, done: int, total: int, started: float) -> None:
    """One line, with the time that is left."""
    trial, left_s = finding.trial, (time.monotonic() - started) / done * (total - done)
    time_us = f"{trial.time_ns / 1e3:.0f} us" if trial.time_ns else ""
    more = [", ".join(finding.entry.defences) if finding.outcome is Outcome.CAUGHT else "", finding.remark()]
    more += [f"off: {finding.proof}"] if finding.proof else []
    more += [f"public rules: {finding.official}"] if finding.official else []
    line = COLUMNS.format(
        finding.entry.name, finding.entry.contract, finding.outcome.value, trial.status, time_us, "; ".join(filter(None, more))
    )
    print(f"[{done:>2}/{total}, {left_s / 60:4.1f} min left] {line}", flush=True)


def run(wanted: argparse.Namespace) -> int:
    """Investigate, print, write; 1 if anything was missed."""
    entries = chosen(load_corpus(), wanted)
    rules = Rules(mode=wanted.mode, policy=wanted.policy, device="cuda" if wanted.gpu else "cpu")
    bench, started, findings = Bench(rules), time.monotonic(), []
    deadline = started + (wanted.limit_s or math.inf)
    find = functools.partial(_before, deadline, bench, prove=wanted.prove, official=wanted.official)
    for entry in entries:
        bench.honest_ns(entry)  # alone: what it loses to its neighbours would make cheats look fast
    with ThreadPoolExecutor(wanted.jobs) as pool:
        for done in as_completed([pool.submit(find, entry) for entry in entries]):
            if (finding := done.result()) is None:
                continue
            findings.append(finding)
            show(findings[-1], len(findings), len(entries), started)
            if wanted.json:
                write_findings(wanted.json, bench, sorted(findings, key=lambda finding: entries.index(finding.entry)))
    bad = [finding for finding in findings if finding.failed]
    counts = {outcome.value: sum(finding.outcome is outcome for finding in findings) for outcome in Outcome}
    if left_out := len(entries) - len(findings):
        print(f"{left_out} entries were left out: --limit-s {wanted.limit_s:g}")
    print(", ".join(f"{count} {name}" for name, count in counts.items() if count))
    for finding in bad:
        print(f"  {finding.entry.name}: {finding.outcome.value}; {finding.remark()}")
    return 1 if bad else 0


def _before(deadline: float, bench: Bench, entry: Entry, **options: bool) -> Finding | None:
    """The investigation of an entry, unless it is too late to begin."""
    return investigate(bench, entry, **options) if time.monotonic() < deadline else None


def write_docs(check: bool) -> int:
    """The page from the committed results; with `check`, 1 if it is out of date."""
    records, overheads = (
        [json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"{what}-*.json"))] for what in ("integrity", "isolation")
    )
    text = render(records, load_corpus(), overheads)
    if check:
        current = DOCUMENT.is_file() and DOCUMENT.read_text() == text
        print("docs/integrity.md is current" if current else "docs/integrity.md is out of date: scripts/integrity.py --docs")
        return 0 if current else 1
    DOCUMENT.write_text(text)
    return 0


def main(argv: list[str]) -> int:
    """Run the command line; the exit code."""
    wanted = options(argv)
    return write_docs(wanted.check) if wanted.docs else run(wanted)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
