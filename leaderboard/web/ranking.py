"""The ranking of one device: medals, scores, the gap to the best."""

from collections.abc import Sequence

from harness.report.markup import Html, tag
from harness.report.page_parts import column_head, table
from harness.report.plot_floors import pc
from leaderboard.queries.views import Excluded, Rank
from leaderboard.web import links, words
from leaderboard.web.parts import score_cell, user_link

MEDALS = {1: "gold", 2: "silver", 3: "bronze"}
BAR_PX = 6
GAP_MEANING = "How much longer than the best. The bar is the speed, the best one's full."


def ranking_table(ranks: Sequence[Rank], gpu: str, reader: str | None) -> Html:
    """A row per user; the reader's own is marked."""
    heads = [
        column_head("rank"), column_head("user"), column_head("score µs", True), column_head("gap", True, GAP_MEANING),
        column_head("speed"), column_head("secret µs", True), column_head("submission"), column_head("device"),
        column_head("submitted"),
    ]  # fmt: skip
    return table(f"Best submission of each user on {gpu}", heads, [_row(rank, reader) for rank in ranks])


def medal(rank: int) -> Html:
    """A rank, in metal for the first three."""
    return tag("span", rank, class_=f"medal {MEDALS.get(rank, 'plain')}")


def excluded_list(rows: Sequence[Excluded]) -> Html | None:
    """Submissions that would rank but for a reason, and the reason."""
    if not rows:
        return None
    items = [
        tag(
            "li",
            tag("a", f"#{row.submission_id}", href=links.submission(row.submission_id)),
            " by ",
            user_link(row.user),
            ": ",
            row.reason,
        )
        for row in rows
    ]
    summary = tag("summary", f"Not ranked: {words.count(len(rows), 'submission')}")
    return tag("details", summary, tag("ul", items, class_="warnings"), id="excluded")


def _row(rank: Rank, reader: str | None) -> Html:
    mine = rank.user == reader
    name = tag("th", user_link(rank.user), tag("span", "you", class_="role") if mine else None, scope="row")
    link = tag("a", f"#{rank.submission_id}", href=links.submission(rank.submission_id))
    cells = (
        tag("td", medal(rank.rank)), name, tag("td", words.score(rank.score_ns), class_="number strong"),
        tag("td", words.gap(rank.gap), class_="number"), tag("td", _speed(rank.gap), class_="speed"),
        score_cell(rank.secret_score_ns), tag("td", link, " ", tag("span", rank.file_name, class_="quiet")),
        tag("td", rank.device), tag("td", words.moment(rank.submitted_at)),
    )  # fmt: skip
    return tag("tr", cells, class_="mine" if mine else None)


def _speed(gap: float) -> Html:
    """The speed relative to the best one's."""
    share = 100 / (1 + gap)
    full = tag("rect", x=0, y=0, width="100%", height=BAR_PX, rx=3, class_="bar-full")
    own = tag("rect", x=0, y=0, width=pc(share), height=BAR_PX, rx=3, class_="bar-own")
    return tag("svg", full, own, width="100%", height=BAR_PX, role="img", aria_label=f"{share:.0f}% of the best one's speed")
