"""What several sections of the page are made of."""

from collections.abc import Iterable, Sequence
from typing import Any

from harness.report.markup import Html, tag

MARKS = {True: "✓ ", False: "✗ "}  # a verdict does not hang on colour alone


def chip(good: bool, text: str) -> Html:
    """A verdict in a word, with its mark."""
    return tag("span", tag("span", MARKS[good], aria_hidden="true"), text, class_=f"chip {'pass' if good else 'fail'}")


def definitions(pairs: Iterable[tuple[str, Any]], kind: str) -> Html | None:
    """Names with their values; those without a value are left out, and the whole list if none is left."""
    items = [tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs if value]
    return tag("dl", items, class_=kind) if items else None


def table(caption: str, head: Sequence[Html], rows: Sequence[Html]) -> Html:
    """A table that scrolls sideways where it is too wide, by keyboard too."""
    body = tag("table", tag("caption", caption), tag("thead", tag("tr", head)), tag("tbody", rows))
    return tag("div", body, class_="scroll", tabindex=0, role="region", aria_label=caption)


def column_head(name: str, numeric: bool = False, meaning: str | None = None) -> Html:
    """A column's heading; `meaning` shows as a hint."""
    return tag("th", name, scope="col", title=meaning, class_="number" if numeric else None)


def section(key: str, title: str, *children: Any) -> Html:
    """A section of the second level, which `#key` leads to."""
    return tag("section", tag("h2", title, id=f"{key}-title"), children, id=key, aria_labelledby=f"{key}-title")
