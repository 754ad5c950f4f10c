"""What changed between the code of two submissions, for whoever may see both."""

from harness.report.markup import Html, tag
from leaderboard.queries.views import SubmissionDetail
from leaderboard.web import links, words
from leaderboard.web.layout import document
from leaderboard.web.parts import empty, title
from leaderboard.web.source import difference
from leaderboard.web.visit import Visit


def compare_page(visit: Visit, old: SubmissionDetail, new: SubmissionDetail) -> str:
    """The whole page. Both have their code: the caller has checked."""
    names = f"#{old.row.id} {old.row.file_name}", f"#{new.row.id} {new.row.file_name}"
    found = difference(old.code or "", new.code or "", names)
    lede = [
        "From ",
        _name(old),
        " to ",
        _name(new),
        _scores(old, new),
        " ",
        tag("a", "Other way round", href=links.diff(new.row.id, old.row.id)),
        ".",
    ]
    same = empty(tag("p", "The files are the same."))
    return document(visit, f"{old.row.id} to {new.row.id}", title("What changed", new.row.leaderboard, lede), found or same)


def _name(detail: SubmissionDetail) -> Html:
    return tag("a", f"#{detail.row.id}", href=links.submission(detail.row.id))


def _scores(old: SubmissionDetail, new: SubmissionDetail) -> str:
    before_ns, after_ns = old.row.score_ns, new.row.score_ns
    if not before_ns or not after_ns or old.row.gpu != new.row.gpu or old.row.mode != new.row.mode:
        return "."
    return f": {words.score(before_ns)} to {words.score(after_ns)} µs, {after_ns / before_ns - 1:+.1%}."
