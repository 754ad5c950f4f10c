"""The strict error of every attention head of one case."""

import math
from collections.abc import Sequence

from harness.report.markup import Html, tag
from harness.report.plot_floors import pc
from harness.report.scale import LARGEST, Linear
from harness.report.words import number
from harness.result import Strict

HEIGHT_PX, NUMBERS_PX, LABELS = 150, 18, 8
FLATTEST = 1e-12  # the least that the axis reaches


def heads_plot(strict: Strict, name: str) -> Html | None:
    """A bar per head; None unless the problem's judge reports `error_per_head`, a list of numbers."""
    errors = _per_head(strict)
    if errors is None:
        return None
    finite = [error for error in errors if error is not None]
    axis = Linear(0, max([FLATTEST, *finite]) * 1.08)
    bars = [_bar(head, error, axis, len(errors)) for head, error in enumerate(errors)]
    ticks = axis.ticks(about=2)
    labels = [tag("text", number(value), x="100%", y=_y(axis, value) + 4, class_="tick end") for value in ticks]
    grid = [tag("line", x1=0, x2="100%", y1=_y(axis, value), y2=_y(axis, value), class_="grid") for value in ticks]
    said = {"role": "img", "aria_label": _words(errors, name)}
    parts = (
        tag("svg", labels, width="100%", height=HEIGHT_PX, aria_hidden="true"),
        tag("svg", grid, bars, _numbers(len(errors)), width="100%", height=HEIGHT_PX + NUMBERS_PX, **said),
    )
    caption = tag("figcaption", "Strict error of each head: worst relative L2 distance of its rows.")
    return tag("figure", tag("div", parts, class_="heads-grid"), caption, class_="heads")


def _per_head(strict: Strict) -> list[float | None] | None:
    """The errors, None where one is not finite."""
    errors = strict.details.get("error_per_head")
    if not isinstance(errors, list | tuple) or not errors:
        return None
    if not all(error is None or type(error) in (int, float) for error in errors):
        return None
    return [error if error is not None and 0 <= error <= LARGEST else None for error in errors]


def _y(axis: Linear, value: float) -> float:
    return HEIGHT_PX * (1 - axis.percent(value) / 100)


def _bar(head: int, error: float | None, axis: Linear, count: int) -> Html:
    hint = tag("title", f"head {head}: {'not finite' if error is None else number(error)}")
    top = 0.0 if error is None else _y(axis, error)
    x, width = 100 * (head + 0.18) / count, 64 / count
    kind = "bar bad" if error is None else "bar"
    return tag("rect", hint, x=pc(x), y=top, width=pc(width), height=HEIGHT_PX - top, class_=kind)


def _numbers(count: int) -> list[Html]:
    step = max(1, math.ceil(count / LABELS))
    shown = range(0, count, step)
    return [tag("text", head, x=pc(100 * (head + 0.5) / count), y=HEIGHT_PX + 15, class_="tick") for head in shown]


def _words(errors: Sequence[float | None], name: str) -> str:
    finite = [error for error in errors if error is not None]
    lost = len(errors) - len(finite)
    said = f"{name}: error of {len(errors)} heads"
    said += f", from {number(min(finite))} to {number(max(finite))}" if finite else ""
    return said + (f", {lost} not finite" if lost else "")
