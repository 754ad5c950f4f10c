"""Constraints of configs/sweep.yml: Python expressions over parameters and shape, restricted to arithmetic and logic."""

import ast
from collections.abc import Collection, Mapping
from types import CodeType
from typing import Any

from sweep.errors import SpaceError

FUNCTIONS = {"min": min, "max": max, "abs": abs}
ALLOWED = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Mult,
    ast.FloorDiv, ast.Mod, ast.Div, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn,
    ast.Constant, ast.Name, ast.Load, ast.Tuple, ast.List, ast.Call, ast.IfExp,
)  # fmt: skip


class Constraint:
    """One condition. Raises SpaceError for what is no expression, for anything but arithmetic, and for unknown names."""

    def __init__(self, text: str, names: Collection[str], where: str):
        self.text, self._where = text, where
        self.names = frozenset[str]()  # that it depends on
        self._code = self._compile(names)

    def __str__(self) -> str:
        return self.text

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether the condition is met. Raises SpaceError where it cannot be computed, as in a division by zero."""
        try:
            return bool(eval(self._code, {"__builtins__": {}, **FUNCTIONS}, dict(values)))
        except (TypeError, ArithmeticError) as error:
            raise SpaceError(f"{self._where}: `{self.text}` cannot be computed: {error}") from None

    def _compile(self, names: Collection[str]) -> CodeType:
        try:
            tree = ast.parse(self.text.strip(), mode="eval")
        except (SyntaxError, ValueError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            raise SpaceError(f"{self._where}: `{self.text}` is no expression: {reason}") from None
        for node in ast.walk(tree):
            self._check(node, names)
        self.names = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)) - FUNCTIONS.keys()
        return compile(tree, self._where, "eval")

    def _check(self, node: ast.AST, names: Collection[str]) -> None:
        if not isinstance(node, ALLOWED) or (isinstance(node, ast.Call) and not self._calls_function(node)):
            fault = f"{type(node).__name__} is not allowed"
            raise SpaceError(f"{self._where}: `{self.text}`: {fault}; use arithmetic, comparisons, and, or, not, min, max, abs")
        if isinstance(node, ast.Name) and node.id not in names and node.id not in FUNCTIONS:
            raise SpaceError(f"{self._where}: `{self.text}`: unknown name `{node.id}`; known are {', '.join(sorted(names))}")

    @staticmethod
    def _calls_function(node: ast.Call) -> bool:
        return isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS and not node.keywords
