"""Maps a line of the generated submission back to the file under kernels/ that it came from."""

from __future__ import annotations

import linecache
import traceback

# The bundler writes this before each file; the line after it is the file's first.
SECTION_MARK = "# >>> "


def origin_of(lines: list[str], line_number: int) -> str | None:
    """The place, such as "kernels/x.py:12", of a 1-based line of a generated file; None before the first section."""
    for index in range(min(line_number, len(lines)) - 1, -1, -1):
        if lines[index].startswith(SECTION_MARK):
            return f"{lines[index][len(SECTION_MARK) :].strip()}:{line_number - index - 1}"
    return None


def note_origin(error: Exception) -> None:
    """Add the sources of the traceback's lines in this file to `error`. In kernels/ itself there is nothing to add."""
    this_file = note_origin.__code__.co_filename
    lines = linecache.getlines(this_file)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == this_file]
    places = [(origin_of(lines, frame.lineno or 0), frame.name) for frame in frames]
    for place, function in places:
        if place:
            error.add_note(f"  from {place} in {function}")
