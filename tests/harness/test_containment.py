"""Each way to contain a worker, by force: what a process behind it still can do. Skipped where the kernel refuses a layer."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from harness import containment, jail, landlock, seccomp
from harness.containment import ALL_ON, Containment
from harness.defences import Defences
from harness.process import RUNTIME_FILES

REPOSITORY = Path(containment.__file__).parent.parent
WALLS = ("bubblewrap", "namespaces", "none")
WAYS = [(wall, own) for wall in WALLS for own in ((True, False) if wall != "none" else (False,))]


def contained(wall, processes, defences=ALL_ON):
    found = Containment(wall, processes, landlock.abi(), seccomp.supported(), defences)
    if wall == "none" and not landlock.abi():
        pytest.skip("this kernel has no Landlock: without walls nothing holds, as the Result says")
    if not containment.works(found):
        pytest.skip(f"this kernel does not allow {wall}{' with processes of its own' if processes else ''}")
    return found


@pytest.fixture(params=WAYS, ids=lambda way: f"{way[0]}{'-own-processes' if way[1] else ''}")
def run(request, tmp_path):
    """Runs a function body in a contained process and returns what it assigned to `found`."""
    found = contained(*request.param)
    return lambda code, **limits: behind(found, tmp_path, code, limits)


@pytest.fixture(params=WAYS, ids=lambda way: f"{way[0]}{'-own-processes' if way[1] else ''}")
def ended(request, tmp_path):
    """Runs a function body that the jail must end, with at most `max_processes`; its exit status."""
    found = contained(*request.param)
    return lambda code, max_processes: behind(found, tmp_path, code, {}, max_processes)


def behind(found, tmp_path, code, limits, max_processes=None):
    """What `code` found; with `max_processes` the exit status of its process."""
    folder, home, runtime, root = (tmp_path / name for name in ("worker", "home", "runtime", "root"))
    for path in (folder, home, runtime / "harness", root):
        path.mkdir(parents=True, exist_ok=True)
    for name in RUNTIME_FILES:
        (runtime / "harness" / name).write_bytes((REPOSITORY / "harness" / name).read_bytes())
    # In the worker's place: a harness.worker that runs the code and sends what it found.
    (runtime / "harness" / "worker.py").write_text(WORKER.format(code=textwrap.indent(textwrap.dedent(code), "    ")))
    plan = found.plan((folder, home), runtime, root, [REPOSITORY], limits)
    plan = replace(plan, max_processes=max_processes or plan.max_processes)
    ours, theirs = socket.socketpair()
    environment = {**os.environ, "PYTHONPATH": str(runtime), "HOME": str(home)}
    with ours, theirs:
        command = [*found.command(plan, folder), str(theirs.fileno())]
        process = subprocess.Popen(
            command, cwd=folder, env=environment, pass_fds=(theirs.fileno(),), start_new_session=True, stderr=subprocess.PIPE
        )
        theirs.close()
        said = ours.makefile().read()
        stderr = process.communicate(timeout=600)[1].decode()
    if max_processes:
        return process.returncode
    assert said, f"exit {process.returncode}: {stderr}"
    return json.loads(said)


WORKER = """
import glob, json, os, resource, signal, socket, subprocess, sys, ctypes, errno
from pathlib import Path

def refused(action):
    try:
        action()
    except OSError as error:
        return True
    return False

def probe():
    found = None
{code}
    return found

def serve_on(fd):
    with socket.socket(fileno=fd) as channel:
        channel.sendall(json.dumps(probe()).encode())
"""


def test_the_network_is_out_of_reach(run):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert run(f"found = refused(lambda: socket.create_connection(('127.0.0.1', {port}), timeout=2))")


def test_udp_and_raw_sockets_are_refused(run):
    code = "found = [refused(lambda: socket.socket(family, socket.SOCK_DGRAM)) for family in (2, 10, 16, 17)]"
    assert run(code) == [True] * 4


def test_the_project_is_out_of_sight(run):
    withheld = [str(REPOSITORY / name) for name in ("reference.py", "configs/task.yml")]
    assert run(f"found = [refused(Path(path).read_text) for path in {withheld!r}]") == [True, True]


def test_reads_and_runs_what_python_and_compilers_need(run):
    code = """
    import numpy
    found = subprocess.run(["/bin/sh", "-c", "echo $((6 * 7))"], capture_output=True, text=True).stdout.strip()
    """
    assert run(code) == "42"


def test_basic_devices_work(run):
    """torch opens /dev/urandom while it is imported; without bubblewrap the namespaces' root once lacked it."""
    code = """
    found = [len(os.urandom(8)), len(open("/dev/urandom", "rb", buffering=0).read(4)), open("/dev/null", "w").write("x")]
    found.append(open("/dev/zero", "rb", buffering=0).read(2) == bytes(2))
    """
    assert run(code) == [8, 4, 1, True]


@pytest.mark.parametrize(("wall", "processes"), [("bubblewrap", True), ("namespaces", True), ("none", False)])
def test_threads_can_be_named_and_the_machine_not_changed(tmp_path, wall, processes):
    """CUDA names its threads through /proc and does not start (error 304) where it cannot; seen on an H200 behind Landlock."""
    code = """
    threads = os.listdir("/proc/self/task")
    for thread in threads:
        Path(f"/proc/self/task/{thread}/comm").write_text("named")
    named = {Path(f"/proc/self/task/{thread}/comm").read_text().strip() for thread in threads}
    settings = ["/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sysrq-trigger"]
    found = [sorted(named), [refused(lambda: os.close(os.open(path, os.O_WRONLY))) for path in settings]]
    """
    assert behind(contained(wall, processes), tmp_path, code, {}) == [["named"], [True] * 3]


@pytest.mark.parametrize(("wall", "processes"), WAYS)
def test_files_can_be_written_where_that_layer_is_off(tmp_path, wall, processes):
    """A sweep's workers share the machine's compiler caches; without bubblewrap their root was read-only all the same."""
    outside = tmp_path / "cache"
    outside.mkdir()
    code = f"""
    Path({str(outside)!r}, "compiled").write_text("x")
    found = Path({str(outside)!r}, "compiled").read_text()
    """
    assert behind(contained(wall, processes, ALL_ON.without("read_only_files")), tmp_path, code, {}) == "x"
    assert (outside / "compiled").read_text() == "x"


def test_writes_go_to_the_scratch_folders_alone(run, tmp_path):
    places = [str(Path(sys.prefix, "planted")), "/usr/planted", str(Path.home() / "planted"), str(REPOSITORY / "planted")]
    private = [str(tmp_path / "planted")]  # in an own /tmp it can be written, and nobody sees it
    private += [path for path in places if path.startswith("/tmp/")]
    outside = [path for path in places if path not in private]
    code = f"""
    Path("made.txt").write_text("x")
    Path.home().joinpath("made.txt").write_text("x")
    found = [refused(lambda: Path(path).write_text("x")) for path in {[*outside, *private]!r}]
    """
    assert run(code)[: len(outside)] == [True] * len(outside)
    assert (tmp_path / "worker" / "made.txt").read_text() == "x"
    assert not any(map(os.path.exists, [*private, *outside]))


def test_what_is_left_in_tmp_is_gone_afterwards(run):
    places = [f"{folder}/kernelproof-planted-{os.getpid()}" for folder in ("/tmp", "/dev/shm")]
    run(f"found = [refused(lambda: Path(path).write_text('x')) for path in {places}]")
    assert not any(map(os.path.exists, places))


def test_other_processes_are_out_of_reach(run):
    with subprocess.Popen(["sleep", "3600"], env={"PLANTED": "secret"}) as other:
        code = f"""
        libc = ctypes.CDLL(None, use_errno=True)
        attached = libc.ptrace(16, {other.pid}, None, None)
        found = [
            refused(lambda: Path("/proc/{other.pid}/environ").read_bytes()),
            refused(lambda: os.listdir("/proc/{other.pid}/fd")),
            attached == -1,
            {landlock.abi() < 6} or refused(lambda: os.kill({other.pid}, signal.SIGKILL)),
        ]
        """
        found = run(code)
        alive = other.poll() is None
        other.kill()
    assert found == [True] * 4
    assert alive or landlock.abi() < 6


def test_system_calls_that_reach_the_kernel_or_others_are_refused(run):
    numbers = seccomp.NUMBERS[os.uname().machine]
    names = [name for name in numbers if name not in seccomp.CONDITIONAL]
    code = f"""
    libc = ctypes.CDLL(None, use_errno=True)
    found = []
    for number in {[numbers[name] for name in names]!r}:
        found.append(libc.syscall(number, -1, 0, 0, 0, 0, 0) == -1 and ctypes.get_errno() == errno.EPERM)
    """
    assert dict(zip(names, run(code), strict=True)) == dict.fromkeys(names, True)


def test_no_new_namespaces_filters_or_privileges(run):
    code = """
    libc = ctypes.CDLL(None, use_errno=True)
    status = Path("/proc/self/status").read_text()
    found = [libc.unshare(0x10000000), libc.prctl(22, 1, 0, 0, 0), "NoNewPrivs:\\t1" in status]
    """
    assert run(code) == [-1, -1, True]


def test_limits_hold(run):
    code = """
    import errno
    try:
        with open("big", "wb") as file:
            file.truncate(1 << 20)
    except OSError as error:
        found = [error.errno == errno.EFBIG]
    found += [resource.getrlimit(resource.RLIMIT_CORE)[0], resource.getrlimit(resource.RLIMIT_CPU)[0]]
    """
    # A process beyond its file size gets SIGXFSZ first; Python ignores that signal.
    assert run(code, RLIMIT_FSIZE=1 << 16, RLIMIT_CPU=77) == [True, 0, 77]


@pytest.mark.parametrize("started", ["subprocess.Popen(command)", "os.system(' '.join(command) + ' &')"])
def test_too_many_processes_end_the_worker(ended, started):
    """Its own children, or children of shells that have ended."""
    code = f"""
    command = ["sleep", "60"]
    for _ in range(30):
        {started}
    signal.pause()
    """
    assert ended(code, max_processes=20) == jail.KILLED + signal.SIGKILL


def test_no_descriptor_but_the_channel_is_inherited(run):
    leak = os.open("/etc/hostname", os.O_RDONLY)
    os.set_inheritable(leak, True)
    try:
        code = """
        found = []
        for fd in range(3, 200):
            if not refused(lambda: os.fstat(fd)):
                found.append(fd)
        """
        assert len(run(code)) == 1
    finally:
        os.close(leak)


def test_grandchildren_end_with_the_worker(run):
    # start_new_session: neither its process group nor its parent leads back to the worker
    mark = f"{os.getpid()}.0625"
    run(f"subprocess.Popen(['sleep', '{mark}'], start_new_session=True, close_fds=True); found = True")
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # ended since it was listed
            commands.append(path.read_bytes())
    assert not [command for command in commands if mark.encode() in command]


@pytest.mark.parametrize("name", Defences.names())
def test_every_defence_can_be_switched_off_alone(name):
    usable = {(way.wall, way.processes) for way in containment.ways() if containment.works(way)}
    for found in containment.ways(ALL_ON.without(name)):
        assert containment.works(found) or (found.wall, found.processes) not in usable


def test_layers_name_what_is_active():
    found = containment.choose()
    assert found.layers[0] == "process"
    assert len(set(found.layers)) == len(found.layers)
    without = containment.choose(ALL_ON.without("no_network"))
    assert "no network" not in without.layers


def test_a_kernel_without_any_layer_is_a_warning():
    bare = Containment("none", False, 0, False)
    assert bare.layers == ("process", "limits")
    assert "not contained" in bare.warning
    assert "the network is open" in bare.warning


@pytest.mark.parametrize("name", Defences.names())
def test_a_worker_starts_with_any_one_defence_off(name, tmp_path):
    """The probe's harness lies in the project, a worker's in a scratch folder below /tmp: both must be visible."""
    found = containment.choose(ALL_ON.without(name))
    assert behind(found, tmp_path, "found = 7", {}) == 7
