"""Text that a submission chose, made fit for a terminal, a JSON file and a pipe."""

from typing import Any

from popcorn.text import printable


def printable_all(value: Any) -> Any:
    """A JSON value with every string in it, keys too, made `printable`."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [printable_all(item) for item in value]
    if isinstance(value, dict):
        return {printable(key): printable_all(item) for key, item in value.items()}
    return value
