"""The live view on a stand-in terminal and a stand-in clock: when it draws, what it leaves behind."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console
from terminal_results import H200, console_of

from harness.observer import Progress
from harness.render_plain import PlainRenderer
from harness.result import State
from harness.terminal.choose import choose_renderer
from harness.terminal.live import LiveRenderer, left_text, seconds, window
from popcorn.cases import Case

CASES = [Case(dict(case.spec), "") for case in H200.cases]
SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def console() -> Console:
    return console_of(120)


@pytest.fixture
def view(console, clock) -> LiveRenderer:
    return LiveRenderer(console, CASES, clock)


def begin(view: LiveRenderer) -> None:
    view.started(replace(H200, cases=(), state=State.RUNNING, score=None, warnings=("careful",)))


def sampling(samples: int, index: int = 0, left_s: float = 3.0) -> Progress:
    return Progress(index, len(CASES), CASES[index], "sampling", tuple(range(11_000, 11_000 + samples)), left_s)


def test_samples_are_drawn_at_most_five_times_a_second(view, console, clock):
    begin(view)
    lengths = []
    for step in range(100):
        clock.now_s += 0.01
        view.progress(sampling(step + 1))
        lengths.append(len(written(console)))
    view.close()
    assert 4 <= len(set(lengths)) - 1 <= 5


def test_the_running_estimate(view, console, clock):
    begin(view)
    clock.now_s += 1
    view.progress(sampling(101))
    view.close()
    said = written(console)
    assert "11.05 ± 0.011, n=101" in said
    assert "0 of 8 · 4 x 1 x 1024 sampling · 1 s · at most 3 s left for this case" in said
    assert "256 x 1 x 8192" in said  # cases that wait are listed


def test_the_table_stays_and_the_drawing_goes(view, console, clock):
    begin(view)
    for count in range(1, len(CASES) + 1):
        clock.now_s += 1
        view.progress(sampling(5, count - 1))
        view.case_done(replace(H200, cases=H200.cases[:count], state=State.RUNNING, score=None))
    view.finished(H200)
    said = written(console)
    final = said[said.rindex(SHOW_CURSOR) :]
    assert final.count("256 x 1 x 8192") == 1
    assert "━━━━━━━━━━━━━━━━━━━━━━━━" not in final  # no progress bar
    assert "score 4" in final
    assert said.count("careful") == 1


def test_ctrl_c_leaves_what_was_measured_and_a_cursor(view, console, clock):
    begin(view)
    view.progress(sampling(5))
    view.finished(replace(H200, cases=H200.cases[:3], state=State.INTERRUPTED, score=None))
    said = written(console)
    assert said.rindex(SHOW_CURSOR) > said.rindex(HIDE_CURSOR)
    assert "interrupted; 3 of 8 cases pass, 3 were run" in said


def test_closing_twice_or_before_the_start_does_no_harm(view, console):
    view.close()
    begin(view)
    view.close()
    view.close()
    assert written(console).endswith(SHOW_CURSOR) or SHOW_CURSOR in written(console)


def test_a_low_terminal_shows_the_latest_cases(clock):
    console = console_of(120, height=14)
    view = LiveRenderer(console, CASES, clock)
    begin(view)
    view.case_done(replace(H200, cases=H200.cases[:7], state=State.RUNNING))
    view.close()
    drawn = re.split(r"\x1b\[\?25l", written(console))[-1]
    assert "... 3 finished above" in drawn
    assert re.search(r"(?<!\d)4 x 1 x 1024 ", drawn) is None


@pytest.mark.parametrize(
    ("done", "waiting", "lines", "hidden_and_coming"),
    [(0, 3, 10, (0, 3)), (0, 9, 5, (0, 4)), (8, 3, 10, (0, 1)), (20, 3, 10, (12, 1)), (20, 0, 10, (11, 0)), (5, 5, 0, (5, 1))],
)
def test_window(done, waiting, lines, hidden_and_coming):
    assert window(done, waiting, lines) == hidden_and_coming


def test_time_left():
    assert left_text(10.0, 2, 8, None) == "about 30 s left"
    assert left_text(10.0, 8, 8, None) == ""
    assert left_text(10.0, 0, 8, None) == ""
    assert left_text(0.0, 0, 8, sampling(1, left_s=200.0)) == "at most 3 min 20 s left for this case"
    assert [seconds(value) for value in (0.4, 59.6, 61)] == ["0 s", "1 min 0 s", "1 min 1 s"]


class Terminal(io.StringIO):
    def __init__(self, encoding: str | None = "utf-8", is_terminal: bool = True):
        super().__init__()
        self._encoding, self._is_terminal = encoding, is_terminal

    @property
    def encoding(self):  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize(
    ("out", "term", "kind"),
    [
        (Terminal(), "xterm-256color", LiveRenderer),
        (Terminal(is_terminal=False), "xterm", PlainRenderer),
        (Terminal(), "dumb", PlainRenderer),
        (Terminal(), "", PlainRenderer),
        (Terminal("ascii"), "xterm", PlainRenderer),
        (Terminal(None), "xterm", PlainRenderer),
    ],
)
def test_which_view_fits(out, term, kind, monkeypatch):
    monkeypatch.setenv("TERM", term)
    assert type(choose_renderer(out, CASES, no_color=False)) is kind


@pytest.mark.parametrize(("no_color", "variable"), [(True, None), (False, "1")])
def test_no_colour(no_color, variable, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if variable:
        monkeypatch.setenv("NO_COLOR", variable)
    out = Terminal()
    view = choose_renderer(out, CASES, no_color)
    view.started(replace(H200, cases=()))
    view.finished(H200)
    colours = [code for codes in re.findall(r"\x1b\[([\d;]*)m", out.getvalue()) for code in codes.split(";")]
    assert not {code for code in colours if code not in ("", "0", "1", "2")}
