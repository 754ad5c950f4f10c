"""--help: every option has its place and a word, examples can be run, 80 columns are enough."""

import re
import shlex

import pytest

from harness.errors import Exit
from harness.options import EPILOG, parser

EXAMPLES = re.findall(r"^    (eval\.py.*)$", EPILOG, re.MULTILINE)


def test_it_fits_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert all(len(line) <= 80 for line in parser().format_help().splitlines())


def test_every_option_is_explained_in_a_group():
    groups = parser()._action_groups
    assert {group.title for group in groups} >= {"what is evaluated", "how it is measured", "comparison and history", "output"}
    grouped = [action for group in groups for action in group._group_actions if group.title != "options"]
    assert all(action.help for action in grouped)
    assert len(grouped) == len(parser()._actions) - 1  # all but --help


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_accepted(example):
    parser().parse_args(shlex.split(example.split("&&")[0])[1:])


def test_every_exit_code_is_listed():
    listed = {int(code) for code in re.findall(r"(?<!\S)(\d+) (?=[a-z])", EPILOG.partition("exit codes:")[2])}
    assert listed == {int(code) for code in Exit}
