"""gfx950 (MI355X) without the card: compile HIP, inspect and check the machine code, run it in an emulator."""

from .codeobject import CodeObject, Kernel, KernelArg
from .errors import Gfx950Error
from .toolchain import compile_hip

__all__ = ["CodeObject", "Gfx950Error", "Kernel", "KernelArg", "compile_hip"]
