"""The live view: an Observer that draws between calls, never while one is timed, and leaves the finished table behind."""

import time
from collections.abc import Callable, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from harness.labels import case_label
from harness.observer import Progress
from harness.result import Result
from harness.terminal.notes import case_notes, heading, summary, warning
from harness.terminal.table import Running, case_table
from popcorn.cases import Case

REDRAW_S = 0.2
FIXED_LINES = 8  # heading of the table, progress line, blank lines
BAR_WIDTH = 24
TIMED_MODES = ("benchmark", "leaderboard")


class LiveRenderer:
    """Draws on `console`. `close()` gives the terminal back, whatever happened."""

    def __init__(self, console: Console, cases: Sequence[Case], now_s: Callable[[], float] = time.monotonic):
        self._console, self._cases, self._now_s = console, tuple(cases), now_s
        # No thread redraws: on a CPU it would compete with the kernel that is being timed.
        self._live = Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop")
        self._result: Result | None = None
        self._progress: Progress | None = None
        self._warned = 0  # warnings that the heading has shown
        self._started_s = self._drawn_s = now_s()

    def started(self, result: Result) -> None:
        """Print the heading and begin to draw."""
        self._result, self._warned = result, len(result.warnings)
        self._console.print(heading(result), *(warning(text) for text in result.warnings), sep="\n")
        self._live.start()

    def progress(self, progress: Progress) -> None:
        """Redraw if the phase is new, or if the last drawing is old."""
        before, self._progress = self._progress, progress
        is_news = before is None or (before.index, before.phase) != (progress.index, progress.phase)
        is_late = self._now_s() - self._drawn_s > REDRAW_S
        if is_late or (is_news and progress.phase in ("loading", "generating")):
            self._draw()

    def case_done(self, result: Result) -> None:
        """Redraw with the new row."""
        self._result = result
        self._draw()

    def finished(self, result: Result) -> None:
        """Replace the drawing by the finished table, the notes and the summary."""
        self.close()
        self._console.print(finished_view(self._console, result, self._warned))

    def close(self) -> None:
        """Remove the drawing and show the cursor again."""
        self._live.stop()

    def _draw(self) -> None:
        self._live.update(self._view(), refresh=True)
        self._drawn_s = self._now_s()

    def _view(self) -> RenderableType:
        assert self._result is not None
        done, progress = self._result.cases, self._progress
        is_running = progress is not None and progress.index == len(done)
        running = Running(progress.case, progress.phase, progress.samples_ns) if progress and is_running else None
        waiting = self._cases[len(done) + is_running :]
        hidden, coming = window(len(done), len(waiting), self._console.height - FIXED_LINES)
        table = case_table(self._console, done[hidden:], running, waiting[:coming], timed=self._result.mode in TIMED_MODES)
        above = [Text(f"... {hidden} finished above", style="bright_black")] if hidden else []
        below = [Text(f"... {len(waiting) - coming} more", style="bright_black")] if coming < len(waiting) else []
        return Group(*above, table, *below, self._progress_line(len(done)))

    def _progress_line(self, done: int) -> RenderableType:
        grid, total, progress = Table.grid(padding=(0, 2, 0, 0)), len(self._cases), self._progress
        elapsed_s = self._now_s() - self._started_s
        words = [f"{done} of {total}", f"{elapsed_s:.0f} s", left_text(elapsed_s, done, total, progress)]
        if progress and progress.index == done:
            words.insert(1, f"{case_label(progress.case.spec)} {progress.phase}")
        bar = ProgressBar(total=max(total, 1), completed=done, width=BAR_WIDTH, complete_style="cyan", finished_style="green")
        grid.add_row(bar, Text(" · ".join(filter(None, words)), style="bright_black", overflow="ellipsis", no_wrap=True))
        return grid


def left_text(elapsed_s: float, done: int, total: int, progress: Progress | None) -> str:
    """The time left: of the whole run from the cases that are done, of the first case from its budget."""
    if 0 < done < total:
        return f"about {seconds(elapsed_s / done * (total - done))} left"
    if done < total and progress and progress.left_s is not None:
        return f"at most {seconds(progress.left_s)} left for this case"
    return ""


def seconds(value_s: float) -> str:
    """`45 s`, `3 min 20 s`."""
    minutes, rest = divmod(round(value_s), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def window(done: int, waiting: int, lines: int) -> tuple[int, int]:
    """How many finished rows are hidden and how many waiting ones shown, so that with the running one `lines` are filled."""
    lines = max(lines, 2)
    coming = min(waiting, max(1, lines - 1 - done))
    return max(0, done - (lines - 1 - coming)), coming


def finished_view(console: Console, result: Result, warned: int = 0) -> RenderableType:
    """A finished evaluation as it stays on the screen; the first `warned` warnings stand there already."""
    notes = [note for case in result.cases for note in case_notes(case)]
    late = [warning(text) for text in result.warnings[warned:]]
    table = [case_table(console, result.cases, timed=result.mode in TIMED_MODES)] if result.cases else []
    return Group(*table, *notes, *late, *([""] if notes or late else []), summary(result))
