"""Layers between a submission and the machine: which ones this kernel has, and the command that puts a worker behind them.

Bubblewrap where it works, else namespaces of our own, else Landlock and seccomp alone; the last two are added wherever
they exist. What was active stands in the Result.
"""

import functools
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness import landlock, namespaces, seccomp, view
from harness.defences import Defences
from harness.jail import Plan

ALL_ON = Defences()
Wall = Literal["bubblewrap", "namespaces", "none"]
PROBE_TIMEOUT_S = 30.0
MAX_PROCESSES = 256  # in a process namespace; a parallel compile takes some dozens
MAX_USER_PROCESSES = 4096  # RLIMIT_NPROC counts the threads of everything that a user runs
MAX_OPEN_FILES = 8192
MAX_FILE_BYTES = 8 << 30
MAX_TMP_BYTES = 1 << 30


@dataclass(frozen=True)
class Containment:
    """One way to contain workers that this kernel allows."""

    wall: Wall
    processes: bool  # a process namespace
    landlock_abi: int
    seccomp: bool
    defences: Defences = ALL_ON

    @property
    def layers(self) -> tuple[str, ...]:
        """What stands in the Result, strongest first."""
        walled, on = self.wall != "none", self.defences
        hidden = walled and on.withheld_files and on.read_only_files
        found = {
            "process": True,
            self.wall: walled,
            "own processes": self.processes,
            "no network": on.no_network and (walled or self.seccomp),
            "files withheld and read-only": hidden or bool(self.landlock_abi),
            f"landlock {self.landlock_abi}": bool(self.landlock_abi),
            "seccomp": self.seccomp,
            "limits": on.limits,
        }
        return tuple(layer for layer, active in found.items() if active)

    @property
    def contains(self) -> bool:
        """Whether there is anything but a process of its own."""
        return self.wall != "none" or bool(self.landlock_abi) or self.seccomp

    @property
    def warning(self) -> str:
        """What is missing, in one line; empty if nothing is."""
        walled = self.wall != "none"
        missing = [] if walled or self.landlock_abi else ["files are readable and writable"]
        missing += [] if walled or self.seccomp else ["the network is open"]
        missing += [] if self.processes or self.landlock_abi >= 6 else ["other processes can be seen and signalled"]
        if not missing:
            return ""
        return f"the submission is not contained: {', '.join(missing)}; install bubblewrap, or allow user namespaces"

    def plan(self, folders: Sequence[Path], runtime: Path, build: Path, hidden: Sequence[Path], limits: dict[str, int]) -> Plan:
        """What the jail does for a worker that owns `folders` and imports its harness from `runtime`."""
        on = self.defences
        shown = view.visible(hidden) if on.withheld_files and on.read_only_files else ("/", *_below_tmp(view.visible(())))
        read = (*shown, str(runtime))
        write = (*map(str, folders), *view.gpu_devices()) if on.read_only_files else ("/",)
        return Plan(
            read=read,
            write=write,
            own_namespaces=self.wall == "namespaces",
            build=str(build),
            processes=self.processes,
            supervised=on.reaped and on.no_peeking,
            network=not on.no_network,
            landlock_abi=self.landlock_abi,
            seccomp=self.seccomp,
            closed=on.closed_descriptors,
            peeking=not on.no_peeking,
            own_tmp=self.wall != "none" and on.read_only_files,
            max_processes=MAX_PROCESSES if on.limits else 0,
            limits=_limits(limits) if on.limits else {},
        )

    def command(self, plan: Plan, folder: Path) -> list[str]:
        """The command line of a worker in `folder`, without its descriptor; `plan.info_fd` must be inherited."""
        jail = [sys.executable, "-m", "harness.jail", plan.to_text()]
        return [*_bubblewrap(plan, folder), *jail] if self.wall == "bubblewrap" else jail


def _below_tmp(paths: Sequence[str]) -> list[str]:
    """What a private /tmp would cover."""
    return [path for path in paths if path.startswith("/tmp/")]


def _limits(more: dict[str, int]) -> dict[str, int]:
    fixed = {
        "RLIMIT_CORE": 0,
        "RLIMIT_FSIZE": MAX_FILE_BYTES,
        "RLIMIT_NOFILE": MAX_OPEN_FILES,
        "RLIMIT_NPROC": MAX_USER_PROCESSES,
        "RLIMIT_MEMLOCK": 1 << 62,  # pinned memory: whatever the hard limit allows
    }
    return fixed | more


def _bubblewrap(plan: Plan, folder: Path) -> list[str]:
    words = ["bwrap", "--unshare-user", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--cap-drop", "ALL"]
    words += [] if plan.network else ["--unshare-net"]
    words += ["--unshare-pid", "--as-pid-1"] if plan.processes else []
    words += ["--info-fd", str(plan.info_fd)] if plan.info_fd else []
    if "/" in plan.write:
        return [*words, "--dev-bind", "/", "/", *_proc(plan), "--chdir", str(folder), "--"]
    everything, *read = sorted(plan.read, key=len) if "/" in plan.read else ("", *sorted(plan.read, key=len))
    words += ["--ro-bind", "/", "/"] if everything else []
    words += ["--dev", "/dev", *_proc(plan)]
    if plan.own_tmp:
        words += [word for path in ("/tmp", "/dev/shm") for word in ("--size", str(MAX_TMP_BYTES), "--tmpfs", path)]
    words += [word for path in read for word in _read_only(path)]
    for path in plan.write:
        words += ["--dev-bind" if path.startswith("/dev/") else "--bind", path, path]
    return [*words, "--remount-ro", "/", "--chdir", str(folder), "--"]


def _proc(plan: Plan) -> list[str]:
    if not plan.processes:
        return ["--ro-bind", "/proc", "/proc"]
    settings = [f"/proc/{name}" for name in namespaces.PROC_READ_ONLY]
    return ["--proc", "/proc", *(word for path in settings if os.path.exists(path) for word in ("--ro-bind", path, path))]


def _read_only(path: str) -> list[str]:
    return ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind", path, path]


def choose(defences: Defences = ALL_ON) -> Containment:
    """The strongest containment that works here."""
    return next(ways(defences))


def ways(defences: Defences = ALL_ON) -> Iterator[Containment]:
    """Every containment worth trying here, strongest first, each probed when it is asked for; the last contains nothing.

    A device driver may need it: device memory is shared by process ids in places, which a process namespace changes, and
    what a driver opens is not known beforehand.
    """
    abi = landlock.abi() if defences.no_peeking and defences.read_only_files and defences.withheld_files else 0
    made = functools.partial(Containment, landlock_abi=abi, seccomp=seccomp.supported(), defences=defences)
    walls: tuple[Wall, ...] = ("bubblewrap", "namespaces") if defences.no_peeking and defences.reaped else ()
    for own_processes in (True, False):
        yield from itertools.islice(filter(works, (made(wall, own_processes) for wall in walls)), 1)
    yield made("none", False)
    if abi or seccomp.supported():
        yield made("none", False, landlock_abi=0, seccomp=False)


def attempts(defences: Defences, on_gpu: bool) -> Iterator[tuple[Containment, bool]]:
    """Ways to start a worker, best first, and whether it is to share the referee's device memory or gets copies.

    Layers are worth more than speed: nothing is given up for shared memory as long as copies work.
    """
    if on_gpu:
        yield from ((way, True) for way in ways(defences) if way.contains)
    for way in ways(defences):
        yield from ((way, True),) if on_gpu and not way.contains else ()
        yield way, False


@functools.cache
def works(containment: Containment) -> bool:
    """Whether a process can be started behind these layers on this machine."""
    if containment.wall == "bubblewrap" and not shutil.which("bwrap"):
        return False
    with tempfile.TemporaryDirectory(prefix="kernelproof-probe-") as scratch:
        folders = [Path(scratch, name) for name in ("work", "build")]
        for folder in folders:
            folder.mkdir()
        plan = containment.plan(folders[:1], view.HERE.parent, folders[1], [], {})
        environment = {**os.environ, "PYTHONPATH": str(view.HERE.parent), "PYTHONDONTWRITEBYTECODE": "1"}
        command = containment.command(plan, folders[0])
        try:
            done = subprocess.run(
                command, cwd=folders[0], env=environment, capture_output=True, timeout=PROBE_TIMEOUT_S, stdin=subprocess.DEVNULL
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
    return done.returncode == 0
