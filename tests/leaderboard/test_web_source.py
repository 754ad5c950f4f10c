"""Listings and differences: not a line is lost, moved or made markup."""

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from web_site import parse_html

from harness.text import printable
from leaderboard.web import source
from leaderboard.web.source import code_listing, difference

TEXTS = st.text(st.sampled_from("ab <>&\"'\\#\n\t\r\x00\x0c\x85\u2028é{}()=:"), max_size=60)
LINES = st.lists(st.sampled_from(["a", "b", "c", "", "x = 1", "<b>"]), max_size=25)


def listed(page) -> list[list[str]]:
    """The characters of every line of a listing, sorted: the tree does not keep the order between texts and elements."""
    return [sorted("".join(_pieces(line)).replace("\n", "")) for line in page.all("span", class_="line")]


def _pieces(element):
    yield from element.texts
    for child in element.children:
        yield from _pieces(child)


@given(TEXTS, st.sampled_from(["s.py", "s.cu"]))
def test_every_line_has_its_number(code, name):
    page = parse_html(str(code_listing(code, name)))
    wanted = printable(code).removesuffix("\n").split("\n")
    assert listed(page) == [sorted(line) for line in wanted]
    assert [line.attributes["id"] for line in page.all("span", class_="line")] == [f"L{n}" for n in range(1, len(wanted) + 1)]


def test_a_huge_file_is_shown_plain(monkeypatch):
    monkeypatch.setattr(source, "MOST_COLOURED", 10)
    page = parse_html(str(code_listing("x = '<script>'\n" * 3, "s.py")))
    assert page.all("span") == []
    assert "<script>" in page.text()


@given(LINES, LINES)
def test_a_difference_turns_one_file_into_the_other(old, new):
    found = difference("\n".join(old), "\n".join(new), ("a", "b"))
    if "\n".join(old) == "\n".join(new):
        assert found is None
        return
    rows = parse_html(str(found)).all("tbody")[0].all("tr")
    before, after = (old or [""]), (new or [""])
    for row in rows:
        old_number, new_number, sign, text = (cell.text() for cell in row.children)
        if sign in ("-", " ") and old_number:
            assert before[int(old_number) - 1] == (text if text != " " else "")
        if sign in ("+", " ") and new_number:
            assert after[int(new_number) - 1] == (text if text != " " else "")
    kinds = [row.attributes.get("class") for row in rows]
    wanted = list(difflib.unified_diff(before, after, lineterm="", n=0))[2:]
    assert kinds.count("added") == sum(line.startswith("+") for line in wanted)
    assert kinds.count("removed") == sum(line.startswith("-") for line in wanted)


def test_files_too_long_to_compare_say_so(monkeypatch):
    monkeypatch.setattr(source, "MOST_COMPARED", 3)
    assert "too long to compare" in str(difference("a\nb", "c\nd", ("a", "b")))


@pytest.mark.parametrize("code", ["\n\nx = 1\n", "x = 1", "x = 1\n\n\n", ""])
def test_numbers_are_the_files_own(code):
    page = parse_html(str(code_listing(code, "s.py")))
    assert listed(page) == [sorted(line) for line in code.removesuffix("\n").split("\n")]
