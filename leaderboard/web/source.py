"""Source code with its syntax coloured, and the difference of two sources. Whoever calls this has checked who looks."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import CppLexer, PythonLexer

from harness.report.markup import Html, tag
from harness.text import printable

MOST_COLOURED = 300_000  # characters; a larger file is shown plain: colouring a megabyte takes seconds
MOST_COMPARED = 20_000  # lines of both files
CONTEXT_LINES = 4
C_SUFFIXES = (".cu", ".cuh", ".cpp")


@dataclass(frozen=True)
class _Line:
    """One line of a difference: its numbers in both files, and how it begins: `+`, `-`, blank, or `@` between hunks."""

    old: int | None
    new: int | None
    sign: str
    text: str


def code_listing(code: str, file_name: str) -> Html:
    """The file with numbered lines that `#L12` leads to. A line feed ends a line; what is unprintable is shown escaped."""
    text = printable(code)
    if len(text) > MOST_COLOURED:
        return tag("pre", text, class_="source", tabindex=0)
    as_it_is = {"stripnl": False, "ensurenl": False}  # else empty lines at the top would shift the numbers
    lexer = CppLexer(**as_it_is) if file_name.endswith(C_SUFFIXES) else PythonLexer(**as_it_is)
    formatter = HtmlFormatter(nowrap=True)
    coloured = highlight(text.removesuffix("\n") + "\n", lexer, formatter).removesuffix("\n").split("\n")
    rows = [_numbered(number, Html(line)) for number, line in enumerate(coloured, start=1)]
    return tag("pre", tag("code", rows), class_="source", tabindex=0, role="region", aria_label=f"Code of {file_name}")


def _numbered(number: int, line: Html) -> Html:
    anchor = tag("a", href=f"#L{number}", class_="line-number", data_line=number, aria_label=f"line {number}", tabindex=-1)
    return tag("span", anchor, line, "\n", id=f"L{number}", class_="line")


def difference(old: str, new: str, names: tuple[str, str]) -> Html | None:
    """The lines that changed, with some around them; None if nothing did."""
    before, after = printable(old).split("\n"), printable(new).split("\n")
    if before == after:
        return None
    if len(before) + len(after) > MOST_COMPARED:
        return tag("p", f"The files have more than {MOST_COMPARED} lines together: too long to compare here.", class_="quiet")
    lines = list(_lines(before, after))
    added, removed = (sum(line.sign == sign for line in lines) for sign in "+-")
    said = tag("caption", f"{names[0]} to {names[1]}: {added} added, {removed} removed")
    heads = [tag("th", name, scope="col", class_="unseen") for name in ("old line", "new line", "change", "text")]
    body = tag("table", said, tag("thead", tag("tr", heads)), tag("tbody", map(_row, lines)), class_="diff")
    return tag("div", body, class_="scroll", tabindex=0, role="region", aria_label="Difference")


def _lines(before: list[str], after: list[str]) -> Iterator[_Line]:
    """The lines of all hunks, a `@` line before each but the first."""
    groups = difflib.SequenceMatcher(None, before, after).get_grouped_opcodes(CONTEXT_LINES)
    for index, group in enumerate(groups):
        if index:
            yield _Line(None, None, "@", f"line {group[0][3] + 1}")
        for kind, old_from, old_to, new_from, new_to in group:
            if kind == "equal":
                for old, new in zip(range(old_from, old_to), range(new_from, new_to), strict=True):
                    yield _Line(old + 1, new + 1, " ", after[new])
                continue
            yield from (_Line(old + 1, None, "-", before[old]) for old in range(old_from, old_to))
            yield from (_Line(None, new + 1, "+", after[new]) for new in range(new_from, new_to))


_KINDS = {"+": "added", "-": "removed", "@": "hunk", " ": None}


def _row(line: _Line) -> Html:
    numbers = [tag("td", "" if number is None else number, class_="line-number") for number in (line.old, line.new)]
    text = tag("td", tag("code", line.text or " "))
    return tag("tr", numbers, tag("td", "" if line.sign == "@" else line.sign, class_="sign"), text, class_=_KINDS[line.sign])
