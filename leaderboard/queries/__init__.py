"""Reading the store: what pages and the API show. Nothing here changes anything."""

from leaderboard.queries.boards import board, leaderboards
from leaderboard.queries.live import queue, runners
from leaderboard.queries.ranking import excluded, history, ranking
from leaderboard.queries.recorded import recorded, recorded_result
from leaderboard.queries.submissions import code, may_see_code, submission, submissions

__all__ = [
    "board", "code", "excluded", "history", "leaderboards", "may_see_code", "queue", "ranking", "recorded", "recorded_result",
    "runners", "submission", "submissions",
]  # fmt: skip
