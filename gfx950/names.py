"""Kernel names: the symbol's mangled one and what the author wrote."""

from __future__ import annotations

import ctypes
from functools import lru_cache


def without_parameters(demangled: str) -> str:
    """'void add<3>(float*, int)' -> 'add<3>'."""
    depth = 0
    start, end = 0, len(demangled)
    for index, char in enumerate(demangled):
        depth += (char == "<") - (char == ">")
        if depth == 0 and char == " ":
            start = index + 1
        if depth == 0 and char == "(" and not demangled.startswith("(anonymous", index):
            end = index
            break
    return demangled[start:end]


@lru_cache(maxsize=1)
def _demangler():
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return None
    function = getattr(library, "__cxa_demangle")
    function.restype = ctypes.c_void_p
    return function


@lru_cache(maxsize=4096)
def demangle(name: str) -> str:
    """The C++ name of an Itanium-mangled symbol, by the C++ run time's own demangler; `name` itself when it is not one."""
    function = _demangler() if name.startswith("_Z") else None
    if function is None:
        return name
    status = ctypes.c_int()
    text = function(name.encode(), None, None, ctypes.byref(status))
    if status.value or not text:
        return name
    demangled = ctypes.string_at(text).decode()
    ctypes.CDLL(None).free(ctypes.c_void_p(text))
    return demangled
