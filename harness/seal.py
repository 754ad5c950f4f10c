"""What the worker's clock and channel are made of, taken before the submission is imported and compared after every call.

A submission shares the process with them, so this catches what is changed and left changed; what a worker says about
time is held against the referee's own accounts besides (harness.accounts).
"""

import builtins
import ctypes
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch

COPYING = (  # torch's operators that an output is copied by
    "aten::detach", "aten::clone", "aten::resolve_conj", "aten::resolve_neg", "aten::copy_", "aten::empty_like",
    "aten::empty_strided", "aten::empty.memory_format",
)  # fmt: skip
DISPATCH_KEYS = frozenset((
    "CPU", "CUDA", "AutogradCPU", "AutogradCUDA", "ADInplaceOrView", "AutocastCPU", "AutocastCUDA", "BackendSelect",
    "Conjugate", "Negative", "Functionalize", "Python", "PythonTLSSnapshot", "PythonDispatcher", "PreDispatch",
))  # fmt: skip
REPLACEABLE = ("print", "open", "input", "__import__", "breakpoint")  # what an honest submission may have its own of
CLOCK_BYTES = 32  # of libc's clock_gettime: enough for any detour at its entry
Part = tuple[Any, str, Any, Any, Any]


class Seal:
    """A record of the attributes of some modules and the classes that they define, of other classes and of objects, and of the
    code of their functions."""

    def __init__(self, *owners: Any):
        owners += tuple(kind for owner in owners if isinstance(owner, ModuleType) for kind in _classes(owner))
        self._parts = tuple(part for owner in owners for part in _parts(owner))
        # What is added to an object hides what its class has, and to a module a builtin of that name. Other names that modules
        # gain, such as warning registries, are harmless.
        self._sizes = tuple((vars(owner), len(vars(owner))) for owner in owners if not isinstance(owner, ModuleType))
        modules = [vars(owner) for owner in owners if isinstance(owner, ModuleType)]
        known = tuple(part for part in _parts(builtins) if part[1] not in REPLACEABLE)
        self._parts += known
        self._absent = tuple((names, frozenset(name for _, name, *_ in known if name not in names)) for names in modules)
        self._read = ctypes.string_at
        self._clock = ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value or 0
        self._clock_code = self._read(self._clock, CLOCK_BYTES)
        self._describe = torch._C._dispatch_dump_table
        self._kernels = tuple(map(self._kernels_of, COPYING))

    def _kernels_of(self, operator: str) -> tuple[str, ...]:
        """Which kernels an operator has where plain tensors come by; torch.library could put others there."""
        return tuple(line for line in self._describe(operator).splitlines() if line.partition(":")[0] in DISPATCH_KEYS)

    def broken(self) -> str | None:
        """What is no longer what it was; None if everything is."""
        for attributes, size in self._sizes:
            if len(attributes) != size:
                return list(attributes)[-1]
        for names, absent in self._absent:
            if not absent.isdisjoint(names):
                return next(iter(absent.intersection(names)))
        for attributes, name, value, code, defaults in self._parts:
            if attributes.get(name) is not value:
                return name
            if code is not None and (value.__code__ is not code or value.__defaults__ is not defaults):
                return name
        for operator, kernels in zip(COPYING, self._kernels, strict=True):
            if self._kernels_of(operator) != kernels:
                return operator
        return None if self._read(self._clock, CLOCK_BYTES) == self._clock_code else "clock_gettime"


def _classes(module: ModuleType) -> list[type]:
    kinds = (value for value in vars(module).values() if isinstance(value, type))
    return [kind for kind in kinds if kind.__module__ == module.__name__]


def _parts(owner: Any) -> Iterator[Part]:
    for name, value in list(vars(owner).items()):
        if not name.startswith("__") or callable(value):
            yield vars(owner), name, value, getattr(value, "__code__", None), getattr(value, "__defaults__", None)
