"""Namespaces without a helper program: a root file system of bind mounts, no network, optionally processes of one's own.

What bubblewrap does, for machines that lack it; works for every user where the kernel lets users make namespaces.
"""

import ctypes
import os
import struct
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from harness import libc

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID = 442, -100, 0x8000, 1, 2
SAFE = MS_NOSUID | MS_NODEV
TMPFS_OPTIONS = "mode=1777,size=1g"
# What a real root could change through /proc although its capabilities end at the namespace.
PROC_READ_ONLY = ("sys", "sysrq-trigger", "irq", "bus")


def isolate(network: bool, processes: bool) -> None:
    """New user, mount, IPC and host-name namespaces; of the network unless `network`; of the next child's processes.

    Raises OSError where the kernel refuses, and in a process with several threads.
    """
    uid, gid = os.getuid(), os.getgid()
    libc.unshare(NEWUSER | NEWNS | NEWIPC | NEWUTS | (0 if network else NEWNET) | (NEWPID if processes else 0))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    libc.mount("none", "/", "", MS_REC | MS_PRIVATE)


def enter_root(build: str, read: Iterable[str], write: Collection[str], own_tmp: bool, processes: bool) -> None:
    """Make a root at the folder `build` in which `read` is read-only, `write` is not, and nothing else exists; go there.
    With "/" in `write` it is the old root, and everything is as writable as it was.

    `own_tmp`: an empty /tmp and /dev/shm. `processes`: a /proc that shows this process namespace alone. Raises OSError.
    """
    libc.mount("tmpfs", build, "tmpfs", SAFE, "mode=755")
    ordered, sealed = sorted(read, key=len), "/" not in write
    if not sealed:
        ordered = ["/"]
    if ordered[0] == "/":
        _place(ordered.pop(0), build, _seal if sealed else _leave)
    if own_tmp:
        for path in ("/tmp", "/dev/shm"):
            os.makedirs(build + path, exist_ok=True)
            libc.mount("tmpfs", build + path, "tmpfs", SAFE, TMPFS_OPTIONS)
    for path in ordered:
        _place(path, build, _seal)
    for path in sorted(write, key=len) if sealed else ():
        _place(path, build, _leave)
    if processes:
        _mount_proc(build + "/proc")
    else:
        _place("/proc", build, _seal)
    working = os.getcwd()
    libc.syscall("pivot_root", _pivot_root_number(), _path(build), _path(build))
    os.chdir("/")
    libc.unmount(".", MNT_DETACH)
    if sealed:
        libc.mount("none", "/", "", MS_REMOUNT | MS_BIND | MS_RDONLY | SAFE)
    os.chdir(working)


def _leave(target: str) -> None:
    """A mount stays as it is."""


def _place(path: str, root: str, finish: Callable[[str], None]) -> None:
    """Bind `path` to its own name below `root`; a symbolic link is made anew."""
    target = root + path
    if path == "/":
        libc.mount("/", root, "", MS_BIND | MS_REC)
        finish(root)
    elif os.path.islink(path):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.lexists(target):
            os.symlink(os.readlink(path), target)
    elif os.path.exists(path):
        _make_target(path, target)
        libc.mount(path, target, "", MS_BIND | MS_REC)
        finish(target)


def _make_target(path: str, target: str) -> None:
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if not os.path.exists(target):
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))


def _seal(target: str) -> None:
    """A mount and all mounts below it become read-only; device files in them can still be written."""
    attributes = struct.pack("=QQQQ", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0, 0, 0)
    block = ctypes.create_string_buffer(attributes, len(attributes))
    libc.syscall(f"mount_setattr {target}", MOUNT_SETATTR, AT_FDCWD, _path(target), AT_RECURSIVE, block, len(attributes))


def _mount_proc(target: str) -> None:
    os.makedirs(target, exist_ok=True)
    libc.mount("proc", target, "proc", SAFE | MS_NOEXEC)
    for name in PROC_READ_ONLY:
        if os.path.exists(path := f"{target}/{name}"):
            libc.mount(path, path, "", MS_BIND | MS_REC)
            libc.mount("none", path, "", MS_REMOUNT | MS_BIND | MS_RDONLY | SAFE | MS_NOEXEC)


def _pivot_root_number() -> int:
    return {"x86_64": 155, "aarch64": 41}[os.uname().machine]


def _path(path: str) -> ctypes.c_char_p:
    return ctypes.c_char_p(path.encode())
