"""Recorded runs on a terminal: a table for each series of comparable runs, with its scores as a sparkline."""

import itertools
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.figures import us
from harness.history import Run
from harness.terminal.parts import quiet_table

LEVELS = "▁▂▃▄▅▆▇█"
NO_SCORE = "·"


def sparkline(values: Sequence[float | None]) -> str:
    """One character a value, the lowest at the bottom; a dot where there is none."""
    known = [value for value in values if value is not None]
    low, spread = min(known, default=0.0), max(known, default=0.0) - min(known, default=0.0)
    steps = (len(LEVELS) - 1) / spread if spread else 0.0
    return "".join(NO_SCORE if value is None else LEVELS[round((value - low) * steps)] for value in values)


def history_view(runs: Sequence[Run]) -> RenderableType:
    """Every series, the one with the latest run last; `runs` are in order of time."""
    latest = {run.series: position for position, run in enumerate(runs)}
    ordered = sorted(runs, key=lambda run: latest[run.series])
    return Group(*(_series(list(group)) for _, group in itertools.groupby(ordered, key=lambda run: run.series)))


def _series(runs: Sequence[Run]) -> RenderableType:
    run, scores = runs[0], [run.score_ns for run in runs]
    how = f"{run.mode}, {run.policy}, {run.cases_from} cases"
    title = Text.assemble((run.problem, "bold"), f"  {run.device}  ", (how, "bright_black"))
    known = [score for score in scores if score is not None]
    best = f"  best {us(min(known))} µs of {len(known)}" if known else "  no scores"
    return Group(title, Text.assemble((sparkline(scores), "cyan"), (best, "bright_black")), "", _table(runs), "")


def _table(runs: Sequence[Run]) -> Table:
    table = quiet_table()
    for head in ("run", "started", "submission", "cases pass", "score µs", "change"):
        table.add_column(head, justify="left" if head in ("started", "submission") else "right", no_wrap=True)
    before = None
    for run in runs:
        table.add_row(*_row(run, before))
        before = run.score_ns or before
    return table


def _row(run: Run, before_ns: float | None) -> list[Text]:
    passed = Text(f"{run.passed} of {run.cases_total}", style="green" if run.passed == run.cases_total else "bold red")
    score = Text(us(run.score_ns), style="bold") if run.score_ns else Text(run.state, style="yellow")
    started = run.started_at[:16].replace("T", " ")
    names = [Text(str(run.id)), Text(started), Text(f"{run.submission}  {run.sha256[:8]}")]
    return [*names, passed, score, _change(run.score_ns, before_ns)]


def _change(score_ns: float | None, before_ns: float | None) -> Text:
    if not score_ns or not before_ns:
        return Text("")
    change = score_ns / before_ns - 1
    return Text(f"{change:+.1%}", style="green" if change < -0.01 else "red" if change > 0.01 else "bright_black")
