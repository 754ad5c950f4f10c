"""Pieces that several pages share."""

from collections.abc import Iterable, Sequence
from typing import Any

from harness.report.markup import Html, tag
from harness.report.page_parts import chip, column_head, table
from harness.report.words import NOTHING
from leaderboard.queries.views import SubmissionRow
from leaderboard.web import links, words

GOOD, BAD = ("succeeded",), ("failed", "timed_out", "hacked")
FIELD_KINDS = {"since": "date", "until": "date"}


def title(name: Any, eyebrow: Any = None, lede: Any = None) -> Html:
    """The heading of a page; `eyebrow` says above it where one is, `lede` below it what there is to know."""
    above = tag("span", eyebrow, class_="eyebrow") if eyebrow else None
    return tag(
        "div", tag("h1", above, " ", name, class_="name"), tag("p", lede, class_="lede") if lede else None, class_="title"
    )


def empty(*said: Any) -> Html:
    """What stands where there is nothing yet: why, and how that changes."""
    return tag("div", said, class_="empty")


def state_chip(status: str) -> Html:
    """A submission's status: a mark and a word, never colour alone."""
    word = words.status(status)
    if status in GOOD + BAD:
        return chip(status in GOOD, word)
    return tag("span", tag("span", "● " if status == "running" else "○ ", aria_hidden="true"), word, class_=f"chip {status}")


def score_cell(score_ns: float | None) -> Html:
    """A score as a table's cell."""
    return tag("td", words.score(score_ns), class_="number")


def submissions_table(rows: Sequence[SubmissionRow], caption: str, board: bool = False, user: bool = True) -> Html:
    """Submissions, a row each, with status and both scores. `board`, `user`: whether these columns say something."""
    heads = [column_head("submission"), column_head("file")]
    heads += [column_head("leaderboard")] if board else []
    heads += [column_head("user")] if user else []
    heads += [column_head("device"), column_head("mode"), column_head("status")]
    heads += [column_head("public µs", True), column_head("secret µs", True), column_head("submitted")]
    return table(caption, heads, [_row(row, board, user) for row in rows])


def _row(row: SubmissionRow, board: bool, user: bool) -> Html:
    where = tag("td", tag("a", row.leaderboard, href=links.board(row.leaderboard))) if board else None
    who = tag("td", user_link(row.user)) if user else None
    cells = (
        tag("th", tag("a", f"#{row.id}", href=links.submission(row.id)), scope="row"), tag("td", row.file_name), where, who,
        tag("td", row.gpu), tag("td", row.mode), tag("td", state_chip(row.status)), score_cell(row.score_ns),
        score_cell(row.secret_score_ns), tag("td", words.moment(row.submitted_at)),
    )  # fmt: skip
    return tag("tr", cells)


def user_link(name: str) -> Html:
    """A user, and the way to what they submitted."""
    return tag("a", name, href=links.user(name))


def field(name: str, label: str, value: str = "", choices: Iterable[tuple[str, str]] | None = None) -> Html:
    """A labelled field of a form; `choices` (value, text) make it a list."""
    key = f"field-{name}"
    if choices is None:
        box = tag("input", id=key, name=name, value=value, type=FIELD_KINDS.get(name, "text"), autocomplete="off")
    else:
        options = [tag("option", text, value=choice, selected=choice == value or None) for choice, text in choices]
        box = tag("select", options, id=key, name=name)
    return tag("p", tag("label", label, for_=key), box, class_="field")


def tabs(label: str, places: Iterable[tuple[str, str, bool]]) -> Html:
    """Links beside each other (text, address, whether one is there)."""
    items = [tag("li", tag("a", text, href=path, aria_current="page" if here else None)) for text, path, here in places]
    return tag("nav", tag("ul", items), class_="tabs", aria_label=label)


def or_nothing(value: Any) -> Any:
    """`value`, or the sign for none."""
    return NOTHING if value in (None, "") else value
