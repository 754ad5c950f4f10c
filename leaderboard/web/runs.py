"""One evaluation of a submission: the report's own plots and tables where the reader may see the Result, else a short table."""

import json
from collections.abc import Sequence

from harness.report.markup import Html, join, tag
from harness.report.page_case import case_section
from harness.report.page_parts import chip, column_head, table
from harness.report.page_tables import cases_table
from harness.report.page_tail import device_section, warnings_section
from harness.report.plot_floors import floors_plot
from harness.report.words import NOTHING, microseconds
from harness.result import Result, Status
from leaderboard.queries.views import CaseView, RunView
from leaderboard.web.parts import empty


def run_name(run: RunView) -> str:
    """Which of the runs it is."""
    return f"{'secret' if run.secret else 'public'} {run.mode}"


def run_body(run: RunView) -> Html:
    """What the reader may see of a run."""
    said = tag("details", tag("summary", "Text report"), tag("pre", run.report), id="report") if run.report.strip() else None
    return join((result_body(run.result) if run.result else _short(run), said))


def result_body(result: Result) -> Html:
    """Overview of the cases, warnings, every case with its samples, the device."""
    if not result.cases:
        return empty(tag("p", result.error or "No case has run."))
    details = [case_section(index, case) for index, case in enumerate(result.cases)]
    failed = tag("p", result.error, class_="reason") if result.error else None
    has_warnings = result.warnings or any(case.warnings for case in result.cases)
    tail = warnings_section(result) if has_warnings else None, device_section(result.device)
    return join((failed, floors_plot(result.cases), cases_table(result.cases), details, tail))


def _short(run: RunView) -> Html:
    if not run.cases:
        return empty(tag("p", "No case has run."))
    times = any(case.median_ns is not None for case in run.cases)
    heads = [column_head("case"), column_head("status")]
    heads += [column_head("median [95 %] µs", True), column_head("mean ± err µs", True)] if times else []
    heads += [column_head("reads"), column_head("backend")]
    return table(f"Cases of the {run_name(run)} run", heads, _rows(run.cases, times))


def _rows(cases: Sequence[CaseView], times: bool) -> list[Html]:
    return [tag("tr", tag("th", _spec(case), scope="row"), _cells(case, times)) for case in cases]


def _cells(case: CaseView, times: bool) -> list[Html]:
    status = tag("td", chip(case.status == Status.PASS, case.status.replace("_", " ")))
    figures = [tag("td", text, class_="number") for text in (_median(case), _mean(case))] if times else []
    return [status, *figures, tag("td", case.kv_format or NOTHING), tag("td", case.backend or NOTHING)]


def _spec(case: CaseView) -> str:
    return " · ".join(f"{key} {value if isinstance(value, str) else json.dumps(value)}" for key, value in case.spec.items())


def _median(case: CaseView) -> str:
    if case.median_ns is None or case.ci_low_ns is None or case.ci_high_ns is None:
        return NOTHING
    return f"{microseconds(case.median_ns)} [{microseconds(case.ci_low_ns)}, {microseconds(case.ci_high_ns)}]"


def _mean(case: CaseView) -> str:
    if case.mean_ns is None or case.err_ns is None:
        return NOTHING
    return f"{microseconds(case.mean_ns)} ± {microseconds(case.err_ns)}"
