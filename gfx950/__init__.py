"""gfx950 (MI355X) without the card: compile HIP, inspect and check the machine code, run it in an emulator."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import Gfx950Error

if TYPE_CHECKING:
    from .codeobject import CodeObject, Kernel, KernelArg
    from .toolchain import compile_hip

__all__ = ["CodeObject", "Gfx950Error", "Kernel", "KernelArg", "compile_hip"]

_HOMES = {"CodeObject": "codeobject", "Kernel": "codeobject", "KernelArg": "codeobject", "compile_hip": "toolchain"}


def __getattr__(name: str) -> Any:
    """Imports what needs the packages of the extra `gfx950` when it is asked for: errors and tools do without them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
