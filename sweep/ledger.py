"""Runs that a server has finished, on disk: what a killed sweep had got back is not asked for again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.records import from_json, to_json
from sweep.popcorn_run import RunFigures


class Ledger:
    """A file of JSON lines, one a run, appended to. A last line cut short by a crash is ignored."""

    def __init__(self, path: Path):
        self._path, self._runs = path, {}
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for line in text.splitlines():
            if entry := _entry(line):
                self._runs[entry["key"]] = entry["figures"]
        if text and not text.endswith("\n"):
            self._append("\n")

    def get(self, key: str) -> RunFigures | None:
        """The run of a key, if it is finished."""
        found = self._runs.get(key)
        return None if found is None else from_json(RunFigures, found)

    def put(self, key: str, figures: RunFigures) -> None:
        """Keep a finished run."""
        self._runs[key] = to_json(figures)
        self._append(json.dumps({"key": key, "figures": self._runs[key]}) + "\n")

    def _append(self, text: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text)


def _entry(line: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and {"key", "figures"} <= entry.keys() else None
