#!/usr/bin/env python3
"""Does a sweep find back? Spoil a copy of the table, sweep it on this machine, let what it found duel with the original.

    python scripts/sweep_recovery.py --out FOLDER                      the official shapes on a GPU, the smoke cases on a CPU
    python scripts/sweep_recovery.py --out FOLDER --kill-every-s 60    the same, killed (SIGKILL) again and again

The repository stays as it is: kernels, table and problem are copied. FOLDER gets recovery.json (rewritten as things become
known, so that whatever ends this leaves what was measured), the study, the report and the table. Exit 0 if every entry is
within noise of the original one, within 1 % of it or faster, 1 if one is slower, undecided or could not be compared, else the
exit code of what failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness.compare import MARGIN  # noqa: E402
from harness.figures import us  # noqa: E402
from harness.files import replace_file  # noqa: E402
from harness.result import Change  # noqa: E402
from sweep.bench import device_names  # noqa: E402
from sweep.bench_config import BenchConfig  # noqa: E402
from sweep.cli import spoil  # noqa: E402
from sweep.decision import Duel, decide  # noqa: E402
from sweep.errors import SweepError  # noqa: E402
from sweep.finish import SAMPLES_FOLDER  # noqa: E402
from sweep.local import LocalExecutor  # noqa: E402
from sweep.options import parser as sweep_parser  # noqa: E402
from sweep.record import Record  # noqa: E402
from sweep.setup import Setup, set_up  # noqa: E402
from sweep.store import Store  # noqa: E402
from sweep.submission import submission_text  # noqa: E402
from sweep.variant import Ask, Outcome, Variant  # noqa: E402

COPIED = ("configs", "kernels", "problems")
COPIED_FILES = ("task.py", "reference.py", "utils.py", "eval.py", "submission.py")
LONGER = 1.3  # the next life of a sweep that was killed before it had stored anything new
STEP_LIMIT_S = 90.0  # a setting that hangs costs no more; nvcc takes 20
SEED = 1
GOOD = ("faster", "within noise", "within 1 %")


@dataclass
class Entry:
    """What became of one shape. Settings are words, times medians of the same interleaved run."""

    shape: str
    spoiled: str
    best_known: str
    found: str = ""
    verdict: str = "not compared"
    ratio: float | None = None  # found over best known
    ci95: tuple[float, float] | None = None
    noise_ci95: tuple[float, float] | None = None  # of what was found against itself
    spoiled_ns: float | None = None
    best_known_ns: float | None = None
    found_ns: float | None = None
    best_tried: str = ""  # of the trials: what is known if the sweep does not get to its end
    best_tried_ns: float | None = None
    trials: dict[str, int] = field(default_factory=dict)  # status -> count
    first_refusal: str = ""
    samples_ns: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of the comparison


@dataclass
class Report:
    """recovery.json."""

    device: str
    preset: str
    entries: list[Entry]
    state: str = "spoiled"  # swept, compared; or what ended it
    sweep_s: float = 0.0
    kills: list[dict[str, float]] = field(default_factory=list)  # after how many seconds, trials stored by then
    lost_trials: int = 0  # stored before a kill and gone after it
    repeated_trials: int = 0  # stored twice

    def write(self, folder: Path) -> None:
        replace_file(folder / "recovery.json", json.dumps(dataclasses.asdict(self), indent=1) + "\n")


def copy_root(folder: Path) -> Path:
    """What a sweep reads and writes, copied."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    for name in COPIED_FILES:
        shutil.copy(ROOT / name, folder / name)
    return folder


class Recovery:
    """One run below `root`, a copy of the repository."""

    def __init__(self, root: Path, options: argparse.Namespace):
        self.out: Path = options.out
        self.root, self.options = root, options
        self.storage = f"sqlite:///{(self.out / 'studies.sqlite').resolve()}"
        named = ("preset", "cases", "device", "backend", "minutes")
        chosen = [word for name in named if (value := getattr(options, name)) for word in (f"--{name}", str(value))]
        self.words = ["--root", str(root), "--storage", self.storage, "--html", str(self.out / "sweep.html"), *chosen]
        self.words += ["--timeout-s", str(STEP_LIMIT_S)]

    def run(self) -> int:
        """The exit code."""
        before = self.set_up()
        known = [before.table.entry(before.label, target.shape) for target in before.targets]
        spoil(before)
        spoiled = [before.table.entry(before.label, target.shape) for target in before.targets]
        entries = [
            Entry(str(target), _words(bad), _words(good))
            for target, bad, good in zip(before.targets, spoiled, known, strict=True)
        ]
        self.report = Report(before.machine.name, before.preset.name, entries)
        self.report.write(self.out)
        try:
            return self.sweep() or self.compare(spoiled)
        except (KeyboardInterrupt, SystemExit):
            self.report.state = "interrupted"
            raise
        finally:
            self.note_trials()
            self.report.write(self.out)

    def set_up(self) -> Setup:
        return set_up(sweep_parser().parse_args(self.words))

    # ---- the sweep

    def sweep(self) -> int:
        """Sweep until one run gets to its end; its exit code."""
        draw, life_s, began_s = random.Random(SEED), self.options.kill_every_s, time.monotonic()
        stored: Counter[tuple[str, str]] = Counter()
        while True:
            limit_s = life_s and life_s * draw.uniform(0.5, 1.5)
            code = self.live(limit_s)
            self.report.sweep_s = round(time.monotonic() - began_s, 1)
            now = self.note_trials()
            self.report.lost_trials += len(stored - now)
            self.report.repeated_trials = sum(now.values()) - len(now)
            self.report.write(self.out)
            if code != -signal.SIGKILL or not life_s:
                break
            self.report.kills.append({"after_s": round(limit_s, 1), "stored": len(now)})
            print(f"killed after {limit_s:.0f} s with {len(now)} trials stored; starting again", flush=True)
            life_s, stored = life_s * (1.0 if len(now) > len(stored) else LONGER), now
        kills = len(self.report.kills)
        print(f"the sweep took {self.report.sweep_s:.0f} s, killed {kills} times, exit code {code}", flush=True)
        for entry in self.report.entries:
            counts = ", ".join(f"{count} {status}" for status, count in entry.trials.items())
            refused = f"; the first refusal: {entry.first_refusal}" if entry.first_refusal else ""
            print(f"{entry.shape}: trials: {counts or 'none'}{refused}", flush=True)
        self.report.state = "swept" if code == 0 else f"the sweep ended with exit code {code}"
        return code

    def live(self, limit_s: float | None) -> int:
        """One run of the sweep; -9 if it was killed."""
        process = subprocess.Popen([sys.executable, "-m", "sweep", *self.words], cwd=ROOT)
        try:
            return process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            return process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def note_trials(self) -> Counter[tuple[str, str]]:
        """Count the stored trials of every shape; how often each is stored."""
        setup = self.set_up()
        for path in (setup.table.path, *(self.root / SAMPLES_FOLDER).glob("*.json")):
            shutil.copy(path, self.out / path.name)
        stored: Counter[tuple[str, str]] = Counter()
        searches = setup.searches(Store(self.storage, setup.config), restart=False, is_late=lambda: False)
        for entry, search in zip(self.report.entries, searches, strict=True):
            records = search.study.records()
            note_records(entry, records)
            entry.found = _words(setup.table.entry(setup.label, search.target.shape))
            stored.update((entry.shape, record.variant.key) for record in records)
        return stored

    # ---- the comparison

    def compare(self, spoiled: Sequence[Variant | None]) -> int:
        """What was found, again, the original entry and the spoiled one, in turn; 1 if an entry is slower than the original."""
        setup = self.set_up()
        config = BenchConfig(
            problem_folder=str(ROOT / "configs"),
            submission=submission_text(ROOT, setup.problem.name),  # where no variant is named its table serves: the original
            device=self.options.device or device_names()[0],
            timeout_s=STEP_LIMIT_S,
        )
        found = [setup.table.entry(setup.label, target.shape) for target in setup.targets]
        asks = [
            Ask(target, (new, new, None, old), self.options.samples)
            for target, new, old in zip(setup.targets, found, spoiled, strict=True)
        ]
        executor = LocalExecutor([config])
        try:
            for index, outcomes in executor.run(asks):
                fill(self.report.entries[index], outcomes)
                print(line_of(self.report.entries[index]), flush=True)
                self.report.write(self.out)
        finally:
            executor.close()
        self.report.state = "compared"
        verdicts = Counter(entry.verdict for entry in self.report.entries)
        became = sum(bool(e.found_ns and e.spoiled_ns and e.found_ns < e.spoiled_ns) for e in self.report.entries)
        counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
        print(f"of {len(found)} entries against the best known: {counts}; {became} are faster than the spoiled ones")
        return int(any(entry.verdict not in GOOD for entry in self.report.entries))


def note_records(entry: Entry, records: Sequence[Record]) -> None:
    """Note what the trials of a shape came to so far."""
    entry.trials = dict(Counter(record.status for record in records))
    entry.first_refusal = next((_refusal(record) for record in records if record.median_ns is None), "")
    timed = [(record.median_ns, record.variant) for record in records if record.status == "ok" and record.median_ns]
    if timed:
        entry.best_tried_ns, best = min(timed, key=lambda pair: pair[0])
        entry.best_tried = str(best)


def fill(entry: Entry, outcomes: Sequence[Outcome]) -> None:
    """Note what a comparison of found, found, original and spoiled brought. Within noise means by the sweep's own rule: a duel
    would not bring the original back, and the ratio is one that equal kernels have."""
    new, again, known, old = outcomes
    names = ("found", "found again", "best known", "spoiled")
    entry.samples_ns = {name: outcome.samples_ns for name, outcome in zip(names, outcomes, strict=True)}
    entry.spoiled_ns = _median_ns(old)
    if not (new.ok and again.ok and known.ok):
        entry.verdict = f"not compared: {new.message or again.message or known.message}"
        return
    backwards = Duel(new.samples_ns, again.samples_ns, known.samples_ns)
    forwards = Duel(known.samples_ns, known.samples_ns, new.samples_ns).gain
    entry.ratio, entry.ci95, entry.noise_ci95 = forwards.ratio, forwards.ci95, backwards.noise.ci95
    entry.found_ns, entry.best_known_ns = _median_ns(new), _median_ns(known)
    if decide(None, Variant("original"), backwards).changes:
        entry.verdict = "slower" if forwards.change is Change.SLOWER else "within 1 %"
    elif forwards.change is Change.FASTER:
        entry.verdict = "faster"
    else:
        near = forwards.ratio <= max(1 + MARGIN, backwards.noise.ci95[1])
        entry.verdict = "within noise" if near else "undecided"  # too loud: neither the same nor slower can be said


def line_of(entry: Entry) -> str:
    times = ", ".join(f"{name} {us(ns)}" for name, ns in _times(entry) if ns)
    ratio = ""
    if entry.ratio and entry.ci95 and entry.noise_ci95:
        (low, high), (below, above) = entry.ci95, entry.noise_ci95
        ratio = f"; found / best known {entry.ratio:.3f} [{low:.3f}, {high:.3f}], equal kernels [{below:.3f}, {above:.3f}]"
    return f"{entry.shape}: {entry.verdict}: us: {times}{ratio}; {entry.found}"


def _times(entry: Entry) -> list[tuple[str, float | None]]:
    return [("spoiled", entry.spoiled_ns), ("best known", entry.best_known_ns), ("found", entry.found_ns)]


def _median_ns(outcome: Outcome) -> float | None:
    return float(statistics.median(outcome.samples_ns)) if outcome.ok and outcome.samples_ns else None


def _words(variant: Variant | None) -> str:
    return str(variant) if variant else "what the backend computes"


def _refusal(record: Record) -> str:
    return f"{record.variant} {record.status}: {record.message}"


def _ended(signum: int, frame: Any) -> None:
    sys.exit(128 + signum)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where the report, the study and the table go")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--minutes", type=float, help="as in python -m sweep")
    parser.add_argument("--cases", help="as in eval.py")
    parser.add_argument("--device", help="as in eval.py")
    parser.add_argument("--backend", help="as in python -m sweep")
    parser.add_argument("--samples", type=int, default=61, help="of each side of the comparison; default: 61")
    parser.add_argument("--kill-every-s", type=float, help="kill the sweep after about so long, and start it again")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, _ended)  # as `timeout` sends it: the report is still written
    with tempfile.TemporaryDirectory(prefix="kernelproof-recovery-") as scratch:
        try:
            return Recovery(copy_root(Path(scratch)), options).run()
        except SweepError as error:
            print(f"error: {error}", file=sys.stderr)
            return int(error.exit_code)


if __name__ == "__main__":
    sys.exit(main())
