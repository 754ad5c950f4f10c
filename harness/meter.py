"""Processor time of a process and of everything that it starts, kept by the kernel: perf events that children inherit.

Whoever looks at processes now and then misses those that are born and end between two looks, and nobody waits for. An
event counts them, whoever their parent is by then. Numbers: linux/perf_event.h.
"""

import contextlib
import os
import platform
import struct
from pathlib import Path
from typing import Self

from harness.libc import syscall
from harness.seccomp import NUMBERS

SOFTWARE, TASK_CLOCK, ATTRIBUTES_BYTES = 1, 1, 128
# Excluding the kernel lets an unprivileged user ask; a task's clock counts the time spent there all the same.
INHERIT, EXCLUDE_KERNEL, EXCLUDE_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6
ANY_CPU, NO_GROUP, CLOSE_ON_EXEC = -1, -1, 8


class CannotMeter(OSError):
    """The kernel refuses."""


class Meter:
    """What a process that has started nothing yet, and its family from now on, use of processors."""

    def __init__(self, fds: list[int]):
        self._fds = fds

    @classmethod
    def of(cls, pid: int) -> Self:
        """One event for each of its threads. Raises CannotMeter."""
        fds: list[int] = []
        try:
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(ProcessLookupError):  # a thread that has ended since
                    fds.append(_event(int(task.name)))
        except (OSError, KeyError) as error:  # KeyError: calls of an unknown machine
            cls(fds).close()
            raise CannotMeter(*error.args) from None
        if not fds:
            raise CannotMeter(f"process {pid} has ended")
        return cls(fds)

    @property
    def used_ns(self) -> int:
        """Processor time so far."""
        return sum(int.from_bytes(os.read(fd, 8), "little") for fd in self._fds)

    def close(self) -> None:
        """Count no more."""
        for fd in self._fds:
            with contextlib.suppress(OSError):
                os.close(fd)
        self._fds = []


def metered(pid: int) -> tuple[Meter | None, str]:
    """What counts the processor time of a process and its family, or why the kernel refuses."""
    try:
        return Meter.of(pid), ""
    except CannotMeter as error:
        return None, str(error)


def _event(task: int) -> int:
    """The descriptor of an event that counts a thread's time, and that of what it starts. Raises OSError."""
    flags = INHERIT | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR
    attributes = struct.pack("=IIQQQQQ", SOFTWARE, ATTRIBUTES_BYTES, TASK_CLOCK, 0, 0, 0, flags).ljust(ATTRIBUTES_BYTES, b"\0")
    number = NUMBERS[platform.machine()]["perf_event_open"]
    return syscall("perf_event_open", number, attributes, task, ANY_CPU, NO_GROUP, CLOSE_ON_EXEC)
