"""What the worker's clock and channel are made of, taken before the submission is imported and compared after every call.

A submission shares the process with them, so this catches what is changed and left changed; what a worker says about
time is held against the referee's own accounts besides (harness.accounts).
"""

import ctypes
from collections.abc import Iterator
from types import ModuleType
from typing import Any

CLOCK_BYTES = 32  # of libc's clock_gettime: enough for any detour at its entry
Part = tuple[Any, str, Any, Any, Any]


class Seal:
    """A record of the attributes of some modules, classes and objects, and of the code of their functions."""

    def __init__(self, *owners: Any):
        self._parts = tuple(part for owner in owners for part in _parts(owner))
        # What is added to an object hides what its class has. Modules gain harmless names, such as warning registries.
        self._sizes = tuple((vars(owner), len(vars(owner))) for owner in owners if not isinstance(owner, ModuleType))
        self._read = ctypes.string_at
        self._clock = ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value or 0
        self._clock_code = self._read(self._clock, CLOCK_BYTES)

    def broken(self) -> str | None:
        """What is no longer what it was; None if everything is."""
        for attributes, size in self._sizes:
            if len(attributes) != size:
                return list(attributes)[-1]
        for attributes, name, value, code, defaults in self._parts:
            if attributes.get(name) is not value:
                return name
            if code is not None and (value.__code__ is not code or value.__defaults__ is not defaults):
                return name
        return None if self._read(self._clock, CLOCK_BYTES) == self._clock_code else "clock_gettime"


def _parts(owner: Any) -> Iterator[Part]:
    for name, value in list(vars(owner).items()):
        if not name.startswith("__") or callable(value):
            yield vars(owner), name, value, getattr(value, "__code__", None), getattr(value, "__defaults__", None)
