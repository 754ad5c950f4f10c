"""Server-sent events as popcorn clients read them: `event:` and one `data:` line, ended by an empty line, `\\n` alone.

A client splits frames at `\\n\\n` and keeps only the last `data:` line of a frame; frames that end in `\\r\\n\\r\\n` it never
splits. A run must end in a `result` or an `error` event. A line that starts with a colon is a comment that keeps the
connection alive.
"""

import json
import re
from typing import Any

KEEP_ALIVE = b": waiting\n\n"
_BREAK = re.compile(rb"\r\n|\n|\r")


def sse_frame(event: str, data: Any) -> bytes:
    """One event. JSON without line breaks keeps its data on one line; in ASCII, because clients decode chunk by chunk and a
    character that two of them share would be lost."""
    return f"event: {event}\ndata: {json.dumps(data, allow_nan=False)}\n\n".encode("ascii")


class SseParser:
    """Takes bytes as they come, gives the events that are complete. Reads every line ending that the standard allows."""

    def __init__(self) -> None:
        self._rest = b""
        self._event, self._data = "message", []

    def feed(self, chunk: bytes) -> list[tuple[str, Any]]:
        """The events that end within `chunk`: (name, data as JSON; the text itself where it is none)."""
        self._rest += chunk
        events = []
        while (line := self._next_line()) is not None:
            if line:
                self._field(line)
            elif self._data:
                events.append((self._event, _decoded("\n".join(self._data))))
                self._event, self._data = "message", []
        return events

    def _next_line(self) -> str | None:
        found = _BREAK.search(self._rest)
        if found is None or (found[0] == b"\r" and found.end() == len(self._rest)):  # a \n may still follow
            return None
        line, self._rest = self._rest[: found.start()], self._rest[found.end() :]
        return line.decode(errors="replace")

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
