"""A submission as lines for a terminal. Whatever the server or somebody's kernel says is made printable."""

from collections.abc import Iterable, Iterator, Mapping

from popcorn.follow import is_over, status_of
from popcorn.http_models import FAILED_STATUSES, RunDetail, RunSummary, SubmissionDetail, SubmissionSummary
from popcorn.text import printable

NOTHING = "-"
NAME_CHARACTERS = 28
MOST_CASES = 10_000
FIGURES = ("mean", "err", "best", "worst")
HEADS = ("id", "leaderboard", "file", "submitted", "status", "scores")


def run_lines(run: RunDetail) -> list[str]:
    """A run that has ended: its verdict, then the server's report, or the cases as the evaluator's lines tell them."""
    name = f"{'secret' if run.secret else 'public'} {run.mode}"
    score = f", {microseconds(run.score)}" if run.score is not None else ""
    body = printable(run.report).splitlines() if run.report else case_lines(run.result or {})
    head = printable(f"{_mark(run.passed)} {name} run on {run.runner or 'a runner'}{score}")
    return [head, *(f"  {line}".rstrip() for line in body)]


def case_lines(result: Mapping[str, str]) -> list[str]:
    """Every case of an evaluator's `key: value` lines, in the words of the public report."""
    kind = "test" if "test-count" in result else "benchmark"
    count = result.get(f"{kind}-count", "")
    lines = []
    for index in range(min(int(count), MOST_CASES) if count.isdecimal() else 0):
        lines += _case({key: value for key in _KEYS if (value := result.get(f"{kind}.{index}.{key}")) is not None})
    return lines


_KEYS = ("spec", "status", "error", "message", *FIGURES)


def _case(case: Mapping[str, str]) -> Iterator[str]:
    failed = case.get("status") == "fail" or "error" in case
    yield printable(f"{_mark(not failed)} {case.get('spec', '')}")
    if all(key in case for key in FIGURES) and not failed:
        mean, err, best, worst = (_microseconds_of_ns(case[key]) for key in FIGURES)
        yield f" ⏱ {mean} ± {err} µs"
        yield f" ⚡ {best} 🐌 {worst} µs"
    said = case.get("error", "") if failed else case.get("message", "")
    for line in said.replace("\\n", "\n").splitlines():
        yield printable(f"> {line}")


def _mark(passed: bool) -> str:
    return "✅" if passed else "❌"


def _microseconds_of_ns(text: str) -> str:
    try:
        return f"{float(text) / 1e3:.4g}"
    except ValueError:
        return NOTHING


def microseconds(score_s: float) -> str:
    """A score, which the wire gives in seconds, in microseconds and with all its digits: rounding would hide ties."""
    return f"{score_s * 1e6:.12g} µs"


def score_lines(submission: SubmissionDetail) -> list[str]:
    """The scores, in the words of the public client."""
    return [
        printable(f"Geomean score ({'secret' if run.secret else 'public'}) on {run.runner}: {microseconds(run.score)}")
        for run in submission.runs
        if run.score is not None and run.mode == "leaderboard"
    ]


def head_line(submission: SubmissionDetail) -> str:
    """Number, file, leaderboard, time and status."""
    what = f"#{submission.id} {submission.file_name} on {submission.leaderboard_name}, {_minute(submission.submission_time)}"
    return printable(f"{what}: {_words(status_of(submission))}")


def end_line(submission: SubmissionDetail) -> str:
    """How it ended; the first line of the job's error, as the reports of its runs have told the rest."""
    error = (submission.job.error or "") if submission.job else ""
    first = error.strip().removeprefix("❌").strip().partition("\n")[0]
    why = f": {first}" if first and status_of(submission) in FAILED_STATUSES else ""
    return printable(f"Submission {submission.id}: {_words(status_of(submission))}{why}")


def passed(submission: SubmissionDetail) -> bool:
    """Whether every run was made and passed: a server that says `succeeded` over a failed run is not believed."""
    ended_well = is_over(submission) and status_of(submission) not in FAILED_STATUSES
    return ended_well and bool(submission.runs) and all(run.passed for run in submission.runs)


def list_lines(submissions: Iterable[SubmissionSummary]) -> Iterator[str]:
    """A table of submissions; each row with its status and every score."""
    rows = [HEADS, *map(_row, submissions)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(submission: SubmissionSummary) -> tuple[str, ...]:
    status = submission.status or ("done" if submission.done else "waiting or running")
    scores = [_score(run, run.score) for run in submission.runs if run.score is not None]
    names = _short(submission.leaderboard_name), _short(submission.file_name)
    return str(submission.id), *names, _minute(submission.submission_time), _words(status), ", ".join(scores) or NOTHING


def _score(run: RunSummary, score_s: float) -> str:
    kind = "" if run.secret is None else " secret" if run.secret else " public"
    return f"{_short(run.gpu_type)}{kind} {microseconds(score_s)}"


def _minute(when: str) -> str:
    return printable(when[:16].replace("T", " "))


def _words(status: str) -> str:
    return printable(status.replace("_", " "))


def _short(text: str) -> str:
    one_line = " ".join(printable(text).split())
    return one_line if len(one_line) <= NAME_CHARACTERS else one_line[: NAME_CHARACTERS - 1] + "…"
