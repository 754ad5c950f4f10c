"""Emulator of gfx950 machine code: stricter than the silicon. See launch() and verify()."""

from .arguments import RawKernarg
from .buffers import Buffer
from .counters import Counters
from .estimate import Estimate, estimate
from .findings import Finding
from .launch import Run, launch
from .schedule import CONJUNCTION, Schedule
from .verify import Verdict, verify

__all__ = [
    "CONJUNCTION",
    "Buffer",
    "Counters",
    "Estimate",
    "Finding",
    "RawKernarg",
    "Run",
    "Schedule",
    "Verdict",
    "estimate",
    "launch",
    "verify",
]
