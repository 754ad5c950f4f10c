"""The section of one case: verdicts, message, plots, what the submission said."""

from harness.figures import percent
from harness.report.columns import bandwidth, share
from harness.report.markup import Html, join, tag
from harness.report.page_parts import chip, column_head, definitions, table
from harness.report.plot_heads import heads_plot
from harness.report.plot_samples import samples_plot
from harness.report.words import NOTHING, case_title, duration, microseconds, number, plain, ratio, reasons, size
from harness.result import CaseResult, Conditions, Profile, Status, Strict, Timing

PROFILE_ROWS = 12
FLOORS = (("roofline", "roofline"), ("measured", "measured floor"))


def case_section(index: int, case: CaseResult) -> Html:
    """The section `case-<n>`, n counted from 1."""
    key = f"case-{index + 1}"
    heading = tag("h3", tag("span", index + 1, class_="ordinal"), " ", case_title(case), id=f"{key}-title")
    parts = (
        tag("div", heading, tag("p", chips(case), class_="chips"), class_="case-head"),
        _reasons(case),
        _figures(case, case.timing) if case.timing else None,
        _plots(case, f"case {index + 1}"),
        _facts(case),
        _profile(case.profile) if case.profile else None,
        _said("Where it happened" if case.status is not Status.PASS else "Detail", case.detail),
        _said("Printed by the submission", case.printed),
    )
    return tag("section", parts, id=key, class_="case", aria_labelledby=f"{key}-title")


def chips(case: CaseResult) -> list[Html]:
    """Official and strict verdict side by side; the status where it says more."""
    verdicts = (("official", case.official), ("strict", case.strict))
    found = [chip(verdict.ok, f"{name} {'pass' if verdict.ok else 'fail'}") for name, verdict in verdicts if verdict]
    return found if case.status in (Status.PASS, Status.WRONG) else [chip(False, case.status.value.replace("_", " ")), *found]


def _reasons(case: CaseResult) -> list[Html]:
    """Why the case did not pass, then its warnings."""
    said = [tag("p", text, class_="reason") for text in reasons(case)]
    return [*said, *(tag("p", warning, class_="warning") for warning in case.warnings)]


def _figures(case: CaseResult, timing: Timing) -> Html | None:
    low, high = timing.ci95_ns
    found = [
        ("median", _figure(f"{microseconds(timing.median_ns)} µs", f"[{microseconds(low)}, {microseconds(high)}]")),
        ("mean", _figure(f"{microseconds(timing.mean_ns)} µs", f"± {microseconds(timing.err_ns)}")),
    ]
    for kind, name in FLOORS:
        if share(case, kind) != NOTHING:
            floor = f"{microseconds(getattr(case.floor, f'{kind}_ns'))} µs"
            found.append((f"of {name}", _figure(share(case, kind), floor)))
    if case.comparison:
        value, _, interval = ratio(case.comparison).partition(" ")
        found.append(("of the baseline's time", _figure(value, interval)))
    return definitions(found, "figures small")


def _figure(value: str, more: str) -> Html:
    return join((value, " ", tag("small", more)))


def _plots(case: CaseResult, name: str) -> Html | None:
    samples = samples_plot(case.timing, name) if case.timing else None
    heads = heads_plot(case.strict, name) if case.strict else None
    return tag("div", samples, heads, class_="plots") if samples or heads else None


def _facts(case: CaseResult) -> Html | None:
    facts = (
        ("Reads", case.strict.format if case.strict else None),
        ("Must move", _moved(case)),
        ("Backend", case.backend),
        ("First call", duration(case.compile_ns) if case.compile_ns else None),
        ("Clock while sampled", _clock(case.conditions) if case.conditions else None),
        ("Throttled by", ", ".join(case.conditions.throttled) if case.conditions else None),
        ("Other processes on the device", case.conditions.other_processes if case.conditions else None),
        ("Strict check", _long(_errors(case.strict)) if case.strict else None),
        ("Official check", _long(case.official.message) if case.official and case.official.ok else None),
        ("Parameters", _parameters(case.params) if case.params else None),
    )
    return definitions(facts, "facts")


def _moved(case: CaseResult) -> str | None:
    if case.min_bytes is None:
        return None
    speed = bandwidth(case)
    return size(case.min_bytes) if speed == NOTHING else f"{size(case.min_bytes)}, {speed} GB/s"


def _clock(conditions: Conditions) -> str | None:
    low, high, limit = conditions.core_low_mhz, conditions.core_high_mhz, conditions.core_limit_mhz
    if low is None or high is None:
        return None
    return (f"{low} MHz" if low == high else f"{low} to {high} MHz") + (f" of {limit} MHz" if limit else "")


def _long(text: str) -> Html | None:
    return tag("span", text, class_="long") if text else None


def _errors(strict: Strict) -> str:
    errors = (("relative L2", strict.rel_l2_worst), ("largest", strict.max_abs))
    said = [f"{name} {number(value)}" for name, value in errors if value is not None]
    said += [f"cosine {strict.cosine_worst:.6f}"] if strict.cosine_worst is not None else []
    return ", ".join([*said, f"{strict.nan_count} NaN"] if strict.nan_count else said)


def _parameters(params: dict) -> Html:
    return tag("span", [tag("code", f"{key} {plain(value)}") for key, value in params.items()], class_="parameters")


def _profile(profile: Profile) -> Html:
    """Times of the operators that cost most, per call."""
    on_device = any(row.device_ns for row in profile.rows)
    times_ns = [row.device_ns if on_device else row.host_ns for row in profile.rows]
    total_ns = sum(times_ns) or 1
    heads = [column_head("operator"), *(column_head(name, numeric=True) for name in ("µs per call", "share", "count"))]
    rows = [
        tag("tr", tag("th", row.name, scope="row"), _numbers(microseconds(own_ns), percent(own_ns, total_ns), row.count))
        for row, own_ns in list(zip(profile.rows, times_ns, strict=True))[:PROFILE_ROWS]
    ]
    where = "device" if on_device else "host"
    return table(f"Own {where} time of operators over {profile.calls} calls; trace: {profile.trace}", heads, rows)


def _numbers(*cells: str | int) -> Html:
    return join(tag("td", cell, class_="number") for cell in cells)


def _said(title: str, text: str) -> Html | None:
    if not text.strip():
        return None
    return tag("details", tag("summary", title), tag("pre", text.strip("\n")), open=True)
