"""What stands between a worker and the machine, set up from inside, before Python has loaded anything big.

`python -m harness.jail PLAN FD`: enters namespaces (unless bubblewrap has), leaves a supervisor behind that ends
whatever outlives the worker, gives up files, system calls and resources, and becomes harness.worker on descriptor FD.
`python -m harness.jail PLAN` does all that and ends: a probe of what this kernel allows.
"""

import contextlib
import json
import os
import resource
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from harness import landlock, libc, namespaces, seccomp
from harness.family import family

WATCH_INTERVAL_S = 0.5
HANDLED = {signal.SIGCHLD, signal.SIGTERM}
ALL_FDS = 1 << 16
SETUP_FAILED = 97  # exit status
KILLED = 128  # exit status of a supervisor whose worker died by signal N: KILLED + N
BASIC_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# What is read in /proc where other processes show in it too.
SHARED_PROC = ("self", "cpuinfo", "meminfo", "stat", "driver", "sys", "filesystems", "devices", "modules", "version")


@dataclass(frozen=True)
class Plan:
    """Everything that the jail does; made by harness.containment."""

    read: tuple[str, ...]  # files and folders that can be read and run
    write: tuple[str, ...]  # folders and devices that can be written
    own_namespaces: bool  # enter namespaces here
    build: str  # an empty folder for the new root
    processes: bool  # a process namespace: the worker sees its own children alone
    supervised: bool
    network: bool
    landlock_abi: int  # 0: none
    seccomp: bool
    closed: bool  # close every inherited descriptor but the channel
    peeking: bool  # leave the calls that reach other processes
    own_tmp: bool  # /tmp and /dev/shm are private
    max_processes: int  # 0: unlimited
    limits: dict[str, int]  # name of a resource -> limit
    info_fd: int = 0  # where to say who is process 1; 0: nobody asks

    def to_text(self) -> str:
        """The plan as one word of a command line."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def of_text(cls, text: str) -> "Plan":
        """The plan that `to_text` wrote."""
        fields: dict[str, Any] = json.loads(text)
        fields |= {"read": tuple(fields["read"]), "write": tuple(fields["write"])}
        return cls(**fields)


def enter(plan: Plan) -> None:
    """Returns in the worker's process alone, contained. Raises OSError where the kernel refuses."""
    if plan.own_namespaces:
        working = os.getcwd()
        namespaces.isolate(plan.network, plan.processes)
        if plan.processes:
            _become_child_of_watcher(plan.info_fd)
        os.chdir(working)
        namespaces.enter_root(plan.build, plan.read, (*BASIC_DEVICES, *plan.write), plan.own_tmp, plan.processes)
    if plan.supervised:
        _leave_supervisor(plan)
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
    _limit(plan)
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    if plan.landlock_abi:
        proc = () if plan.processes else tuple(f"/proc/{name}" for name in SHARED_PROC)
        landlock.restrict((*plan.read, *proc), _writable(plan), plan.landlock_abi, plan.network)
    if plan.seccomp:
        hidden = plan.own_namespaces or plan.processes
        seccomp.install(seccomp.Rules(plan.network, plan.peeking, unix_connect=hidden))


def _writable(plan: Plan) -> tuple[str, ...]:
    """In /proc too: CUDA gives its threads names there and will not start if it cannot. A /proc of its own shows the worker's
    processes alone, and what it says of the machine is mounted read-only."""
    proc = "/proc" if plan.processes else "/proc/self/task"
    return (*plan.write, *BASIC_DEVICES, proc, *(("/tmp", "/dev/shm") if plan.own_tmp else ()))


def _limit(plan: Plan) -> None:
    for name, value in plan.limits.items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
    with contextlib.suppress(OSError):  # if memory runs out, the worker goes first
        Path("/proc/self/oom_score_adj").write_text("1000")


def _become_child_of_watcher(info_fd: int) -> None:
    """Fork: the child is process 1 of the new namespace; the parent stays outside until it has ended, and ends like it."""
    child = os.fork()
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)  # of both: the watcher ends with the referee too
    if child:
        if info_fd:  # in bubblewrap's words
            os.write(info_fd, json.dumps({"child-pid": child}).encode())
        os.closerange(3, ALL_FDS)
        os._exit(_exit_status(os.waitpid(child, 0)[1]))


def _leave_supervisor(plan: Plan) -> None:
    """Fork: the parent waits, the child goes on to be the worker. When the worker ends, so does all that it started."""
    if not plan.processes:
        libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)  # orphans come here instead of to the machine's own process 1
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    worker = os.fork()
    if worker:
        os._exit(_supervise(worker, plan))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)


def _supervise(worker: int, plan: Plan) -> int:
    """Wait for the worker; the exit status to end with."""
    os.closerange(3, ALL_FDS)  # the worker's socket must close with the worker
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    signal.signal(signal.SIGTERM, _ignore)  # process 1 gets only signals that it handles
    status = None
    while status is None:
        found = signal.sigtimedwait(HANDLED, WATCH_INTERVAL_S)
        if found and found.si_signo == signal.SIGTERM:
            break
        status = _reap(worker)
        if plan.max_processes and len(_descendants(plan)) > plan.max_processes:
            os.write(2, f"more than {plan.max_processes} processes\n".encode())
            break
    _kill_all(plan)
    if status is None:
        status = _reap(worker)
    return KILLED + signal.SIGKILL if status is None else status


def _ignore(signum: int, frame: FrameType | None) -> None:
    pass


def _reap(worker: int) -> int | None:
    """Collect every child that has ended; the worker's exit status if it is among them."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found = _exit_status(ended[1]) if ended[0] == worker else found
    return found


def _exit_status(status: int) -> int:
    return KILLED + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _kill_all(plan: Plan) -> None:
    """End every descendant; orphans arrive here as their parents go, so look until there is none."""
    while living := _descendants(plan):
        for pid in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if plan.processes:
            return  # the namespace ends with process 1
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _descendants(plan: Plan) -> list[int]:
    """Every living process that the worker started, and the worker: whoever else is in this namespace, or the family."""
    if plan.processes:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    return family(os.getpid())[1:]


def main() -> None:
    """Contain this process; be the worker."""
    plan = Plan.of_text(sys.argv[1])
    try:
        enter(plan)
    except (OSError, ValueError) as error:
        print(f"containment: {error}", file=sys.stderr)
        os._exit(SETUP_FAILED)
    fds = [int(fd) for fd in sys.argv[2:]]
    sys.argv[1:] = []
    for fd in fds:  # the one descriptor that the worker keeps
        if plan.closed:
            os.closerange(3, fd)
            os.closerange(fd + 1, ALL_FDS)
        from harness import worker

        worker.serve_on(fd)


if __name__ == "__main__":
    main()
