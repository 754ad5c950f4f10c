"""A leaderboard on one device: ranking, score against date, submissions."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from harness.report.markup import Html, join, tag
from harness.report.page_parts import definitions, section
from leaderboard.queries.views import Board, Excluded, Rank, ScorePoint, SubmissionRow
from leaderboard.web import links, words
from leaderboard.web.filters import Filters, filtered_list
from leaderboard.web.layout import document
from leaderboard.web.overview import first_line
from leaderboard.web.parts import empty, tabs, user_link
from leaderboard.web.plot_history import history_plot
from leaderboard.web.ranking import excluded_list, ranking_table
from leaderboard.web.visit import Visit

RANKED_BY = {"geom": "geometric mean over the cases", "mean": "mean over the cases", "last": "the last case"}


@dataclass(frozen=True)
class BoardView:
    """What the page shows. `gpu` is None where no device is known."""

    board: Board
    gpu: str | None
    ranks: Sequence[Rank]
    excluded: Sequence[Excluded]
    points: Sequence[ScorePoint]
    rows: Sequence[SubmissionRow]
    filters: Filters


def board_page(visit: Visit, view: BoardView, address: str) -> str:
    """The whole page; `address` is the server's, for the command that submits."""
    board, gpu = view.board, view.gpu
    path = links.board(board.name, gpu)
    plot = history_plot(view.points)
    listed = filtered_list(path, view.filters, view.rows, board=False, user=True)
    parts = (
        _head(visit, view),
        tabs("Devices", [(name, links.board(board.name, name), name == gpu) for name in board.gpus]) if board.gpus else None,
        section("ranking", "Ranking", _ranking(visit, view)),
        section("history", "Score against date", plot) if plot else None,
        section("submissions", "Submissions", listed),
        section("take-part", "Take part", _take_part(board, gpu, address)),
        section("about", "About", _about(board)),
    )
    return document(visit, f"{board.name} on {gpu}" if gpu else board.name, parts, live=not view.filters.before)


def _head(visit: Visit, view: BoardView) -> Html:
    board = view.board
    context = tag("span", f"{board.name}{f' on {view.gpu}' if view.gpu else ''}", class_="eyebrow")
    mood = "good" if board.is_open else "quiet"
    closing = tag("span", words.deadline(board.deadline, visit.now), ".", class_=f"verdict {mood}")
    value, by = _best(view.ranks[0]) if view.ranks else (tag("span", "No score yet", class_="score none"), None)
    parts = (
        tag("h1", context, " ", value),
        tag("p", closing, by, class_="lede"),
        tag("p", first_line(board.description), class_="quiet"),
        _figures(visit, view),
    )
    return tag("div", parts, class_="title")


def _best(rank: Rank) -> tuple[Html, list[Html | str]]:
    """The score to beat, and whose it is."""
    value = tag("span", words.big_score(rank.score_ns), tag("span", " µs", class_="unit"), class_="score")
    link = tag("a", f"#{rank.submission_id}", href=links.submission(rank.submission_id))
    return value, [" The best is ", link, " by ", user_link(rank.user), "."]


def _figures(visit: Visit, view: BoardView) -> Html | None:
    own = next((rank for rank in view.ranks if rank.user == visit.name), None)
    figures = (
        ("your place", _place(own) if own else None),
        ("ranked", words.count(len(view.ranks), "user")),
        ("submissions", view.board.submissions),
        ("records so far", sum(point.is_record for point in view.points) or None),
    )
    return definitions(figures, "figures")


def _place(own: Rank) -> Html:
    return join((words.ordinal(own.rank), " ", tag("small", words.gap(own.gap))))


def _ranking(visit: Visit, view: BoardView) -> Html:
    if not view.ranks:
        said = "Nobody is ranked yet. A submission ranks when both its public and its secret leaderboard run pass."
        return join((empty(tag("p", said)), excluded_list(view.excluded)))
    return join((ranking_table(view.ranks, view.gpu or "", visit.name), excluded_list(view.excluded)))


def _take_part(board: Board, gpu: str | None, address: str) -> Html:
    if not board.is_open:
        return tag(
            "p", "This leaderboard is closed: new submissions are refused, and what was submitted stays.", class_="quiet"
        )
    server = f"POPCORN_API_URL={shlex.quote(address)}"
    where = f"--leaderboard {shlex.quote(board.name)} --gpu {shlex.quote(gpu or 'GPU')}"
    command = f"{server} popcorn submit {where} --mode leaderboard submission.py"
    own = f"{server} python -m popcorn submit {where} submission.py"
    return join(
        (
            tag("p", "With the public client:"),
            tag("pre", command, class_="copy"),
            tag("p", "Or with the one that comes with this server, for machines without the public one:", class_="later"),
            tag("pre", own, class_="copy"),
        )
    )


def _about(board: Board) -> Html:
    cases = [_cases(name, listed) for name, listed in board.cases.items() if listed]
    ranked = tag("p", f"The score is the {RANKED_BY.get(board.ranking_by, board.ranking_by)}, lower is better.")
    described = tag("div", [tag("p", part) for part in board.description.split("\n\n") if part.strip()], class_="prose")
    return join((described if first_line(board.description) else None, ranked, cases))


def _cases(name: str, listed: Sequence[str]) -> Html:
    summary = tag("summary", f"{words.count(len(listed), f'{name} case')}")
    return tag("details", summary, tag("pre", "\n".join(listed)), id=f"cases-{name}")
