"""The table of cases, in as much width as there is."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from harness.figures import us
from harness.labels import case_label
from harness.result import CaseResult
from harness.stats import quick_median
from harness.terminal import cells
from harness.terminal.parts import quiet_table
from popcorn.cases import Case


@dataclass(frozen=True)
class Column:
    """`cell` gives a finished case's text; the column is left out where no case has any."""

    head: str
    cell: Callable[[CaseResult], Text]
    justify: Literal["left", "right"] = "left"
    key: str = ""  # what the row of a running case knows: label, phase, median, runs
    always: bool = False


@dataclass(frozen=True)
class Running:
    """The case that is being measured."""

    case: Case
    phase: str
    samples_ns: tuple[int, ...] = ()


CASE = Column("case", cells.label, key="label", always=True)
OFFICIAL = Column("official", cells.official, key="phase", always=True)
STRICT = Column("strict", cells.strict)
VERDICTS = Column("verdicts", cells.verdicts, key="phase", always=True)
READS = Column("reads", cells.reads)
MEDIAN = Column("median [95 %] µs", cells.median, key="median", always=True)
SHORT_MEDIAN = Column("median µs", cells.median_short, key="median", always=True)
CHANGE = Column("time / baseline [95 %]", cells.change)
MEAN = Column("mean ± err µs", cells.mean)
RATE = Column("GB/s", cells.bandwidth, "right")
ROOFLINE = Column("of roofline", cells.roofline, "right")
FLOOR_BAR = Column("of cold read", cells.floor_bar)
FLOOR = Column("of cold read", cells.floor, "right")
REL_L2 = Column("rel. L2", cells.rel_l2, "right")
BACKEND = Column("backend", cells.backend)

# The first one that fits is taken; the narrowest is stacked, see `_stacked`.
LAYOUTS = (
    (CASE, OFFICIAL, STRICT, READS, MEDIAN, CHANGE, MEAN, RATE, ROOFLINE, FLOOR_BAR, REL_L2, BACKEND),
    (CASE, OFFICIAL, STRICT, READS, MEDIAN, CHANGE, MEAN, RATE, ROOFLINE, FLOOR, REL_L2, BACKEND),
    (CASE, OFFICIAL, STRICT, READS, MEDIAN, CHANGE, RATE, ROOFLINE, FLOOR, REL_L2, BACKEND),
    (CASE, VERDICTS, READS, SHORT_MEDIAN, CHANGE, RATE, ROOFLINE, FLOOR, BACKEND),
    (CASE, VERDICTS, READS, SHORT_MEDIAN, CHANGE, ROOFLINE, FLOOR),
    (CASE, VERDICTS, SHORT_MEDIAN, CHANGE, FLOOR),
)
SECOND_LINE = (READS, MEAN, RATE, ROOFLINE, FLOOR, REL_L2, BACKEND)
UNBOUNDED = 1000
UNITS = {MEAN: " µs mean", RATE: " GB/s", ROOFLINE: " of roofline", FLOOR: " of cold read", REL_L2: " rel. L2"}


def case_table(
    console: Console,
    done: Sequence[CaseResult],
    running: Running | None = None,
    waiting: Sequence[Case] = (),
    timed: bool = True,
) -> RenderableType:
    """Finished cases, the one that runs, those that wait. Without `timed`, no column of times."""
    for layout in LAYOUTS:
        table = _table(_used(layout, done, timed), done, running, waiting)
        if Measurement.get(console, console.options.update_width(UNBOUNDED), table).maximum <= console.width:
            return Group("", table, "")
    return _stacked(done, running, waiting)


def _used(layout: Sequence[Column], done: Sequence[CaseResult], timed: bool) -> list[Column]:
    """The columns that have something to say."""
    shown = [column for column in layout if timed or column not in (MEDIAN, SHORT_MEDIAN)]
    return [column for column in shown if column.always or any(column.cell(case) is not cells.NOTHING for case in done)]


def _table(columns: Sequence[Column], done: Sequence[CaseResult], running: Running | None, waiting: Sequence[Case]) -> Table:
    table = quiet_table()
    for column in columns:
        table.add_column(column.head, justify=column.justify, no_wrap=True)
    for case in done:
        table.add_row(*(column.cell(case) for column in columns))
    if running:
        table.add_row(*(_running_cell(column, running) for column in columns))
    for case in waiting:
        table.add_row(Text(case_label(case.spec), style="bright_black"), *itertools.repeat("", len(columns) - 1))
    return table


def _running_cell(column: Column, running: Running) -> Text:
    match column.key:
        case "label":
            return Text(case_label(running.case.spec), style="bold cyan")
        case "phase":
            return Text("..." if running.samples_ns else running.phase, style="cyan")
        case "median" if running.samples_ns:
            return running_estimate(running.samples_ns)
    return Text("")


def running_estimate(samples_ns: Sequence[int]) -> Text:
    """The median so far, half the width of its interval, the number of samples."""
    median_ns, (low_ns, high_ns) = quick_median(samples_ns)
    width = f" ± {us((high_ns - low_ns) / 2)}" if len(samples_ns) > 1 else ""
    return Text(f"{us(median_ns)}{width}, n={len(samples_ns)}", style="cyan")


def _stacked(done: Sequence[CaseResult], running: Running | None, waiting: Sequence[Case]) -> RenderableType:
    """Two lines a case: what matters, and below it the rest."""
    lines = []
    for case in done:
        head = [cells.label(case), cells.verdicts(case), *([cells.median_short(case)] if case.timing else [])]
        rest = [cells.change(case), *(_named(column, case) for column in SECOND_LINE)]
        lines += [Text("  ").join(head), _indented([text for text in rest if text.plain != cells.NOTHING.plain])]
    if running:
        estimate = running_estimate(running.samples_ns) if running.samples_ns else Text(running.phase, style="cyan")
        lines.append(Text.assemble((case_label(running.case.spec), "bold cyan"), "  ", estimate))
    lines += [Text(case_label(case.spec), style="bright_black") for case in waiting]
    return Group("", *(line for line in lines if line.plain.strip()), "")


def _named(column: Column, case: CaseResult) -> Text:
    text = column.cell(case)
    return text if text is cells.NOTHING else Text.assemble(text, UNITS.get(column, ""))


def _indented(parts: Sequence[Text]) -> Text:
    return Text.assemble("  ", Text(" · ", style="bright_black").join(parts), style="bright_black")
