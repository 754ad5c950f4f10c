"""One submission: its place, its runs against the floors, and for its author the code."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.report.markup import Html, join, tag
from harness.report.page_parts import definitions, section
from harness.report.words import duration, size
from leaderboard.queries.views import JobView, Rank, RunView, SubmissionDetail, SubmissionRow
from leaderboard.web import links, words
from leaderboard.web.layout import action, document
from leaderboard.web.parts import empty, field, tabs, user_link
from leaderboard.web.queue import progress_of
from leaderboard.web.runs import run_body, run_name
from leaderboard.web.source import code_listing
from leaderboard.web.visit import Visit

MODES = ("leaderboard", "benchmark", "test", "profile")  # what says most comes first
MOODS = {"succeeded": "good", "pending": "busy", "running": "busy"}
HIP_MARKS = ("__global__", "hip/hip_runtime.h")  # a source that holds kernels for AMD devices holds one of these


@dataclass(frozen=True)
class SubmissionView:
    """What the page shows. `place` is its rank if it is its author's best; `others` are more submissions of the reader."""

    detail: SubmissionDetail
    run: RunView | None  # the one shown
    place: Rank | None
    others: Sequence[SubmissionRow]


def runs_of_last_attempt(detail: SubmissionDetail) -> list[RunView]:
    """The runs that count, those that say most first."""
    runs = [run for run in detail.runs if run.attempt == detail.job.attempts]
    return sorted(runs, key=lambda run: (run.secret, MODES.index(run.mode) if run.mode in MODES else len(MODES)))


def submission_page(visit: Visit, view: SubmissionView) -> str:
    """The whole page."""
    row = view.detail.row
    parts = (
        _head(visit, view),
        _job(view.detail, visit),
        _links(view),
        section("runs", "Runs", _runs(view)) if _has_runs(view) else None,
        section("code", "Code", _code(view)) if view.detail.code is not None else None,
        section("manage", "Manage", _actions(visit, row)) if visit.owns(row.user) else None,
    )
    return document(visit, f"Submission {row.id}", parts, live=not row.done)


def _has_runs(view: SubmissionView) -> bool:
    return bool(view.detail.runs) or view.detail.row.done


def _links(view: SubmissionView) -> Html | None:
    """The way down a long page, for those who may see all of it."""
    if view.detail.code is None:
        return None
    runs = [("runs", "Runs")] if _has_runs(view) else []
    runs += [("case-1", "Case by case")] if view.run and view.run.result and view.run.result.cases else []
    places = [*runs, ("code", "Code"), ("manage", "Manage")]
    links_down = [tag("li", tag("a", name, href=f"#{key}")) for key, name in places]
    return tag("nav", tag("ul", links_down), aria_label="On this page")


def _head(visit: Visit, view: SubmissionView) -> Html:
    row = view.detail.row
    board = tag("a", row.leaderboard, href=links.board(row.leaderboard, row.gpu))
    context = tag("span", f"Submission {row.id} to ", board, f" on {row.gpu}", class_="eyebrow")
    timed = row.score_ns is not None and row.status == "succeeded"
    value = (
        tag("span", words.big_score(row.score_ns or 0), tag("span", " µs", class_="unit"), class_="score")
        if timed
        else tag("span", words.status(row.status).capitalize(), class_="score none")
    )
    parts = (
        tag("h1", context, " ", value),
        tag("p", tag("span", _verdict(row), class_=f"verdict {MOODS.get(row.status, 'bad')}"), _rank(view.place), class_="lede"),
        _error(row),
        definitions(_figures(view), "figures"),
        _facts(view.detail),
    )
    return tag("div", parts, class_="title")


def _verdict(row: SubmissionRow) -> str:
    if row.status == "hacked" or row.hacked_reason:
        return f"Excluded from the ranking: {row.hacked_reason or row.error}."
    if row.status == "succeeded":
        ranked = row.mode == "leaderboard"
        return "The public and the secret run pass." if ranked else f"The {row.mode} run passes. It does not rank."
    return {
        "pending": "It has not run yet.", "running": "A runner is at work on it.", "timed_out": "It took longer than allowed.",
    }.get(row.status, "It did not pass.")  # fmt: skip


def _rank(place: Rank | None) -> list[str]:
    if place is None:
        return []
    return [f" Ranked {words.ordinal(place.rank)}" + (f", {words.gap(place.gap)} behind the best." if place.gap else ".")]


def _error(row: SubmissionRow) -> Html | None:
    """Why it did not pass; what follows the first line is there for its author alone."""
    if not row.error or not row.done or row.status in ("succeeded", "hacked"):
        return None
    first, _, rest = row.error.strip().removeprefix("❌").strip().partition("\n")
    more = tag("details", tag("summary", "The whole report"), tag("pre", row.error.strip()), id="error") if rest.strip() else None
    return join((tag("p", first, class_="reason"), more))


def _figures(view: SubmissionView) -> list[tuple[str, object]]:
    row, run = view.detail.row, view.run
    passing = sum(case.status == "pass" for case in run.cases) if run else 0
    return [
        ("public score", _microseconds(row.score_ns)),
        ("secret score", _microseconds(row.secret_score_ns)),
        ("behind the best", words.gap(view.place.gap) if view.place and view.place.gap else None),
        (f"cases of the {run_name(run)} run pass" if run else "", f"{passing} of {len(run.cases)}" if run and run.cases else None),
    ]


def _microseconds(score_ns: float | None) -> Html | None:
    return None if score_ns is None else join((words.score(score_ns), tag("small", " µs")))


def _facts(detail: SubmissionDetail) -> Html | None:
    row, job = detail.row, detail.job
    facts = (
        ("Submitted by", user_link(row.user)),
        ("Submitted", words.moment(row.submitted_at)),
        ("File", f"{row.file_name}, {size(detail.size_bytes)}"),
        ("Mode", row.mode),
        ("Runner", job.runner if job.status != "pending" else None),
        ("Waited, ran", _lengths(job)),
        ("SHA-256", tag("code", row.sha256, class_="digest")),
        ("Attempts", job.attempts if job.attempts > 1 else None),
    )
    return definitions(facts, "facts")


def _lengths(job: JobView) -> str | None:
    """How long it waited and how long it took, of a job that has ended."""
    if job.started_at is None or job.ended_at is None:
        return None
    return f"{words.span(job.started_at - job.created_at)}, {words.span(job.ended_at - job.started_at)}"


def _job(detail: SubmissionDetail, visit: Visit) -> Html | None:
    """While it is not done: how far it is."""
    job = detail.job
    if detail.row.done:
        return None
    if job.status == "running":
        since = f"for {words.span(visit.now - job.started_at)}" if job.started_at else ""
        return tag("p", progress_of(job), " ", tag("span", since, class_="quiet"), class_="job", role="status")
    place = f"Number {job.position} in the queue. " if job.position else "In the queue. "
    return tag("p", tag("span", place, tag("a", "See the queue", href="/queue"), "."), class_="job", role="status")


def _runs(view: SubmissionView) -> Html:
    runs, row = runs_of_last_attempt(view.detail), view.detail.row
    if view.run is None:
        return empty(tag("p", "Nothing has run."))
    path = links.submission(row.id)
    places = [(_run_tab(run), f"{path}?run={run.run_id}#runs", run.run_id == view.run.run_id) for run in runs]
    where = (
        ("Device", view.run.device), ("Started", words.moment(view.run.started_at)),
        ("Took", duration((view.run.ended_at - view.run.started_at).total_seconds() * 1e9)), ("Score", _microseconds(view.run.score_ns)),
    )  # fmt: skip
    return join((tabs("Runs", places), definitions(where, "facts run-facts"), run_body(view.run)))


def _run_tab(run: RunView) -> str:
    return f"{'✓' if run.passed else '✗'} {run_name(run)}"


def _code(view: SubmissionView) -> Html:
    row, code = view.detail.row, view.detail.code or ""
    note = tag("p", "Only you and the administrators of this server can see the code.", class_="quiet")
    listing = tag("details", tag("summary", f"{row.file_name}, {words.count(len(code.splitlines()), 'line')}"), code_listing(code, row.file_name), id="source", open=True)
    raw = tag("a", "Download", href=f"{links.submission(row.id)}/code")
    gfx950 = tag("a", "Resources on gfx950 (MI355X)", href=f"{links.submission(row.id)}/gfx950") if _holds_hip(code) else None
    return join((note, tag("p", raw, gfx950, class_="actions"), _compare(view), listing))


def _holds_hip(code: str) -> bool:
    return any(mark in code for mark in HIP_MARKS)


def _compare(view: SubmissionView) -> Html | None:
    """A choice among the reader's other submissions to this leaderboard."""
    choices = [
        (str(other.id), f"#{other.id} {other.file_name}, {words.status(other.status)}" + (f", {words.score(other.score_ns)} µs" if other.score_ns else ""))
        for other in view.others
    ]
    if not choices:
        return None
    chosen = field("from", "Compare with", choices[0][0], choices)
    button = tag("p", tag("button", "Show what changed", class_="button"), class_="buttons")
    return tag("form", chosen, button, method="get", action=f"{links.submission(view.detail.row.id)}/diff", class_="filters")


def _actions(visit: Visit, row: SubmissionRow) -> Html:
    path = links.submission(row.id)
    if not row.done:
        return join((tag("p", "A cancelled submission keeps what it has so far and does not rank."), action(visit, f"{path}/cancel", "Cancel")))
    warning = tag("p", "The submission, its runs and its place in the ranking go; there is no way back.")
    asked = tag("details", tag("summary", "Delete this submission…"), warning, action(visit, f"{path}/delete", "Delete for good", "button danger"), id="delete")
    return asked
