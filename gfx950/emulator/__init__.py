"""Emulator of gfx950 machine code: stricter than the silicon. See launch() and verify()."""

from .arguments import RawKernarg
from .buffers import Buffer
from .counters import Counters
from .findings import Finding
from .launch import Run, launch
from .schedule import CONJUNCTION, Schedule

__all__ = ["CONJUNCTION", "Buffer", "Counters", "Finding", "RawKernarg", "Run", "Schedule", "launch"]
