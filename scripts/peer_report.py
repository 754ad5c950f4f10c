"""What a comparison with peers found, as a record (JSON) and as a table (markdown)."""

import datetime
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from harness.compare import compare_timings
from harness.errors import CannotCompare
from harness.referee import harness_version
from harness.result import Device
from scripts.docs_tables import markdown as markdown_table
from scripts.docs_tables import microseconds, shape
from scripts.peer_turns import Entry, Turn

SCHEMA_VERSION = 1


def record_of_run(about: Device, cases_from: str, budget_s: float, turns: Sequence[Turn], missing: dict[str, str]) -> dict:
    """Everything that was measured so far; times in nanoseconds, samples included."""
    return {
        "schema_version": SCHEMA_VERSION,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "harness_version": harness_version(),
        "device": asdict(about),
        "cases_from": cases_from,
        "budget_s": budget_s,
        "missing": missing,
        "cases": [record_of_turn(turn) for turn in turns],
        "geomean_ns": geomeans_ns(turns),
    }


def record_of_turn(turn: Turn) -> dict[str, Any]:
    """One case: each entrant's times, and what the first one's are of theirs."""
    first = next(iter(turn.entries))
    entries = {
        name: {**asdict(entry), "ours_over_this": ratio(turn.entries[first], entry) if name != first else None}
        for name, entry in turn.entries.items()
    }
    return {"spec": dict(turn.case.spec), "entries": entries}


def ratio(ours: Entry, theirs: Entry) -> dict[str, Any] | None:
    """Our time over theirs, resampled in pairs; None where there is nothing to compare."""
    if ours.timing is None or theirs.timing is None:
        return None
    try:
        found = compare_timings(ours.timing, theirs.timing, interleaved=True)
    except CannotCompare:
        return None
    return {"ratio": found.ratio, "ci95": found.ci95, "change": found.change.value}


def geomeans_ns(turns: Sequence[Turn]) -> dict[str, float | None]:
    """Geometric mean of the medians of those who were measured in every case."""
    names = dict.fromkeys(name for turn in turns for name in turn.entries)
    return {name: geomean_ns([turn.entries.get(name, Entry("absent")) for turn in turns]) for name in names}


def geomean_ns(entries: Sequence[Entry]) -> float | None:
    """None unless every entry has times."""
    medians = [entry.timing.median_ns for entry in entries if entry.timing]
    if not medians or len(medians) < len(entries):
        return None
    return math.exp(math.fsum(math.log(max(value, 1.0)) for value in medians) / len(medians))


def markdown(record: dict[str, Any], names: Sequence[str]) -> str:
    """Medians in microseconds, a column for each entrant; beneath it what has no time, and why."""
    notes: list[str] = [f"{name}: not available: {reason}" for name, reason in record["missing"].items()]
    rows = [[shape(case["spec"]), *(cell(case, name, notes) for name in names)] for case in record["cases"]]
    rows.append(["geomean", *(microseconds(record["geomean_ns"].get(name)) for name in names)])
    device = record["device"]
    about = f"{device['name']}, torch {device['torch']}, harness {record['harness_version']}, {record['date'][:10]}"
    head = f"Median of one cold call in microseconds, all in turn on the same inputs; {about}.\n\n"
    table = markdown_table(["batch x q x kv", *names], rows)
    return head + table + "".join(f"\n- {note}" for note in dict.fromkeys(notes)) + ("\n" if notes else "")


def cell(case: dict[str, Any], name: str, notes: list[str]) -> str:
    """A time with the format that was read; a mark where the strict verdict fails, and a note where there is no time."""
    entry = case["entries"][name]
    if entry["failure"]:
        notes.append(f"{name}, {shape(case['spec'])}: {entry['failure']}")
        return "–"
    strict = "" if entry["strict"] is not False else " (strict verdict fails)"
    return f"{microseconds(entry['timing']['median_ns'])} {entry['kv_format'] or ''}".strip() + strict
