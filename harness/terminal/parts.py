"""Parts that several views draw with."""

from rich import box
from rich.table import Table
from rich.text import Text


def quiet_table() -> Table:
    """A table that is all content: a line below its head and nothing around it."""
    quiet = "bright_black"
    return Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style=quiet, border_style=quiet)


def bar(share: float, cells: int, style: str) -> Text:
    """A share of 0 to 1 as a line, in half cells; more than 1 fills it."""
    halves = round(min(max(share, 0.0), 1.0) * 2 * cells)
    filled = "━" * (halves // 2) + "╾" * (halves % 2)
    return Text.assemble((filled, style), ("─" * (cells - len(filled)), "bright_black"))
