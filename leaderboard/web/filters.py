"""Which submissions a list shows: parameters of its address, so that every choice can be linked to."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import Request

from harness.report.markup import Html, tag
from leaderboard.queries.views import SubmissionRow
from leaderboard.web import links
from leaderboard.web.parts import empty, field, submissions_table
from leaderboard.web.words import STATUS_WORDS

PAGE_ROWS = 50
ANY = ("", "any")
MODES = ("test", "benchmark", "leaderboard", "profile")


@dataclass(frozen=True)
class Filters:
    """As they stand in the address; what makes no sense there counts as not given. Dates are days, UTC, both included."""

    user: str = ""
    status: str = ""
    mode: str = ""
    since: str = ""
    until: str = ""
    before: str = ""  # a submission's number: the page below it

    @property
    def any(self) -> bool:
        """Whether something is left out."""
        return any((self.user, self.status, self.mode, self.since, self.until))

    def query(self) -> dict[str, Any]:
        """The arguments of `queries.submissions`."""
        until = _day(self.until)
        return {
            "user": self.user or None,
            "status": self.status or None,
            "mode": self.mode or None,
            "since": _day(self.since),
            "until": until + timedelta(days=1) if until else None,
            "before_id": int(self.before) if self.before else None,
            "limit": PAGE_ROWS + 1,
        }


def filters_of(request: Request) -> Filters:
    """What the address asks for."""
    given = request.query_params
    before = given.get("before", "")
    return Filters(
        user=given.get("user", "").strip(),
        status=_one_of(given.get("status", ""), STATUS_WORDS),
        mode=_one_of(given.get("mode", ""), MODES),
        since=given.get("since", "") if _day(given.get("since", "")) else "",
        until=given.get("until", "") if _day(given.get("until", "")) else "",
        before=before if before.isascii() and before.isdigit() and len(before) < 19 else "",
    )


def filtered_list(path: str, filters: Filters, rows: Sequence[SubmissionRow], board: bool, user: bool) -> list[Html | None]:
    """The form, the rows that it asks for, and the way to older ones. `rows` may hold one more than a page."""
    shown = rows[:PAGE_ROWS]
    found = submissions_table(shown, "Submissions, latest first", board, user) if shown else _none(path, filters)
    return [_form(path, filters, user), found, _older(path, filters, rows)]


def _form(path: str, filters: Filters, user: bool) -> Html:
    statuses = [ANY, *STATUS_WORDS.items()]
    fields = [
        field("user", "User", filters.user) if user else None,
        field("status", "Status", filters.status, statuses),
        field("mode", "Mode", filters.mode, [ANY, *((mode, mode) for mode in MODES)]),
        field("since", "From", filters.since),
        field("until", "To", filters.until),
    ]
    buttons = [tag("button", "Filter", class_="button"), tag("a", "Clear", href=f"{path}#submissions") if filters.any else None]
    return tag(
        "form", fields, tag("p", buttons, class_="buttons"), method="get", action=f"{path}#submissions", class_="filters"
    )


def _older(path: str, filters: Filters, rows: Sequence[SubmissionRow]) -> Html | None:
    newest = tag("a", "Newest", href=_address(path, filters, "")) if filters.before else None
    older = tag("a", "Older", href=_address(path, filters, str(rows[PAGE_ROWS - 1].id))) if len(rows) > PAGE_ROWS else None
    return tag("nav", newest, older, class_="pager", aria_label="Pages of submissions") if newest or older else None


def _address(path: str, filters: Filters, before: str) -> str:
    return links.with_query(path, **{**asdict(filters), "before": before}) + "#submissions"


def _none(path: str, filters: Filters) -> Html:
    if filters.any or filters.before:
        return empty(tag("p", "No submission fits. ", tag("a", "Show all", href=f"{path}#submissions"), "."))
    return empty(tag("p", "Nothing has been submitted yet."))


def _one_of(value: str, known: Any) -> str:
    return value if value in known else ""


def _day(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return None
