"""HTML and SVG as nested calls. Text is escaped by construction: only what `tag` has made is markup."""

import html
from collections.abc import Iterable
from typing import Any

from harness.text import printable

VOID = frozenset({"br", "col", "input", "link", "meta"})


class Html(str):
    """Markup. Every other string is text, whoever chose it, and is escaped when it becomes a part of markup."""

    __slots__ = ()


def tag(name: str, /, *children: Any, **attributes: Any) -> Html:
    """The element `name`. Children are Html, text, numbers, iterables of these, or None for nothing.

    An attribute's underscores become hyphens and a last one is dropped (`class_`, `aria_label`); None leaves it out, True
    leaves out its value.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[Any]) -> Html:
    """The children one after the other."""
    return Html("".join(map(_child, children)))


def _child(child: Any) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, Iterable) and not isinstance(child, str):
        return join(child)
    return _escaped(child)


def _attribute(key: str, value: Any) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None:
        return ""
    return f" {name}" if value is True else f' {name}="{_escaped(value)}"'


def _escaped(value: Any) -> str:
    text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return html.escape(printable(text))
