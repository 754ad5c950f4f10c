"""The Markdown table: what it says, and that nothing in it can act in a pull request."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_results import ALL_STATUSES, STATES, hostile
from snapshots import check_snapshot

from harness.report.markdown import code, render_markdown
from harness.text import printable

CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.*?)(?<!`)\1(?!`)")


@pytest.mark.parametrize("name", STATES)
def test_snapshot(name):
    check_snapshot(f"report-{name.replace(' ', '-')}.md", render_markdown(STATES[name]))


@settings(deadline=None)
@given(st.text())
def test_a_code_span_holds_the_whole_text(text):
    span = code(text)
    found = CODE_SPAN.fullmatch(span)
    assert found
    assert found[2].strip() == " ".join(printable(text).split())


def test_what_is_hostile_stays_inside_code():
    text = render_markdown(hostile())
    outside = CODE_SPAN.sub("", text.replace("\\|", ""))
    for dangerous in ("<", "@", "http", "script", "\u202e", "\x1b"):
        assert dangerous not in outside, dangerous


@pytest.mark.parametrize("result", [*STATES.values(), hostile()])
def test_rows_have_as_many_cells_as_the_header(result):
    rows = [line for line in render_markdown(result).splitlines() if line.startswith("| ")]
    assert len(rows) == (len(result.cases) + 2 if result.cases else 0)
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) <= 1


def test_every_case_that_did_not_pass_has_its_reason():
    text = render_markdown(STATES["every status"])
    for case in ALL_STATUSES[1:]:
        assert f"{case.status.value}: `" in text


def test_an_error_of_the_run_is_shown_as_code():
    assert "**`Failed: cannot`.**" in render_markdown(replace(STATES["failed"], error="cannot"))
