"""Landlock: a process gives up every file that it is not granted here, TCP, and signals beyond its own children.

Linux 5.13 and later, without privileges (Documentation/userspace-api/landlock.rst). What a later ABI added is used
where the kernel has it: TCP from 4, device ioctls from 5, signals and abstract sockets from 6.
"""

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

from harness.libc import syscall

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
GET_VERSION, RULE_PATH_BENEATH = 1, 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15
READ = EXECUTE | READ_FILE | READ_DIR
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV  # the others are refused for what is no folder
FILE_RIGHTS_OF_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
ALL_FILE_RIGHTS = (1 << 16) - 1  # from ABI 5 on
TCP_BIND_AND_CONNECT, ABSTRACT_SOCKETS_AND_SIGNALS = 3, 3


def abi() -> int:
    """The version that the kernel speaks; 0 where there is none."""
    try:
        return syscall("landlock_create_ruleset", CREATE_RULESET, None, 0, GET_VERSION)
    except OSError:
        return 0


def restrict(read: Iterable[str], write: Iterable[str], version: int, network: bool) -> None:
    """Keep this thread, and whatever it starts, to reading and running `read` and doing anything in `write`.

    Paths that do not exist are passed over. Needs no_new_privs. Raises OSError.
    """
    handled = FILE_RIGHTS_OF_ABI.get(version, ALL_FILE_RIGHTS)
    tcp = TCP_BIND_AND_CONNECT if version >= 4 and not network else 0
    scoped = ABSTRACT_SOCKETS_AND_SIGNALS if version >= 6 else 0
    fields = struct.pack("=QQQ", handled, tcp, scoped)[: 8 if version < 4 else 16 if version < 6 else 24]
    attributes = ctypes.create_string_buffer(fields, len(fields))
    ruleset = syscall("landlock_create_ruleset", CREATE_RULESET, attributes, len(fields), 0)
    try:
        for paths, rights in ((read, READ), (write, ALL_FILE_RIGHTS)):
            for path in paths:
                _grant(ruleset, path, rights & handled)
        syscall("landlock_restrict_self", RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _grant(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= FILE_RIGHTS
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, fd), 12)
        syscall(f"landlock_add_rule {path}", ADD_RULE, ruleset, RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(fd)
