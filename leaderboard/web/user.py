"""A user: where they rank, and what they submitted."""

from collections.abc import Sequence

from harness.report.markup import Html, tag
from harness.report.page_parts import column_head, section, table
from leaderboard.queries.views import Rank, SubmissionRow
from leaderboard.web import links, words
from leaderboard.web.filters import Filters, filtered_list
from leaderboard.web.layout import document
from leaderboard.web.parts import title
from leaderboard.web.ranking import medal
from leaderboard.web.visit import Visit

Place = tuple[str, str, Rank]  # leaderboard, GPU, rank


def user_page(visit: Visit, name: str, places: Sequence[Place], rows: Sequence[SubmissionRow], filters: Filters) -> str:
    """The whole page."""
    ranked = section("places", "Places", _places(places)) if places else None
    listed = filtered_list(links.user(name), filters, rows, board=True, user=False)
    lede = "This is you." if visit.name == name else None
    return document(visit, name, title(name, eyebrow="User", lede=lede), ranked, section("submissions", "Submissions", listed))


def _places(places: Sequence[Place]) -> Html:
    heads = [column_head("rank"), column_head("leaderboard"), column_head("device"), column_head("score µs", True)]
    heads += [column_head("gap", True), column_head("submission")]
    return table("Best submissions", heads, [_row(*place) for place in places])


def _row(board: str, gpu: str, rank: Rank) -> Html:
    cells = (
        tag("td", medal(rank.rank)), tag("th", tag("a", board, href=links.board(board, gpu)), scope="row"), tag("td", gpu),
        tag("td", words.score(rank.score_ns), class_="number strong"), tag("td", words.gap(rank.gap), class_="number"),
        tag("td", tag("a", f"#{rank.submission_id}", href=links.submission(rank.submission_id))),
    )  # fmt: skip
    return tag("tr", cells)
