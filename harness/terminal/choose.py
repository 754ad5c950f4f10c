"""Which view of an evaluation fits what stdout is."""

import os
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console

from harness.render_plain import PlainRenderer
from harness.terminal.live import LiveRenderer
from popcorn.cases import Case

DUMB = ("", "dumb", "unknown")


def choose_renderer(out: TextIO, cases: Sequence[Case], no_color: bool) -> LiveRenderer | PlainRenderer:
    """The live table on a terminal that can move its cursor and show `µ`; plain lines for pipes, files and the rest."""
    can_draw = out.isatty() and os.environ.get("TERM", "") not in DUMB and (out.encoding or "").lower().startswith("utf")
    if not can_draw:
        return PlainRenderer(out)
    return LiveRenderer(Console(file=out, no_color=no_color or None, highlight=False), cases)
