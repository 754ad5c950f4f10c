"""YAML whose every value knows the line it stands on, so that every complaint can name it."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from typing import Any, NoReturn

import yaml

from popcorn.errors import PopcornError


@dataclass(frozen=True)
class Node:
    """A YAML value: a scalar, a list of Nodes or a dict of Nodes, with its place for messages."""

    value: Any
    place: str  # "task.yml, line 12"
    path: str  # "benchmarks[3].seed", empty for the document
    error: type[PopcornError]

    def fail(self, message: str) -> NoReturn:
        """Raise the document's error about this value."""
        raise self.error(f"{self.place}: {self.path + ': ' if self.path else ''}{message}")

    def mapping(self, allowed: Collection[str] | None = None, required: Collection[str] = ()) -> dict[str, "Node"]:
        """The entries of a mapping; only `allowed` keys (None: any) and all `required` ones."""
        if not isinstance(self.value, dict):
            self.fail(f"must be a mapping, not {self.kind}")
        for key, node in self.value.items():
            if allowed is not None and key not in allowed:
                node.fail(f"unknown key {key!r}; known are {', '.join(sorted(allowed))}")
        missing = [key for key in required if key not in self.value]
        if missing:
            self.fail(f"missing key {', '.join(map(repr, missing))}; required are {', '.join(required)}")
        return self.value

    def items(self) -> list["Node"]:
        """The entries of a list."""
        if not isinstance(self.value, list):
            self.fail(f"must be a list, not {self.kind}")
        return self.value

    def text(self) -> str:
        """A string that is not empty."""
        if not isinstance(self.value, str):
            self.fail(f"must be text, not {self.kind}")
        if not self.value.strip():
            self.fail("must not be empty")
        return self.value

    def integer(self, minimum: int | None = None) -> int:
        """An integer, at least `minimum`."""
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            self.fail(f"must be an integer, not {self.kind}")
        if minimum is not None and self.value < minimum:
            self.fail(f"must be at least {minimum}, not {self.value}")
        return self.value

    def flag(self) -> bool:
        """true or false."""
        if not isinstance(self.value, bool):
            self.fail(f"must be true or false, not {self.kind}")
        return self.value

    def one_of(self, choices: Collection[str]) -> str:
        """One of a fixed set of words."""
        if not isinstance(self.value, str) or self.value not in choices:
            self.fail(f"must be one of {', '.join(choices)}, not {self.kind}")
        return self.value

    @property
    def kind(self) -> str:
        """The value as a message shows it."""
        if isinstance(self.value, dict | list):
            return "a mapping" if isinstance(self.value, dict) else "a list"
        return "nothing" if self.value is None else repr(self.value if not isinstance(self.value, date) else str(self.value))


def parse_document(text: str, source: str, error: type[PopcornError]) -> Node:
    """The Node of a YAML text; `source` is its name in messages. Raises `error` for a fault of syntax, naming the line."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is None:
            raise error(f"{source}: the file is empty")
        return _Reader(source, error).read(root, "")
    except yaml.MarkedYAMLError as fault:
        raise error(f"{source}{_fault_text(fault)}") from None
    except yaml.YAMLError as fault:
        raise error(f"{source}: not valid YAML: {fault}") from None
    except RecursionError:
        raise error(f"{source}: the YAML is nested too deeply, or contains itself") from None


def _fault_text(fault: yaml.MarkedYAMLError) -> str:
    """Where a fault of syntax showed, what it is, and where that began which it is in."""
    mark, began = fault.problem_mark or fault.context_mark, fault.context_mark
    line = f", line {mark.line + 1}" if mark else ""
    inside = f" (in what begins in line {began.line + 1})" if mark and began and began.line != mark.line else ""
    return f"{line}: not valid YAML: {fault.problem or fault.context}{inside}"


class _Reader:
    def __init__(self, source: str, error: type[PopcornError]):
        self.source, self.error = source, error
        self.scalars = yaml.SafeLoader("")

    def read(self, node: yaml.Node, path: str) -> Node:
        if isinstance(node, yaml.MappingNode):
            value = self._mapping(node, path)
        elif isinstance(node, yaml.SequenceNode):
            value = [self.read(item, f"{path}[{index}]") for index, item in enumerate(node.value)]
        else:
            value = self._scalar(node, path)
        return self._node(value, node, path)

    def _node(self, value: Any, node: yaml.Node, path: str) -> Node:
        return Node(value, f"{self.source}, line {node.start_mark.line + 1}", path, self.error)

    def _scalar(self, node: yaml.Node, path: str) -> Any:
        try:
            return self.scalars.construct_object(node)
        except ValueError as fault:  # a timestamp such as 2026-02-31
            self._node(None, node, path).fail(str(fault))

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        for key_node, value_node in node.value:
            key = self.read(key_node, path)
            if not isinstance(key.value, str):
                key.fail(f"a key must be a word, not {key.kind}")
            if key.value in entries:
                key.fail(f"the key {key.value!r} stands twice; keep one")
            entries[key.value] = self.read(value_node, f"{path}.{key.value}" if path else key.value)
        return entries
