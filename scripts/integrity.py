"""Run the corpus of cheats, controls and wrong submissions against the harness: what is caught, and by which defence.

python scripts/integrity.py                      every CPU entry; exit 1 on a miss or a false alarm
python scripts/integrity.py --only super_batch   one entry (repeatable)
python scripts/integrity.py --prove --official   also with each cheat's defences off, and as public evaluators run it
python scripts/integrity.py --docs               docs/integrity.md from the committed results, nothing is run
python scripts/integrity.py --gpu --needs gpu --prove --json FILE              what only a GPU can tell
python scripts/integrity.py --gpu --resume --limit-s 140 --json FILE           the rest, as far as the time goes

On a GPU entries start, load and compile side by side, and are timed one at a time, the honest ones first. What takes long
begins first, then what tells most. What was found stands in FILE after every entry; --resume goes on with what it lacks.
"""

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from exploits.corpus import KINDS_OF_ENTRY, NEEDS, Entry, load_corpus  # noqa: E402
from exploits.findings import CannotResume, Finding, Outcome, investigate, read_findings, write_findings  # noqa: E402
from exploits.report import render  # noqa: E402
from exploits.trials import Bench, Rules  # noqa: E402

DOCUMENT = ROOT / "docs" / "integrity.md"
RESULTS = ROOT / "docs" / "results"
COLUMNS = "{:<26} {:<4} {:<12} {:<13} {:>9} {:>5}  {}"
BUDGET_S = {"cpu": 1.0, "cuda": 0.5}
SPARE_PROCESSORS = 4  # on a GPU: for the evaluation that is being timed, and what compilers start


def options(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add("--only", action="append", default=[], metavar="NAME", help="this entry alone, with --resume again; repeatable")
    add("--kind", choices=KINDS_OF_ENTRY, help="cheats, controls or wrong submissions alone")
    add("--needs", choices=NEEDS, help="entries that need a GPU, or a CPU, or either, alone")
    add("--gpu", action="store_true", help="run on the GPU, the entries that need one too")
    add("--mode", choices=("benchmark", "leaderboard"), default="benchmark")
    add("--policy", choices=("robust", "official"), default="robust", help="the harness's rules of measurement")
    add("--budget-s", type=float, metavar="S", help="wall time for the samples of a case; default: 1, on a GPU 0.5")
    add("--prove", action="store_true", help="also with each cheat's defences off: it must then succeed")
    add("--official", action="store_true", help="also un-isolated, as public evaluators run it")
    add("--jobs", type=int, metavar="N", help="entries at a time; default: 1, on a GPU the processors less four")
    add("--limit-s", type=float, metavar="S", help="begin no entry after this many seconds; those are left out")
    add("--json", type=Path, metavar="FILE", help="write what was found here, again after every entry")
    add("--resume", action="store_true", help="keep what stands in FILE, and run what is missing there")
    add("--docs", action="store_true", help="write docs/integrity.md from docs/results/integrity-*.json")
    add("--check", action="store_true", help="with --docs: write nothing, exit 1 if the page is out of date")
    wanted = made.parse_args(argv)
    if wanted.resume and not wanted.json:
        made.error("--resume needs --json FILE")
    return wanted


def chosen(corpus: list[Entry], wanted: argparse.Namespace) -> list[Entry]:
    """The entries to run, the most telling first. Exits with a message for a name that is no entry."""
    if unknown := set(wanted.only) - {entry.name for entry in corpus}:
        sys.exit(f"no entry {', '.join(sorted(unknown))}; there are {', '.join(entry.name for entry in corpus)}")
    runnable = [entry for entry in corpus if entry.needs in ("any", "gpu" if wanted.gpu else "cpu")]
    if left_out := [entry.name for entry in corpus if entry.name in wanted.only and entry not in runnable]:
        sys.exit(f"{', '.join(left_out)}: needs a {'CPU; leave --gpu out' if wanted.gpu else 'GPU; add --gpu'}")
    found = [entry for entry in runnable if not wanted.only or entry.name in wanted.only]
    found = [entry for entry in found if not wanted.kind or entry.kind == wanted.kind]
    found = [entry for entry in found if not wanted.needs or entry.needs == wanted.needs]
    return sorted(map(Entry.on_gpu, found) if wanted.gpu else found, key=rank)


def rank(entry: Entry) -> tuple[bool, int]:
    """What a run that is cut short should have told first: what no CPU can tell, false times, false alarms, false outputs.
    What says that it takes long begins before all of it, lest everything else ends and waits."""
    told = (entry.needs == "gpu", entry.timed, entry.kind == "controls", entry.kind == "wrong", True)
    return entry.timeout_s == Entry.timeout_s, told.index(True)


def missing(entries: list[Entry], known: list[Finding], wanted: argparse.Namespace) -> list[Entry]:
    """The entries about which less is known than is asked for, and those that were named."""
    enough = {
        finding.entry.name
        for finding in known
        if (finding.proof or not wanted.prove or not finding.entry.defences) and (finding.official or not wanted.official)
    }
    return [entry for entry in entries if entry.name in wanted.only or entry.name not in enough]


class Progress:
    """Prints a line for every finding, and writes all of them."""

    def __init__(self, bench: Bench, path: Path | None, resume: bool, corpus: list[Entry], total: int):
        self._bench, self._path, self._order = bench, path, [entry.name for entry in corpus]
        known, self._versions = read_findings(path, bench, corpus) if path and resume else ([], ())
        self.known = {finding.entry.name: finding for finding in known}
        self.total, self.done, self._started = total, 0, time.monotonic()

    def add(self, finding: Finding) -> None:
        """One more."""
        self.done += 1
        self.known[finding.entry.name] = finding
        self._show(finding)
        if self._path:
            findings = sorted(self.known.values(), key=lambda finding: self._order.index(finding.entry.name))
            write_findings(self._path, self._bench, findings, self._versions)

    def _show(self, finding: Finding) -> None:
        """One line, with the time that is left."""
        trial, left_s = finding.trial, (time.monotonic() - self._started) / self.done * (self.total - self.done)
        time_us = f"{trial.time_ns / 1e3:.0f} us" if trial.time_ns else ""
        more = [", ".join(finding.entry.defences) if finding.outcome is Outcome.CAUGHT else "", finding.remark()]
        more += [f"off: {finding.proof}"] if finding.proof else []
        more += [f"public rules: {finding.official}"] if finding.official else []
        entry, words = finding.entry, "; ".join(filter(None, more))
        found = (entry.name, entry.contract, finding.outcome.value, trial.status, time_us, f"{trial.seconds:.0f} s")
        print(f"[{self.done:>3}/{self.total}, {left_s:4.0f} s left] {COLUMNS.format(*found, words)}", flush=True)


def investigated(bench: Bench, entries: list[Entry], wanted: argparse.Namespace, jobs: int) -> Iterator[Finding]:
    """Findings as they come; none of entries that it was too late to begin. Those that can only run alone come last."""
    deadline = time.monotonic() + (wanted.limit_s or math.inf)

    def find(entry: Entry) -> Finding | None:
        in_time = time.monotonic() < deadline
        return investigate(bench, entry, wanted.prove, wanted.official) if in_time else None

    for together in (True, False):
        some = [entry for entry in entries if entry.alone is not together]
        with ThreadPoolExecutor(jobs if together else 1) as pool:
            try:
                if together:
                    _take_references(bench, some, pool if wanted.gpu else None, crowded=len(some) > jobs)
                for done in as_completed([pool.submit(find, entry) for entry in some]):
                    if finding := done.result():
                        yield finding
            except BaseException:  # Ctrl-C: what has begun ends, nothing else begins
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _take_references(bench: Bench, entries: list[Entry], pool: ThreadPoolExecutor | None, crowded: bool) -> None:
    """Honest times first: what they lose to their neighbours would make cheats look fast. On a CPU one after the other; on a
    GPU `pool` takes them, for there it is the device that is timed, and that alone. Where it will be crowded nothing else
    begins before they are there."""
    references = {(entry.honest, entry.cases): entry for entry in entries if entry.timed}
    if pool:
        taken = [pool.submit(bench.honest_ns, entry) for entry in references.values()]
        wait(taken if crowded else [])
        return
    for entry in references.values():
        bench.honest_ns(entry)


def run(wanted: argparse.Namespace) -> int:
    """Investigate, print, write; 1 if anything was missed."""
    corpus, device = load_corpus(), "cuda" if wanted.gpu else "cpu"
    entries = chosen(corpus, wanted)
    bench = Bench(Rules(wanted.mode, wanted.policy, device, wanted.budget_s or BUDGET_S[device]))
    try:
        progress = Progress(bench, wanted.json, wanted.resume, corpus, len(entries))
    except CannotResume as error:
        sys.exit(str(error))
    to_run = missing(entries, list(progress.known.values()), wanted)
    progress.total = len(to_run)
    jobs = wanted.jobs or (max(1, (os.cpu_count() or 1) - SPARE_PROCESSORS) if wanted.gpu else 1)
    for finding in investigated(bench, to_run, wanted, jobs):
        progress.add(finding)
    if left_out := len(to_run) - progress.done:
        print(f"{left_out} entries were left out: --limit-s {wanted.limit_s:g}")
    return summed_up([progress.known[entry.name] for entry in entries if entry.name in progress.known])


def summed_up(findings: list[Finding]) -> int:
    """Print counts and what failed; 1 if anything did."""
    bad = [finding for finding in findings if finding.failed]
    counts = {outcome.value: sum(finding.outcome is outcome for finding in findings) for outcome in Outcome}
    print(", ".join(f"{count} {name}" for name, count in counts.items() if count))
    for finding in bad:
        print(f"  {finding.entry.name}: {finding.outcome.value}; {finding.remark()}")
    print_phases([finding.trial.phases for finding in findings if finding.trial.phases])
    return 1 if bad else 0


def print_phases(runs: list[dict[str, float]]) -> None:
    """Where the time of an entry goes."""
    names = dict.fromkeys(name for phases in runs for name in phases)
    medians = {name: statistics.median(phases.get(name, 0.0) for phases in runs) for name in names}
    if medians:
        print("median seconds of an entry: " + ", ".join(f"{name} {median_s:.1f}" for name, median_s in medians.items()))


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
