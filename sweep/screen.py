"""gfx950 settings refused before they run: registers that spill, LDS that no compute unit has, code that does not compile.

Needs LLVM alone, no card: scripts/hip_screen.py compiles the kernel and reads what the compiler made of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from gfx950.errors import Gfx950Error
from sweep.config import BackendSpace
from sweep.variant import Variant

HIP = "hip"

Screen = Callable[[Variant], str | None]


def screen_for(backends: Sequence[BackendSpace]) -> Screen:
    """A function that says why a variant must not run, or None; where LLVM's gfx950 tools are missing nothing is refused."""
    if not any(backend.name == HIP for backend in backends) or not toolchain_works():
        return lambda variant: None
    from scripts.hip_screen import fault_of

    return lambda variant: fault_of(variant.params) if variant.backend == HIP else None


@functools.cache
def toolchain_works() -> bool:
    """Whether gfx950 code can be compiled and inspected here."""
    from gfx950.tools import find_tool

    try:
        find_tool("clang", "it compiles HIP for gfx950")
        import gfx950.codeobject  # noqa: F401  its packages are an extra of their own
    except (Gfx950Error, ModuleNotFoundError):
        return False
    return True
