"""A sweep on a terminal: a line as each step ends, and at the end what became of every entry."""

from __future__ import annotations

from collections.abc import Sequence

from harness.figures import us
from sweep.decision import noise_floor
from sweep.importance import importance
from sweep.outcome import ShapeOutcome
from sweep.search import ShapeSearch
from sweep.space import Space
from sweep.variant import Target, Variant

SHOWN_PARAMETERS = 4


def progress_line(search: ShapeSearch, share_done: float, left_s: float | None) -> str:
    """Where a shape's search is, and how long everything will still take."""
    best = search.best()
    best_text = f"best {us(best.median_ns)} us" if best and best.median_ns else "none right yet"
    now = f" (entry {us(search.incumbent_ns)})" if search.incumbent_ns else ""
    left = "" if left_s is None else f", about {clock(left_s)} left"
    return f"{share_done:4.0%}  {search.target!s:<16} {search.phase:<10} {search.tried:4d} tried, {best_text}{now}{left}"


def summary(outcomes: Sequence[ShapeOutcome]) -> list[str]:
    """The table of decisions, the noise floor, what mattered."""
    head = f"{'shape':<16} {'entry us':>9} {'now us':>9}  ratio [95 %]           tried  decision"
    lines = [head, *map(_row, outcomes)]
    duels = [outcome.decision.duel for outcome in outcomes if outcome.decision.duel]
    if duels:
        floor = noise_floor([duel.noise for duel in duels])
        lines += ["", f"noise floor: equal kernels differed by up to {floor:.2%} (entries against themselves, in the duels)"]
    lines += [f"{outcome.target}: {said}" for outcome in outcomes if outcome.finals for said in outcome.finals.remarks()]
    mattered = importance([record for outcome in outcomes for record in outcome.normalised])
    if mattered:
        first = list(mattered.items())[:SHOWN_PARAMETERS]
        shares = ", ".join(f"{name} {share:.0%}" for name, share in first)
        lines.append(f"what mattered (share of the variance of log time, each parameter alone): {shares}")
    return lines


def _row(outcome: ShapeOutcome) -> str:
    decision, duel = outcome.decision, outcome.decision.duel
    before = us(outcome.incumbent_ns) if outcome.incumbent_ns else "-"
    now = us(decision.median_ns) if decision.median_ns else "-"
    ratio = "-"
    if duel and decision.challenger:
        low, high = duel.gain.ci95
        ratio = f"{duel.gain.ratio:.3f} [{low:.3f}, {high:.3f}]"
    verdict = f"-> {decision.challenger}" if decision.changes else decision.reason
    return f"{outcome.target!s:<16} {before:>9} {now:>9}  {ratio:<22} {len(outcome.records):5d}  {verdict}"


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def space_lines(target: Target, space: Space, entry: Variant | None) -> list[str]:
    """What a dry run prints for one shape."""
    lines = [f"{target}: {len(space):,} settings; now {entry or 'what the backend computes for it'}"]
    for grid in space.grids.values():
        lines.append(f"  {grid.backend}: {len(grid):,} that meet the constraints")
        lines += [f"    {name}: {', '.join(map(str, choices))}" for name, choices in grid.values.items()]
    return lines
