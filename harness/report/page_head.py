"""The top of the page: the score, how it ended, and what was evaluated where."""

from harness.report.columns import mean_share
from harness.report.markup import Html, tag
from harness.report.page_parts import definitions
from harness.report.words import compared, duration, headline, microseconds, number, score_meaning, size, started
from harness.result import CaseResult, Result, State, Submission

SECTIONS = (
    ("cases", "Cases"), ("warnings", "Warnings"), ("details", "Case by case"), ("device", "Device"), ("reproduce", "Reproduce"),
    ("raw", "Raw numbers"), ("glossary", "How to read"),
)  # fmt: skip


def head_of_page(result: Result) -> Html:
    """Score, verdict, key figures, facts, links to the sections."""
    parts = _title(result), _progress(result), definitions(_figures(result.cases), "figures"), _facts(result), _links()
    return tag("header", parts)


def _title(result: Result) -> Html:
    context = tag("span", f"{result.problem} on {result.device.name}", class_="eyebrow")
    mood = "good" if result.ok else "busy" if result.state is State.RUNNING else "bad"
    said = [tag("span", headline(result), ".", class_=f"verdict {mood}")]
    score = result.score
    if score and score.value_ns is not None:
        value = tag("span", microseconds(score.value_ns), tag("span", " µs", class_="unit"), class_="score")
        said.append(tag("span", f" The score is the {score_meaning(result)}.", class_="quiet"))
    else:
        value = tag("span", "No score yet" if result.state is State.RUNNING else "No score", class_="score none")
    against = tag("p", compared(result), ".", class_="lede") if result.comparison else None
    return tag("div", tag("h1", context, " ", value), tag("p", said, class_="lede"), against, class_="title")


def _progress(result: Result) -> Html | None:
    if result.state is not State.RUNNING:
        return None
    bar = tag("progress", max=result.cases_total, value=len(result.cases), aria_label="cases done")
    return tag("p", bar, " The page reloads itself until the run ends.", class_="quiet progress")


def _figures(cases: tuple[CaseResult, ...]) -> list[tuple[str, str]]:
    """Up to four numbers that say most."""
    return [
        ("pass the official verdict", _passing([case.official.ok for case in cases if case.official], len(cases))),
        ("pass the strict verdict", _passing([case.strict.ok for case in cases if case.strict], len(cases))),
        ("of the measured floor, geometric mean", _share(cases)),
        ("worst strict error, relative L2", _worst(cases)),
    ]


def _passing(verdicts: list[bool], total: int) -> str:
    return f"{sum(verdicts)} of {total}" if verdicts else ""


def _share(cases: tuple[CaseResult, ...]) -> str:
    value = mean_share(cases, "measured")
    return "" if value is None else f"{value:.0%}"


def _worst(cases: tuple[CaseResult, ...]) -> str:
    errors = [case.strict.rel_l2_worst for case in cases if case.strict and case.strict.rel_l2_worst is not None]
    return number(max(errors)) if errors else ""


def _facts(result: Result) -> Html | None:
    facts = (
        ("Submission", _file(result.submission)),
        ("SHA-256", _digest(result.submission)),
        ("Baseline", _file(result.baseline) if result.baseline else None),
        ("Baseline's SHA-256", _digest(result.baseline) if result.baseline else None),
        ("Rules", f"{result.policy} policy, {result.mode} mode"),
        ("Cases", f"{result.cases_from}, {len(result.cases)} of {result.cases_total} run"),
        ("Import", duration(result.submission.load_ns) if result.submission.load_ns else None),
        ("Started", tag("time", started(result), datetime=result.started_at)),
        ("Contained by", ", ".join(result.containment) or "nothing"),
    )
    return definitions(facts, "facts")


def _file(submission: Submission) -> str:
    return f"{submission.name}, {size(submission.size_bytes)}"


def _digest(submission: Submission) -> Html:
    return tag("code", submission.sha256, class_="digest")


def _links() -> Html:
    links = [tag("li", tag("a", name, href=f"#{key}")) for key, name in SECTIONS]
    return tag("nav", tag("ul", links), aria_label="Sections")
