"""The front page: every leaderboard, who leads it on which device, and what runs now."""

from collections.abc import Sequence
from datetime import datetime

from harness.report.markup import Html, tag
from leaderboard.queries.views import Board, QueueRow
from leaderboard.web import links, words
from leaderboard.web.layout import document
from leaderboard.web.parts import empty, title, user_link
from leaderboard.web.ranking import medal
from leaderboard.web.visit import Visit


def overview_page(visit: Visit, boards: Sequence[Board], queue: Sequence[QueueRow]) -> str:
    """The whole page."""
    running = sum(row.job.status == "running" for row in queue)
    said = f"{running} running, {len(queue) - running} waiting"
    lede = [words.count(len(boards), "leaderboard"), ". In the queue: ", tag("a", said, href="/queue"), "."]
    cards = [_card(board, visit.now) for board in boards]
    body = tag("div", cards, class_="cards") if cards else _none()
    return document(visit, "Leaderboards", title("Leaderboards", lede=lede), body, live=True)


def _card(board: Board, now: datetime) -> Html:
    key = f"board-{links.board(board.name).rsplit('/', 1)[-1]}"
    heading = tag("h2", tag("a", board.name, href=links.board(board.name)), id=key)
    closing = tag("p", words.deadline(board.deadline, now), class_=f"deadline {'open' if board.is_open else 'closed'}")
    counts = f"{words.count(board.submissions, 'submission')} by {words.count(board.users, 'user')}"
    parts = (
        heading,
        tag("p", first_line(board.description), class_="quiet"),
        _leaders(board),
        closing,
        tag("p", counts, class_="quiet"),
    )
    return tag("article", parts, class_="card", aria_labelledby=key)


def _leaders(board: Board) -> Html:
    rows = [tag("li", _leader(board, gpu)) for gpu in board.gpus]
    return tag("ul", rows, class_="leaders") if rows else tag("p", "No device yet: no runner has joined.", class_="quiet")


def _leader(board: Board, gpu: str) -> list[Html]:
    name = tag("a", gpu, href=links.board(board.name, gpu))
    best = board.leaders.get(gpu)
    if best is None:
        return [name, tag("span", "no ranked submission yet", class_="quiet")]
    value = tag("span", words.big_score(best.score_ns), tag("span", " µs", class_="unit"), class_="leader-score")
    return [name, tag("span", medal(1), " ", user_link(best.user)), value]


def first_line(text: str) -> str:
    """The first line that is not empty."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _none() -> Html:
    return empty(
        tag("p", "There is no leaderboard yet."),
        tag("p", "One is made from a problem folder, the folder of a ", tag("code", "task.yml"), ", when the server starts."),
    )
