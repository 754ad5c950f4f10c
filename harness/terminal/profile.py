"""A case's profile on a terminal."""

from rich.console import Group, RenderableType
from rich.text import Text

from harness.figures import us
from harness.profile_table import tabulate
from harness.result import Profile
from harness.terminal.parts import bar, quiet_table

BAR_CELLS = 10


def profile_table(profile: Profile) -> RenderableType:
    """The costliest operators with their share as a bar, and where the trace lies."""
    found = tabulate(profile)
    table = quiet_table()
    for head in (f"{found.where} µs", "share", "calls"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("operator", overflow="fold")  # rich takes width from columns that may wrap first
    for row in found.rows:
        share = Text.assemble(bar(row.share, BAR_CELLS, "cyan"), f" {row.share:>4.0%}")
        table.add_row(Text(us(row.own_ns), style="bold"), share, Text(f"{row.calls:.4g}"), Text(row.name))
    total = f"{us(found.total_ns)} µs of {found.where} time per call, {profile.calls} calls profiled"
    below = [Text(line, style="bright_black") for line in found.below]
    trace = Text.assemble(("trace ", "bold"), profile.trace, ("  open it in ui.perfetto.dev", "bright_black"))
    return Group(table, *below, Text(total), trace, "")
