"""System calls that Python's standard library does not offer, by ctypes. Needs nothing but Linux."""

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 36, 38


def check(result: int, what: str) -> int:
    """`result` unless it is negative. Raises OSError with errno's meaning and `what` was tried."""
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return result


def prctl(option: int, value: int = 0) -> int:
    """prctl(2) with one number."""
    return check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl({option})")


def syscall(what: str, number: int, *arguments: object) -> int:
    """A system call by number; `what` names it in the error. Integers travel as 64 bits."""
    words = (ctypes.c_long(item) if isinstance(item, int) else item for item in arguments)
    return check(_libc.syscall(ctypes.c_long(number), *words), what)


def unshare(flags: int) -> None:
    """unshare(2)."""
    check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """mount(2)."""
    words = (text.encode() for text in (source, target, kind, options))
    source_b, target_b, kind_b, options_b = words
    check(_libc.mount(source_b, target_b, kind_b, ctypes.c_ulong(flags), options_b), f"mount {source} on {target}")


def unmount(target: str, flags: int) -> None:
    """umount2(2)."""
    check(_libc.umount2(target.encode(), flags), f"unmount {target}")
