"""From decisions to files: the samples, the table with its evidence, the generated submissions."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.files import replace_file
from scripts import bundle
from sweep.errors import KernelsNotLoaded
from sweep.outcome import ShapeOutcome
from sweep.setup import Setup
from sweep.submission import TABLE
from sweep.table import Change, DispatchTable

SAMPLES_FOLDER = Path("docs", "results", "sweep")


def apply_decisions(setup: Setup, outcomes: Sequence[ShapeOutcome], out: Callable[[str], None] = print) -> bool:
    """Show the difference, then write samples, table and submissions; whether the table changed.

    Idempotent: after a crash between two of these the same decisions make the same files.
    """
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    samples = SAMPLES_FOLDER / f"{setup.label}-{today}.json"
    table = DispatchTable(setup.root / TABLE, setup.problem.name)
    changes = [change for outcome in outcomes if (change := change_of(setup, outcome, samples, today))]
    changes = [change for change in changes if table.entry(setup.label, change.shape) != change.variant]
    table.apply(setup.label, changes)
    diff = table.diff()
    out(f"\n{diff}\n" if diff else "\ndispatch.yml stays as it is.")
    if diff:
        write_samples(setup, outcomes, setup.root / samples)
        table.write()
        out(f"wrote {TABLE}; the samples behind it: {samples}")
    for name in regenerate(setup.root, setup.problem.name):
        out(f"wrote {name}")
    return bool(diff)


def change_of(setup: Setup, outcome: ShapeOutcome, samples: Path, today: str) -> Change | None:
    """What an entry is to say, with its evidence; None if it stays."""
    decision = outcome.decision
    if not decision.changes or decision.challenger is None:
        return None
    evidence: dict[str, Any] = {"device": setup.machine.name, "driver": setup.machine.driver, "date": today}
    evidence["median_ns"] = round(decision.median_ns) if decision.median_ns else None
    if decision.duel:
        gain = decision.duel.gain
        evidence |= {"ratio": round(gain.ratio, 4), "ci95": [round(end, 4) for end in gain.ci95]}
    evidence |= {"via": setup.via if setup.via != "local" else None, "samples": str(samples)}
    return Change(outcome.target.shape, decision.challenger, {k: v for k, v in evidence.items() if v is not None})


def write_samples(setup: Setup, outcomes: Sequence[ShapeOutcome], path: Path) -> None:
    """Every sample of every candidate, as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {
        "problem": setup.problem.name,
        "device": vars(setup.machine),
        "via": setup.via,
        "preset": setup.preset.name,
        "shapes": [outcome.to_json() for outcome in outcomes],
    }
    replace_file(path, json.dumps(data, indent=1) + "\n")


def regenerate(root: Path, problem: str) -> list[str]:
    """Generate the submissions of a problem that are not current; their names. Raises KernelsNotLoaded."""
    written = []
    try:
        for submission in (entry for entry in bundle.load_manifest(root) if entry.leaderboard == problem):
            path, text = root / submission.output, bundle.build(root, submission)
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                replace_file(path, text)
                written.append(submission.output)
    except (bundle.BundleError, OSError) as error:
        raise KernelsNotLoaded(f"the table is written, the submission is not: {error}; then `make submission`") from None
    return written
