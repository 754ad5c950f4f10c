"""The commands `compare` and `history` of `python -m harness`."""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from harness.compare import is_regression
from harness.compare_saved import compare_results
from harness.errors import Exit
from harness.history import DEFAULT_FILE, History
from harness.result import read_result, result_text
from harness.terminal.history import history_view
from harness.terminal.notes import summary, warning
from harness.terminal.table import case_table

PIPE_WIDTH = 160  # a pipe has no width of its own; narrower would drop columns


def add_compare(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The parser of `compare`."""
    parser = commands.add_parser("compare", help="say whether one saved Result is faster than another")
    parser.add_argument("baseline", type=Path, metavar="BASELINE.json", help="the Result to compare with")
    parser.add_argument("result", type=Path, metavar="RESULT.json", help="the Result that may be faster")
    parser.add_argument("--fail-on-regression", action="store_true", help="exit code 4 if a case or the whole is slower")
    parser.add_argument("--no-color", action="store_true", help="no colour (NO_COLOR works too)")
    parser.set_defaults(run=_compare)


def add_history(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The parser of `history`."""
    parser = commands.add_parser("history", help="list the runs that eval.py --record has kept")
    parser.add_argument("--problem", metavar="P", help="only this problem")
    parser.add_argument("--device", metavar="D", help="only devices with D in their name")
    parser.add_argument("--limit", type=_count, default=20, metavar="N", help="the latest N runs; default: 20")
    parser.add_argument("--show", type=int, metavar="RUN", help="write the Result of one run as JSON on stdout")
    parser.add_argument("--file", type=Path, default=DEFAULT_FILE, metavar="FILE", help=f"default: {DEFAULT_FILE}")
    parser.add_argument("--no-color", action="store_true", help="no colour (NO_COLOR works too)")
    parser.set_defaults(run=_history)


def _compare(options: argparse.Namespace) -> int:
    result, remarks = compare_results(read_result(options.result), read_result(options.baseline))
    console = _console(options.no_color)
    console.print(case_table(console, result.cases), *map(warning, remarks), summary(result), sep="\n")
    return int(Exit.REGRESSION) if options.fail_on_regression and is_regression(result) else int(Exit.OK)


def _history(options: argparse.Namespace) -> int:
    history = History(options.file)
    if options.show is not None:
        sys.stdout.write(result_text(history.result(options.show)))
        return int(Exit.OK)
    runs = history.runs(options.problem, options.device, options.limit)
    _console(options.no_color).print(history_view(runs) if runs else "no such runs")
    return int(Exit.OK)


def _console(no_color: bool) -> Console:
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(no_color=no_color or None, highlight=False, width=width)


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text} is not a number of runs, 1 or more")
    return int(text)
