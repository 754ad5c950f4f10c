"""The finished table in every width: nothing is cut off, what is shown at which width is pinned by snapshots."""

import re
from dataclasses import replace

import pytest
from terminal_results import H200, check_snapshot, console_of, mixed_result

from harness.result import Change, Comparison
from harness.terminal.cells import share_style
from harness.terminal.live import finished_view
from harness.terminal.notes import heading
from harness.terminal.parts import bar
from harness.terminal.table import Running, case_table
from popcorn.cases import parse_case


def drawn(result, width: int) -> str:
    console = console_of(width)
    console.print(heading(result), finished_view(console, result), sep="\n")
    return console.export_text()


@pytest.mark.parametrize("width", [140, 100, 80, 60, 40])
def test_a_run_that_passes(width):
    check_snapshot(f"terminal-pass-{width}.txt", drawn(H200, width))


@pytest.mark.parametrize("width", [140, 80, 60])
def test_a_run_that_does_not(width):
    check_snapshot(f"terminal-fail-{width}.txt", drawn(mixed_result(), width))


@pytest.mark.parametrize("width", range(20, 150, 7))
def test_no_line_is_wider_than_the_terminal_and_no_cell_is_cut(width):
    console = console_of(width)
    console.print(finished_view(console, H200))
    lines = console.export_text().splitlines()
    assert all(len(line) <= width for line in lines)
    assert not any("…" in line for line in lines)
    assert any("11." in line for line in lines)  # the first case's median survives every width


def compared(change: Change):
    cases = tuple(replace(case, comparison=Comparison(0.5, (0.4, 0.6), change, True, case.timing)) for case in H200.cases)
    return replace(H200, cases=cases, comparison=cases[0].comparison, baseline=replace(H200.submission, name="base.py"))


@pytest.mark.parametrize("change", Change)
def test_a_comparison_has_a_column_and_a_last_line(change):
    said = drawn(compared(change), 170)
    assert said.count(f"0.500 [0.400, 0.600] {change.value}") == len(H200.cases)
    assert change.value in said.splitlines()[-1]
    assert "base.py" in said.splitlines()[-1]


def test_a_running_case_shows_its_estimate_and_the_waiting_ones_their_names():
    console = console_of(100)
    case = parse_case("batchsize: 2; qseqlen: 1; kvseqlen: 64; seed: 1", "t")
    running = Running(case, "sampling", tuple(range(10_000, 11_000)))
    console.print(case_table(console, H200.cases[:1], running, [parse_case("size: 3; seed: 9", "t")]))
    said = console.export_text()
    assert re.search(r"2 x 1 x 64 +\.\.\. +10\.50 ± 0\.031, n=1000", said)
    assert said.splitlines()[-2].strip() == "size 3"


def test_a_mode_without_times_has_no_column_of_times():
    cases = [replace(case, timing=None, floor=None) for case in H200.cases]
    console = console_of(100)
    console.print(case_table(console, cases, timed=False))
    assert "median" not in console.export_text()


def test_what_a_submission_chose_is_not_taken_for_markup():
    case = replace(H200.cases[0], backend="[bold red]x[/]", printed="[link=http://x]y")
    assert "[bold red]x[/]" in drawn(replace(H200, cases=(case,)), 200)
    assert "[link=http://x]y" in drawn(replace(H200, cases=(case,)), 200)


def test_colours_repeat_what_words_say():
    console = console_of(140, color=True)
    console.print(finished_view(console, mixed_result()))
    said = console.export_text(styles=True)
    assert "\x1b[32mpass" in said
    assert "\x1b[1;31mFAIL" in said


@pytest.mark.parametrize(("share", "style"), [(1.2, "green"), (0.75, "green"), (0.5, "yellow"), (0.01, "dark_orange")])
def test_shares_of_a_floor(share, style):
    assert share_style(share) == style


@pytest.mark.parametrize(("share", "line"), [(0.0, "────"), (0.125, "╾───"), (0.5, "━━──"), (1.0, "━━━━"), (7.0, "━━━━")])
def test_bars(share, line):
    assert bar(share, 4, "green").plain == line
