"""One figure of a case as coloured text. Colour repeats what the words say, so that nothing is lost without it."""

from rich.text import Text

from harness.figures import percent, rate, us
from harness.labels import case_label
from harness.result import CaseResult, Change, Official, Status, Strict, Timing
from harness.terminal.parts import bar

NOTHING = Text("·", style="bright_black")
SHARES = ((0.75, "green"), (0.4, "yellow"), (0.0, "dark_orange"))  # of a floor
STATUS_STYLES = {Status.PASS: "green", Status.REFUSED: "bold magenta", Status.SKIPPED: "bright_black"}
CHANGE_STYLES = {Change.FASTER: "green", Change.SLOWER: "bold red", Change.SAME: "", Change.AMBIGUOUS: "yellow"}
BAR_CELLS = 10


def label(case: CaseResult) -> Text:
    """The case's short name."""
    return Text(case_label(case.spec), style="bold" if case.status is Status.PASS else "bold red")


def official(case: CaseResult) -> Text:
    """The official verdict; how the case ended if it has none."""
    return _verdict(case.official) if case.official else _status(case)


def strict(case: CaseResult) -> Text:
    """The strict verdict, nothing if there is none."""
    return _verdict(case.strict) if case.strict else NOTHING


def verdicts(case: CaseResult) -> Text:
    """Both verdicts in one cell."""
    return Text.assemble(official(case), " / ", strict(case)) if case.official else _status(case)


def reads(case: CaseResult) -> Text:
    """The format that the output says was read."""
    return Text(case.strict.format) if case.strict and case.strict.format else NOTHING


def median(case: CaseResult) -> Text:
    """Median and its 95 % interval, microseconds."""
    if case.timing is None:
        return NOTHING
    low, high = case.timing.ci95_ns
    return Text.assemble((us(case.timing.median_ns), _time_style(case)), (f" [{us(low)}, {us(high)}]", "bright_black"))


def median_short(case: CaseResult) -> Text:
    """Median, and half the width of its interval in percent."""
    if case.timing is None:
        return NOTHING
    return Text.assemble((us(case.timing.median_ns), _time_style(case)), (f" ± {half_width(case.timing):.1%}", "bright_black"))


def mean(case: CaseResult) -> Text:
    """The official figure: mean and its standard error, microseconds."""
    timing = case.timing
    return Text.assemble(us(timing.mean_ns), (f" ± {us(timing.err_ns)}", "bright_black")) if timing else NOTHING


def bandwidth(case: CaseResult) -> Text:
    """Bytes that must move over the median, GB/s."""
    return Text(rate(case.min_bytes, case.timing.median_ns)) if case.timing and case.min_bytes else NOTHING


def roofline(case: CaseResult) -> Text:
    """The datasheet's time as a share of the median."""
    return _share(case, "roofline_ns")


def floor(case: CaseResult) -> Text:
    """The time of a plain cold read as a share of the median."""
    return _share(case, "measured_ns")


def floor_bar(case: CaseResult) -> Text:
    """The same with a bar."""
    part = share_of(case, "measured_ns")
    if part is None:
        return NOTHING
    return Text.assemble(bar(part, BAR_CELLS, share_style(part)), (f" {part:>4.0%}", share_style(part)))


def rel_l2(case: CaseResult) -> Text:
    """The worst row's distance from the fp64 oracle."""
    worst = case.strict.rel_l2_worst if case.strict else None
    return NOTHING if worst is None else Text(f"{worst:.1e}".replace("e-0", "e-"))


def backend(case: CaseResult) -> Text:
    """What the submission says that it ran."""
    return Text(case.backend) if case.backend else NOTHING


def change(case: CaseResult) -> Text:
    """Time over the baseline's, with its interval and the verdict."""
    found = case.comparison
    if found is None:
        return NOTHING
    low, high = found.ci95
    ratio = (f"{found.ratio:.3f}", "bold"), (f" [{low:.3f}, {high:.3f}] ", "bright_black")
    return Text.assemble(*ratio, (found.change.value, CHANGE_STYLES[found.change]))


def half_width(timing: Timing) -> float:
    """Half the width of the median's interval over the median."""
    low, high = timing.ci95_ns
    return (high - low) / 2 / max(timing.median_ns, 1.0)


def share_of(case: CaseResult, name: str) -> float | None:
    """The floor `name` over the median."""
    floor_ns = getattr(case.floor, name, None)
    return floor_ns / case.timing.median_ns if floor_ns and case.timing else None


def share_style(part: float) -> str:
    """Green close to the floor, orange far from it."""
    return next(style for least, style in SHARES if part >= least)


def _share(case: CaseResult, name: str) -> Text:
    part = share_of(case, name)
    return NOTHING if part is None else Text(percent(part, 1.0), style=share_style(part))


def _verdict(verdict: Official | Strict) -> Text:
    return Text("pass", style="green") if verdict.ok else Text("FAIL", style="bold red")


def _status(case: CaseResult) -> Text:
    return Text(case.status.value, style=STATUS_STYLES.get(case.status, "bold red"))


def _time_style(case: CaseResult) -> str:
    return "bold magenta" if case.status is Status.REFUSED else "bold"
