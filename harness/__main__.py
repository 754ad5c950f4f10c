"""`python -m harness COMMAND`: what can be done with saved Results, without a device and without torch."""

import argparse
import sys
from pathlib import Path

from harness.errors import HarnessError
from harness.report import RENDERERS
from harness.report.writer import FileWriter
from harness.result import read_result
from harness.saved import add_compare, add_history


def parser() -> argparse.ArgumentParser:
    """The commands and their options; each sets `run`, a function of the options that returns the exit code."""
    made = argparse.ArgumentParser(prog="python -m harness", description="Work with saved Results.", allow_abbrev=False)
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    report = commands.add_parser("report", help="render a saved Result; without an option, as Markdown on stdout")
    report.add_argument("result", type=Path, metavar="RESULT.json", help="what eval.py --json has written")
    for name in RENDERERS:
        report.add_argument(f"--{name}", type=Path, metavar="FILE", help=f"write {name} here")
    report.set_defaults(run=_report)
    add_compare(commands)
    add_history(commands)
    return made


def main(argv: list[str]) -> int:
    """Run a command; the exit code. A user's mistake is one line on stderr."""
    options = parser().parse_args(argv)
    try:
        return options.run(options)
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return int(error.exit_code)


def _report(options: argparse.Namespace) -> int:
    result = read_result(options.result)
    wanted = [(name, path) for name in RENDERERS if (path := getattr(options, name))]
    for name, path in wanted:
        FileWriter(f"--{name}", path, RENDERERS[name]).write(result)
    if not wanted:
        sys.stdout.write(RENDERERS["markdown"](result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
