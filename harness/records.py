"""Frozen dataclasses to JSON objects and back, strictly: an unknown or missing key is an error that names it."""

import dataclasses
import enum
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from harness.errors import RecordError

NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def to_json(value: Any) -> Any:
    """Plain JSON for a record; fields that are None are left out; non-finite floats become "nan", "inf", "-inf"."""
    if dataclasses.is_dataclass(value):
        fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {name: to_json(item) for name, item in fields if item is not None}
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return next(name for name, number in NON_FINITE.items() if str(number) == str(value))
    return value.value if isinstance(value, enum.Enum) else value


def from_json(cls: Any, data: Any, where: str = "result") -> Any:
    """The record of type `cls` that `data` describes.

    Raises:
        RecordError: a value of the wrong type, or a key that is unknown or missing; `where` is the path to it.
    """
    if dataclasses.is_dataclass(cls):
        return _dataclass_from(cls, data, where)
    origin, args = typing.get_origin(cls), typing.get_args(cls)
    if origin in (types.UnionType, typing.Union):
        return _union_from(args, data, where)
    if origin is tuple:
        return _tuple_from(args, data, where)
    if origin is dict:
        pairs = _expect(dict, data, where).items()
        return {from_json(args[0], key, where): from_json(args[1], item, f"{where}.{key}") for key, item in pairs}
    return _scalar_from(cls, data, where)


def _dataclass_from(cls: Any, data: Any, where: str) -> Any:
    data, hints = dict(_expect(dict, data, where)), typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    if unknown := sorted(set(data) - set(fields)):
        raise RecordError(where, f"unknown key {unknown[0]!r}")
    for name, field in fields.items():
        if name not in data and field.default is field.default_factory is dataclasses.MISSING:
            raise RecordError(where, f"missing key {name!r}")
    values = {name: from_json(hints[name], item, f"{where}.{name}") for name, item in data.items()}
    return _checked(lambda: cls(**values), where)


def _checked(build: Callable[[], Any], where: str) -> Any:
    try:
        return build()
    except ValueError as error:
        raise RecordError(where, str(error)) from None


def _union_from(choices: tuple[Any, ...], data: Any, where: str) -> Any:
    """A union matches its first choice that accepts the value; `int` stands before `float` and after `bool`."""
    errors = []
    for choice in choices:
        try:
            return from_json(choice, data, where)
        except RecordError as error:
            errors.append(error)
    raise errors[0]


def _tuple_from(args: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    items = _expect(list, data, where)
    kinds = [args[0]] * len(items) if args[-1] is Ellipsis else list(args)
    if len(kinds) != len(items):
        raise RecordError(where, f"{len(items)} items where {len(kinds)} belong")
    return tuple(from_json(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(zip(kinds, items, strict=True)))


def _scalar_from(cls: Any, data: Any, where: str) -> Any:
    if cls is Any:
        return data
    if cls is float and ((isinstance(data, int | float) and not isinstance(data, bool)) or data in NON_FINITE):
        return NON_FINITE[data] if isinstance(data, str) else float(data)
    if isinstance(cls, type) and issubclass(cls, enum.Enum):
        return _checked(lambda: cls(data), where)
    return _expect(cls, data, where)


def _expect(cls: type, data: Any, where: str) -> Any:
    if not isinstance(data, cls) or isinstance(data, bool) is not (cls is bool):
        raise RecordError(where, f"{type(data).__name__} where {cls.__name__} belongs")
    return data
