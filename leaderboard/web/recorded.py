"""Runs that `eval.py --record` has kept in the same store: an author's own history."""

from collections.abc import Sequence

from harness.report.markup import Html, tag
from harness.report.page import sections
from harness.report.page_head import head_of_page
from harness.report.page_parts import chip, column_head, table
from harness.report.words import NOTHING, started
from harness.result import Result, State
from leaderboard.queries.views import Recorded
from leaderboard.web import links, words
from leaderboard.web.layout import document
from leaderboard.web.parts import empty, field, title
from leaderboard.web.visit import Visit

DIGEST_DIGITS = 12


def recorded_page(visit: Visit, rows: Sequence[Recorded], problem: str, device: str) -> str:
    """The list, newest first; `problem` and `device` are what the filter asks for."""
    heads = [column_head(name) for name in ("run", "started", "problem", "file", "digest", "device", "mode", "cases")]
    found = table("Recorded runs, latest first", [*heads, column_head("score µs", True)], [_row(row) for row in reversed(rows)])
    lede = ["What ", tag("code", "python eval.py --record"), " has kept in this server's store."]
    fields = field("problem", "Problem", problem), field("device", "Device", device)
    button = tag("p", tag("button", "Filter", class_="button"), class_="buttons")
    form = tag("form", fields, button, method="get", action="/history", class_="filters")
    none = empty(tag("p", "No recorded run fits." if problem or device else "Nothing has been recorded yet."))
    return document(visit, "Recorded runs", title("Recorded runs", lede=lede), form, found if rows else none)


def recorded_run_page(visit: Visit, run_id: int, result: Result) -> str:
    """One run, as the report shows it."""
    back = tag("p", tag("a", "Recorded runs", href="/history"), f" / {run_id}, {started(result)}", class_="crumbs")
    return document(visit, f"Run {run_id}", back, head_of_page(result), sections(result))


def _row(row: Recorded) -> Html:
    done = row.state == State.COMPLETE
    passing = row.passed == row.cases_total and done
    cases = f"{row.passed} of {row.cases_total}" + ("" if done else f", {row.state}")
    score = tag("td", words.score(row.score_ns), class_="number")
    cells = (
        tag("th", tag("a", f"#{row.run_id}", href=links.recorded(row.run_id)), scope="row"),
        tag("td", row.started_at[:16].replace("T", " ")), tag("td", row.problem), tag("td", row.file_name),
        tag("td", tag("code", row.sha256[:DIGEST_DIGITS] or NOTHING)), tag("td", row.device),
        tag("td", f"{row.mode}, {row.policy}"), tag("td", chip(passing, cases)), score,
    )  # fmt: skip
    return tag("tr", cells)
