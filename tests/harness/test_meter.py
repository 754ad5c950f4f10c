"""Processor time of processes that end unseen: children whom nobody waits for, of threads too, before anybody looked."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from harness import session as session_module
from harness.inputs import InputBuffers
from harness.meter import CannotMeter, Meter
from harness.process import Limits, WorkerProcess
from harness.session import Session
from harness.timing import Cold

CHILDREN, BURNT_S = 6, 0.03
FORKING = f"""
import os, signal, sys, threading, time
sys.stdin.readline()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)

def start():
    for _ in range({CHILDREN}):
        if not os.fork():
            while time.process_time() < {BURNT_S}:
                os.getppid()
            os._exit(0)

if sys.argv[1] == "thread":
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
else:
    start()
while True:  # until the last has ended
    try:
        os.wait()
    except ChildProcessError:
        break
print("ended", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def metered():
    """A process that waits for a line, and its meter."""

    @contextlib.contextmanager
    def start(*arguments: str):
        command = [sys.executable, "-c", FORKING, *arguments]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield process, Meter.of(process.pid)
            except CannotMeter as error:
                pytest.skip(f"no perf events here: {error}")
            finally:
                process.kill()

    return start


@pytest.mark.parametrize("by", ["process", "thread"])
def test_children_that_ended_unseen_are_counted(metered, by):
    with metered(by) as (process, meter):
        before_ns = meter.used_ns
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ended\n"
        assert meter.used_ns - before_ns > 0.8 * CHILDREN * BURNT_S * 1e9
        meter.close()


def test_a_process_that_is_gone(metered):
    with metered("process") as (process, meter):
        meter.close()
        process.kill()
        process.wait()
        with pytest.raises(CannotMeter):
            Meter.of(process.pid)


FORKS_IN_ITS_CALL = f"""
import os, signal, time

def custom_kernel(data):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    reading, writing = os.pipe()
    for _ in range({CHILDREN}):
        if not os.fork():
            while time.process_time() < {BURNT_S}:
                os.getppid()
            os._exit(0)
    os.close(writing)
    os.read(reading, 1)  # the end of the file: all have ended
    os.close(reading)
    return data + 1
"""


@pytest.fixture
def started(tmp_path):
    folder = tmp_path / "worker"
    folder.mkdir()
    submission = folder / "submission.py"
    submission.write_text(FORKS_IN_ITS_CALL)
    with Session(WorkerProcess(folder, "auto", Limits()), Path(submission), torch.device("cpu"), 300.0) as session:
        session.start(Cold("none"))
        session.load()
        yield session


def test_a_call_is_charged_with_them(started):
    if started.unmetered:
        pytest.skip(f"no perf events here: {started.unmetered}")
    buffers = InputBuffers(device_ipc=False)
    buffers.fill(lambda: torch.zeros(4))
    started.map("case", buffers)
    assert started.call("case", timed=True).used_ns > 0.8 * CHILDREN * BURNT_S * 1e9
    buffers.close()


def test_a_kernel_that_refuses_leaves_the_accounts_of_proc(started, monkeypatch):
    def refuse(pid):
        raise CannotMeter(1, "perf_event_open: Operation not permitted")

    monkeypatch.setattr(session_module.Meter, "of", refuse)
    started._meter, started.unmetered = session_module.metered(started._process.pid)
    assert "perf_event_open" in started.unmetered
    assert os.getpid() not in started._used().processes
    assert started._process.pid in started._used().processes
