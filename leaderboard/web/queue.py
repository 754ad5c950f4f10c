"""What runs, what waits, and on which machines."""

from collections.abc import Sequence
from datetime import datetime

from harness.report.markup import Html, tag
from harness.report.page_parts import column_head, section, table
from leaderboard.queries.views import JobView, QueueRow, RunnerView
from leaderboard.web import links, words
from leaderboard.web.layout import document
from leaderboard.web.parts import empty, or_nothing, title, user_link
from leaderboard.web.visit import Visit

RUNNER_WORDS = {"idle": "idle", "busy": "busy", "lost": "not heard from"}


def queue_page(visit: Visit, queue: Sequence[QueueRow], runners: Sequence[RunnerView]) -> str:
    """The whole page."""
    running = [row for row in queue if row.job.status == "running"]
    waiting = [row for row in queue if row.job.status != "running"]
    said = f"{len(running)} running, {len(waiting)} waiting, {words.count(sum(r.state != 'lost' for r in runners), 'runner')}."
    parts = (
        title("Queue", lede=tag("span", said, role="status")),
        section("running", "Running", _running(running, visit.now)),
        section("waiting", "Waiting", _waiting(waiting, visit.now)),
        section("runners", "Runners", _runners(runners, visit.now)),
    )
    return document(visit, "Queue", parts, live=True)


def progress_of(job: JobView) -> Html:
    """How far a running job is, as a bar and in words."""
    done = job.progress or {}
    case, cases, mode = done.get("case"), done.get("cases"), done.get("mode")
    if not isinstance(case, int) or not isinstance(cases, int) or cases < 1:
        return tag("span", "starting", class_="quiet")
    said = [f"{'secret ' if done.get('secret') else ''}{mode}, case {case} of {cases}", done.get("phase")]
    bar = tag("progress", max=cases, value=max(0, case - 1), aria_label=f"{mode}: cases done")
    return tag("span", bar, tag("span", ", ".join(str(part) for part in said if part), class_="quiet"), class_="progress-line")


def _running(rows: Sequence[QueueRow], now: datetime) -> Html:
    if not rows:
        return empty(tag("p", "Nothing is running."))
    heads = [column_head(name) for name in ("submission", "progress", "for", "leaderboard", "device", "mode", "user", "runner")]
    return table("Running submissions", heads, [_running_row(row, now) for row in rows])


def _running_row(row: QueueRow, now: datetime) -> Html:
    since = words.span(now - row.job.started_at) if row.job.started_at else None
    state = tag("td", progress_of(row.job)), tag("td", or_nothing(since))
    return tag("tr", _link(row), state, _what(row), tag("td", or_nothing(row.job.runner)))


def _waiting(rows: Sequence[QueueRow], now: datetime) -> Html:
    if not rows:
        return empty(tag("p", "Nothing is waiting."))
    heads = [
        column_head("place", True),
        *(column_head(name) for name in ("submission", "leaderboard", "device", "mode", "user", "for")),
    ]
    return table("Waiting submissions, the next first", heads, [_waiting_row(row, now) for row in rows])


def _waiting_row(row: QueueRow, now: datetime) -> Html:
    place = tag("td", or_nothing(row.job.position), class_="number")
    return tag("tr", place, _link(row), _what(row), tag("td", words.span(now - row.job.created_at)))


def _link(row: QueueRow) -> Html:
    return tag("th", tag("a", f"#{row.submission_id}", href=links.submission(row.submission_id)), scope="row")


def _what(row: QueueRow) -> list[Html]:
    return [
        tag("td", tag("a", row.leaderboard, href=links.board(row.leaderboard, row.gpu))),
        tag("td", row.gpu), tag("td", row.mode), tag("td", user_link(row.user)),
    ]  # fmt: skip


def _runners(runners: Sequence[RunnerView], now: datetime) -> Html:
    if not runners:
        return empty(tag("p", "No runner has joined: submissions wait until one does."))
    heads = [column_head(name) for name in ("runner", "GPU", "device", "state", "works on", "last heard from")]
    return table("Machines that run submissions", heads, [_runner(runner, now) for runner in runners])


def _runner(runner: RunnerView, now: datetime) -> Html:
    works = tag("a", f"#{runner.submission_id}", href=links.submission(runner.submission_id)) if runner.submission_id else None
    state = tag(
        "span",
        RUNNER_WORDS.get(runner.state, runner.state),
        class_=f"chip {'fail' if runner.state == 'lost' else runner.state}",
    )
    seen = f"{words.span(now - runner.last_seen_at)} ago" if runner.last_seen_at else None
    cells = (runner.gpu, runner.device, state, works, seen)
    return tag("tr", tag("th", runner.name, scope="row"), [tag("td", or_nothing(cell)) for cell in cells])
