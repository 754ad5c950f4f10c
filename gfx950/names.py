"""Kernel names: the symbol's mangled one and what the author wrote."""

from __future__ import annotations

import ctypes
from functools import lru_cache

_ANONYMOUS = "(anonymous namespace)"


def without_parameters(demangled: str) -> str:
    """'void add<3>(float*, int)' -> 'add<3>'."""
    name = demangled.replace(_ANONYMOUS, "\0")
    depth, start, end = 0, 0, len(name)
    for index, char in enumerate(name):
        depth += (char == "<") - (char == ">")
        if depth == 0 and char == " ":
            start = index + 1
        if depth == 0 and char == "(":
            end = index
            break
    return name[start:end].replace("\0", _ANONYMOUS)


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
