"""configs/dispatch.yml read and edited in place: comments, other devices and what did not change stay as they are."""

from __future__ import annotations

import difflib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError

from harness.files import replace_file
from sweep.errors import TableError
from sweep.variant import Machine, Shape, Variant, variant_from


@dataclass(frozen=True)
class Change:
    """What an entry is to say."""

    shape: Shape
    variant: Variant
    evidence: Mapping[str, Any]


class DispatchTable:
    """The entries of one problem in the file at `path`. Raises TableError if it cannot be read."""

    def __init__(self, path: Path, problem: str):
        self.path, self.problem = path, problem
        self._yaml: Any = YAML()
        self._yaml.width, self._yaml.preserve_quotes = 4096, True
        try:
            self.text = path.read_text(encoding="utf-8")
            self._data: Any = self._yaml.load(self.text)
        except (OSError, YAMLError, UnicodeDecodeError) as error:
            raise TableError(f"{path}: cannot be read: {' '.join(str(error).split())[:300]}") from None
        if not isinstance(self._data, dict) or not isinstance(self._data.get(problem), dict):
            raise TableError(f"{path}: has no table `{problem}`; it holds problem -> device -> entries")
        for label, entries in self._data[problem].items():
            self._check(str(label), entries)

    def label_for(self, machine: Machine) -> str:
        """The name under which a machine's entries stand, or will: the most specific that exists, else a word with a digit."""
        known = [label for label in machine.labels if label in self._data[self.problem]]
        named = [label for label in machine.labels[:-1] if any(letter.isdigit() for letter in label)]
        return (known or named or [machine.labels[-1]])[0]

    def entry(self, label: str, shape: Shape) -> Variant | None:
        """What the table says for exactly this shape: its first entry."""
        return next((variant_from(entry) for entry in self._entries(label) if _shape(entry) == shape), None)

    def variants(self, label: str) -> list[Variant]:
        """Every setting of a device, each once."""
        return list(dict.fromkeys(variant_from(entry) for entry in self._entries(label)))

    def apply(self, label: str, changes: Sequence[Change]) -> None:
        """Change entries in memory; `write` makes it last."""
        for change in changes:
            self._apply(label, change)

    def diff(self) -> str:
        """What `write` would change, as a unified diff; empty if nothing."""
        old, new = self.text.splitlines(), self._dumped().splitlines()
        return "\n".join(difflib.unified_diff(old, new, f"a/{self.path.name}", f"b/{self.path.name}", lineterm="", n=1))

    def write(self) -> None:
        """Replace the file. Raises TableError."""
        try:
            replace_file(self.path, self._dumped())
        except OSError as error:
            raise TableError(f"{self.path}: cannot be written: {error.strerror}") from None

    def _apply(self, label: str, change: Change) -> None:
        """The first entry of a shape gives way, or stands behind if another backend takes its place: it still serves machines
        that lack that backend."""
        entries: Any = self._data[self.problem].setdefault(label, CommentedSeq())
        places = [place for place, entry in enumerate(entries) if _shape(entry) == change.shape]
        same = [place for place in places if entries[place]["backend"] == change.variant.backend]
        if places and places[0] in same:
            entry = entries[places[0]]
            entry["params"] = _flow(change.variant.params)
            entry["evidence"] = _flow(change.evidence)
            same = same[1:]
        else:
            place = places[0] if places else len(entries)
            entries.insert(place, _entry(change))
            same = [index + 1 for index in same]
        for place in reversed(same):
            del entries[place]

    def _entries(self, label: str) -> Sequence[Any]:
        return self._data[self.problem].get(label) or ()

    def _dumped(self) -> str:
        buffer = io.StringIO()
        self._yaml.dump(self._data, buffer)
        return buffer.getvalue()

    def _check(self, label: str, entries: Any) -> None:
        for number, entry in enumerate(entries if isinstance(entries, list) else [None], 1):
            match entry:
                case {"shape": [_, _, _, _], "backend": str(), "params": dict()}:
                    continue
            wanted = "shape [batch, q_len, kv_len, heads], backend and params"
            raise TableError(f"{self.path}: {self.problem}: {label}: entry {number} lacks {wanted}")


def _shape(entry: Mapping[str, Any]) -> Shape:
    return Shape(*entry["shape"])


def _entry(change: Change) -> CommentedMap:
    values = {"shape": _flow(list(change.shape)), "backend": change.variant.backend}
    return CommentedMap({**values, "params": _flow(change.variant.params), "evidence": _flow(change.evidence)})


def _flow(value: Mapping[str, Any] | list[Any]) -> Any:
    """The value on one line of YAML."""
    styled = CommentedSeq(value) if isinstance(value, list) else CommentedMap(value)
    styled.fa.set_flow_style()
    for key, item in value.items() if isinstance(value, Mapping) else ():
        if isinstance(item, list | dict):
            styled[key] = _flow(item)
    return styled
