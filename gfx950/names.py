"""Kernel names: the symbol's mangled one and what the author wrote."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from .errors import Gfx950Error
from .tools import find_tool

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


def demangle(names: Sequence[str]) -> list[str]:
    """The C++ names of Itanium-mangled symbols; what is not one, or cannot be read, stays as it is.

    LLVM's llvm-cxxfilt knows clang's types (bf16, vectors); the C++ run time's own demangler is the second choice.
    """
    if not any(name.startswith("_Z") for name in names):
        return list(names)
    try:
        tool = find_tool("llvm-cxxfilt", "it demangles kernel names")
    except Gfx950Error:
        return [_by_runtime(name) for name in names]
    listing = subprocess.run(tool.command, input="\n".join(names), capture_output=True, text=True).stdout.splitlines()
    return listing if len(listing) == len(names) else list(names)


@lru_cache(maxsize=1)
def _runtime_demangler() -> Any:
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return None
    library.__cxa_demangle.restype = ctypes.c_void_p
    return library.__cxa_demangle


def _by_runtime(name: str) -> str:
    function = _runtime_demangler() if name.startswith("_Z") else None
    if function is None:
        return name
    status = ctypes.c_int()
    text = function(name.encode(), None, None, ctypes.byref(status))
    if status.value or not text:
        return name
    demangled = ctypes.string_at(text).decode()
    ctypes.CDLL(None).free(ctypes.c_void_p(text))
    return demangled
