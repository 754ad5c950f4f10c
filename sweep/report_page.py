"""A sweep as one HTML page: per shape every candidate in the order of trial, and what mattered. No scripts, nothing loaded."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from harness.figures import us
from harness.report.markup import Html, join, tag
from harness.report.page_parts import column_head, section, table
from harness.report.scale import Log
from harness.stats import quick_median
from sweep.decision import noise_floor
from sweep.finals import Entrant, Finals, name_of
from sweep.importance import importance
from sweep.outcome import ShapeOutcome
from sweep.record import Record
from sweep.variant import Machine

HARNESS_STYLE = Path(__file__).parent.parent / "harness" / "report" / "style.css"
STYLE = HARNESS_STYLE.read_text(encoding="utf-8") + (
    "circle.trial { fill: var(--accent); } circle.cut { fill: none; stroke: var(--quiet); stroke-width: 1.5; }\n"
    ".best-so-far { stroke: var(--good); stroke-width: 2; } .entry { stroke: var(--warn); stroke-width: 1.5; }\n"
    ".share { fill: var(--accent); } .share-name { font: 13px var(--sans); fill: var(--ink); }\n"
)
HEIGHT_PX, BAR_PX, TOP_PARAMETERS = 180, 22, 8
LEFT = 6  # percent of a plot that the labels take
RELOAD_S = 10
GLOSSARY = (
    "A dot is a candidate, at the median of its samples; a ring one that the race cut short. The green line is the best so "
    "far, the amber one the present entry. Candidates that were wrong, failed or were screened out have no dot."
)


def page(problem: str, machine: Machine, outcomes: Sequence[ShapeOutcome], note: str, running: bool) -> str:
    """The whole page as text. `note`: where and how it was measured."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="refresh", content=RELOAD_S) if running else None,
        tag("link", rel="icon", href="data:,"),
        tag("title", f"{problem}: sweep on {machine.name}"),
        tag("style", Html(STYLE)),
    )
    changed = sum(outcome.decision.changes for outcome in outcomes)
    state = "running" if running else f"{changed} of {len(outcomes)} entries change"
    title = tag("h1", tag("span", f"{problem} on {machine.name}", class_="eyebrow"), tag("span", state, class_="score none"))
    main = tag("main", _decisions(outcomes), [_shape(outcome) for outcome in outcomes], _mattered(outcomes))
    body = tag("body", tag("header", title, tag("p", note, class_="lede")), main)
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _decisions(outcomes: Sequence[ShapeOutcome]) -> Html:
    names = (("shape", False), ("entry µs", True), ("now µs", True), ("ratio", True), ("95 %", True), ("decision", False))
    rows = [tag("tr", [tag("td", cell, class_="number" if numeric else None) for cell, numeric in _cells(o)]) for o in outcomes]
    noises = [outcome.decision.duel.noise for outcome in outcomes if outcome.decision.duel]
    floor = f"Noise floor: equal kernels differed by up to {noise_floor(noises):.2%}." if noises else None
    made = table("What became of each entry", [column_head(name, numeric) for name, numeric in names], rows)
    return section("entries", "Entries", made, tag("p", floor, class_="quiet"))


def _cells(outcome: ShapeOutcome) -> list[tuple[str, bool]]:
    decision, duel = outcome.decision, outcome.decision.duel
    ratio, interval = "-", "-"
    if duel and decision.challenger:
        low, high = duel.gain.ci95
        ratio, interval = f"{duel.gain.ratio:.3f}", f"{low:.3f} to {high:.3f}"
    before = us(outcome.incumbent_ns) if outcome.incumbent_ns else "-"
    now = us(decision.median_ns) if decision.median_ns else "-"
    said = f"{decision.challenger}" if decision.changes else decision.reason
    return [(str(outcome.target), False), (before, True), (now, True), (ratio, True), (interval, True), (said, False)]


def _shape(outcome: ShapeOutcome) -> Html:
    timed = [record for record in outcome.records if record.median_ns]
    untimed = [record for record in outcome.records if not record.median_ns]
    counts = Counter(record.status for record in untimed)
    counted = ", ".join(f"{count} {status}" for status, count in counts.items())
    reasons = list(dict.fromkeys(f"{r.variant}: {r.message}" for r in untimed if r.message))[:5]
    shown = _plot(timed, outcome) if timed else tag("p", "No candidate has a time yet.", class_="quiet")
    left_out = tag("p", f"Without a time: {counted}.", class_="quiet") if untimed else None
    why = [tag("p", reason, class_="warning") for reason in reasons]
    finals = _finals(outcome.finals) if outcome.finals else None
    return section(f"shape-{outcome.target}", str(outcome.target), shown, left_out, why, finals)


def _finals(finals: Finals) -> Html:
    """Who was measured again, how it came out, and what is odd about that."""
    names = (("finalist", False), ("µs", True), ("95 %", True), ("rounds", True), ("failures", False))
    rows = [_finalist(finals, entrant) for entrant in finals.entrants]
    made = table("Finals, by the samples of all rounds", [column_head(name, numeric) for name, numeric in names], rows)
    return join([made, *(tag("p", said, class_="warning") for said in finals.remarks())])


def _finalist(finals: Finals, entrant: Entrant) -> Html:
    median, interval, samples = "-", "-", finals.samples_ns(entrant)
    if samples:
        middle_ns, (low_ns, high_ns) = quick_median(samples)
        median, interval = us(middle_ns), f"{us(low_ns)} to {us(high_ns)}"
    rounds = sum(entrant in one.variants for one in finals.rounds)
    numbers = [tag("td", cell, class_="number") for cell in (median, interval, str(rounds))]
    return tag("tr", tag("td", name_of(entrant)), numbers, tag("td", "; ".join(finals.messages(entrant))))


def _plot(timed: Sequence[Record], outcome: ShapeOutcome) -> Html:
    """Median over trial number, on a logarithmic axis."""
    times = [record.median_ns or 0.0 for record in timed] + ([outcome.incumbent_ns] if outcome.incumbent_ns else [])
    axis = Log(min(times) * 0.95, max(times) * 1.05)
    labels = [tag("text", us(value), x="5%", y=_y(axis, value) + 4, class_="tick end") for value in axis.ticks()]
    grid = [_level(axis, value, LEFT, 100, "grid") for value in axis.ticks()]
    best, steps = float("inf"), []
    for number, record in enumerate(timed):
        best = min(best, record.median_ns or best) if record.status == "ok" else best
        if best < float("inf"):
            steps.append(_level(axis, best, _x(number, timed), _x(number + 1, timed), "best-so-far"))
    entry = _level(axis, outcome.incumbent_ns, LEFT, 100, "entry") if outcome.incumbent_ns else None
    dots = [_dot(record, number, timed, axis) for number, record in enumerate(timed)]
    words = f"{outcome.target}: {len(timed)} candidates, best {us(min(times))} microseconds"
    svg = tag("svg", labels, grid, entry, steps, dots, width="100%", height=HEIGHT_PX, role="img", aria_label=words)
    return tag("figure", svg, tag("figcaption", f"Microseconds by order of trial. {GLOSSARY}"))


def _dot(record: Record, number: int, timed: Sequence[Record], axis: Log) -> Html:
    kind = "trial" if record.status == "ok" else "cut"
    hint = tag("title", f"{us(record.median_ns or 0.0)} us: {record.variant}")
    x = f"{(_x(number, timed) + _x(number + 1, timed)) / 2}%"
    return tag("circle", hint, cx=x, cy=_y(axis, record.median_ns or 0.0), r=3.5, class_=kind)


def _x(number: int, timed: Sequence[Record]) -> float:
    """Percent of the width."""
    return LEFT + (100 - LEFT) * number / max(len(timed), 1)


def _level(axis: Log, value: float, left: float, right: float, kind: str) -> Html:
    """A horizontal line between two percentages of the width."""
    y = _y(axis, value)
    return tag("line", x1=f"{left}%", x2=f"{right}%", y1=y, y2=y, class_=kind)


def _y(axis: Log, value: float) -> float:
    return HEIGHT_PX * (1 - axis.percent(value) / 100)


def _mattered(outcomes: Sequence[ShapeOutcome]) -> Html:
    """Importance over all shapes and for each."""
    together = importance([record for outcome in outcomes for record in outcome.normalised])
    plots = [_bars("all shapes", together), *(_bars(str(o.target), importance(o.records)) for o in outcomes)]
    note = (
        "Share of the variance of the logarithm of the time that each parameter explains alone. Candidates were not drawn at "
        "random and parameters act together: a guide."
    )
    return section("mattered", "What mattered", tag("p", note, class_="quiet"), plots)


def _bars(name: str, shares: dict[str, float]) -> Html | None:
    if not shares:
        return None
    rows = []
    for number, (parameter, share) in enumerate(list(shares.items())[:TOP_PARAMETERS]):
        y = number * BAR_PX
        rows.append(tag("text", parameter, x=0, y=y + 15, class_="share-name"))
        rows.append(tag("rect", x="22%", y=y + 4, width=f"{70 * share}%", height=BAR_PX - 8, class_="share"))
        rows.append(tag("text", f"{share:.0%}", x=f"{23 + 70 * share}%", y=y + 15, class_="share-name"))
    height = BAR_PX * min(len(shares), TOP_PARAMETERS)
    svg = tag("svg", join(rows), width="100%", height=height, role="img", aria_label=f"{name}: importance of parameters")
    return tag("figure", tag("h3", name), svg)
