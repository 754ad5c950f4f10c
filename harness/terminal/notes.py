"""What a table cannot hold: why a case failed, what it printed, its profile, warnings; and how the run went."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from harness.compare import change_text
from harness.figures import us
from harness.labels import case_label
from harness.render_plain import DETAIL_LINES, PRINTED_LINES, PRINTED_WIDTH, ended, failures
from harness.report.columns import mean_share
from harness.report.words import score_meaning
from harness.result import CaseResult, Result, State
from harness.terminal import cells
from harness.terminal.profile import profile_table


def heading(result: Result) -> RenderableType:
    """What is evaluated, where."""
    dot, device, submission = ("  ·  ", "bright_black"), result.device, result.submission
    clocks = f", {device.clocks.core_max_mhz} MHz at most" if device.clocks.core_max_mhz else ""
    rules = f"{result.policy} policy", dot, f"{result.cases_from} cases"
    what = Text.assemble((result.problem, "bold"), dot, result.mode, dot, *rules)
    file = f"{submission.name}  {submission.sha256[:8]}  {submission.size_bytes:,} bytes"
    rival = f"  against {result.baseline.name}  {result.baseline.sha256[:8]}" if result.baseline else ""
    where = f"{device.name}  {device.arch}{clocks}, driver {device.driver or '?'}, torch {device.torch or '?'}"
    return Group(what, Text(file + rival, style="bright_black"), Text(where, style="bright_black"))


def warning(text: str, about: str = "") -> RenderableType:
    """One warning, its lines aligned."""
    return _marked("!", "bold yellow", Text.assemble((f"{about}  " if about else "", "bold"), text))


def case_notes(case: CaseResult) -> list[RenderableType]:
    """Failure, traceback, prints and profile of a case under its name, and its warnings; nothing if there is nothing to say."""
    name, notes = case_label(case.spec), [*_notes(case)]
    if not notes:
        return [warning(text, name) for text in case.warnings]
    indented = [Padding(note, (0, 0, 0, 2)) for note in (*notes, *map(warning, case.warnings))]
    return [Text(name, style="bold"), *indented]


def _notes(case: CaseResult) -> Iterator[RenderableType]:
    for message in failures(case):
        yield _marked("✗", "bold red", Text(message))
    for line in case.detail.splitlines()[-DETAIL_LINES:]:
        yield Padding(Text(line), (0, 0, 0, 2))
    for line in case.printed.splitlines()[-PRINTED_LINES:]:
        yield _marked("│", "bright_black", Text(line[:PRINTED_WIDTH], style="bright_black"))
    if case.profile:
        yield profile_table(case.profile)


def _marked(mark: str, style: str, text: Text) -> RenderableType:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_row(Text(mark, style=style), text)
    return grid


def summary(result: Result) -> RenderableType:
    """The last lines: how it ended, the score, the comparison."""
    style = "green" if result.ok else "bold yellow" if result.state is State.INTERRUPTED else "bold red"
    lines = [Text(ended(result), style=style)]
    if result.score:
        lines.append(_score(result))
    if result.comparison:
        lines.append(_comparison(result))
    return Group(*lines)


def _score(result: Result) -> Text:
    score = result.score
    assert score is not None
    if score.value_ns is None:
        return Text("no score: it needs a time for every case, which needs the official verdict to pass", style="yellow")
    shares = [_share(result, name, words) for name, words in (("roofline", "roofline"), ("measured", "cold read"))]
    more = ", ".join(filter(None, [score_meaning(result), *shares]))
    return Text.assemble(("score ", "bold"), (f"{us(score.value_ns)} µs", "bold cyan"), (f"  {more}", "bright_black"))


def _share(result: Result, name: str, words: str) -> str:
    share = mean_share(result.cases, name)
    return f"{share:.0%} of {words}" if share else ""


def _comparison(result: Result) -> Text:
    found = result.comparison
    assert found is not None
    name = result.baseline.name if result.baseline else "the baseline"
    return Text(change_text(found, name), style=cells.CHANGE_STYLES[found.change])
