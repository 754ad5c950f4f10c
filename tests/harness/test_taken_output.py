"""When an output is taken: copied as its call returned, or, without that defence, once the whole device is idle."""

import contextlib
import os
import socket

import pytest
import torch

from harness import memory
from harness.codec import encode
from harness.defences import Defences
from harness.inputs import InputBuffers
from harness.process import Limits, WorkerProcess
from harness.protocol import Channel
from harness.session import Session
from harness.timing import Cold
from harness.worker import Worker


@pytest.mark.parametrize("copied_at_return", [True, False])
def test_an_output_that_was_not_copied_is_complete_when_it_is_taken(monkeypatch, copied_at_return):
    """Else a queue that nobody has waited for would look like a wrong output instead of a fast one."""
    waited, output = [], torch.arange(4, dtype=torch.float32)
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    worker = Worker(Channel(socket.socket()))
    worker._device, worker._outputs = torch.device("cuda"), [encode(output)]
    worker._checks = {"copied_at_return": copied_at_return, "poisoned_memory": False}
    fd = memory.create_memfd("test", output.nbytes)
    kind, _ = worker._take([fd], calls=[0], offsets=[0], nbytes=output.nbytes)
    taken = memory.map_shared(fd, output.nbytes)
    os.close(fd)
    assert kind == "taken"
    assert bytes(taken) == output.numpy().tobytes()
    assert waited == ([] if copied_at_return else [torch.device("cuda")])


SEALS = """
import fcntl
from harness import memory

map_shared = memory.map_shared


def map_and_seal(fd, nbytes):
    storage = map_shared(fd, nbytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, memory.F_SEAL_FUTURE_WRITE)
    return storage


memory.map_shared = map_and_seal


def custom_kernel(data):
    return data + 1
"""


def test_a_worker_that_seals_the_file_of_an_output_does_not_stop_the_referee(tmp_path):
    folder = tmp_path / "worker"
    folder.mkdir()
    submission, buffers = folder / "submission.py", InputBuffers(device_ipc=False)
    submission.write_text(SEALS)
    with Session(WorkerProcess(folder, "auto", Limits()), submission, torch.device("cpu"), 300.0) as session:
        session.start(Cold("none"))
        session.load()
        buffers.fill(lambda: torch.zeros(4))
        session.map("case", buffers)
        assert session.take(session.call("case")).tolist() == [1.0] * 4
        assert all(called.output.tolist() == [1.0] * 4 for called in session.burst(["case"] * 3).called)
    buffers.close()


WITHOUT_A_DEVICE = """
import torch

torch.cuda.synchronize = lambda device: None
"""
HONEST = """
def custom_kernel(data):
    return data + 1
"""
ANSWERS_EARLY = """
import sys

frame = sys._getframe()
while "worker" not in frame.f_locals:
    frame = frame.f_back
worker = frame.f_locals["worker"]
take = worker._take


def answering(fds, calls, into="", **fields):
    return ("taken", {}) if into else take(fds, calls, **fields)


worker._take = answering


def custom_kernel(data):
    return data + 1
"""


@pytest.fixture
def lending(tmp_path, monkeypatch):
    """A session whose memory for outputs is what device memory is: seen by both, written by both."""
    folder = tmp_path / "worker"
    folder.mkdir()
    waits: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append("wait"))
    shared = Defences(private_inputs=False)

    @contextlib.contextmanager
    def start(source: str):
        submission, buffers = folder / "submission.py", InputBuffers(device_ipc=False)
        submission.write_text(WITHOUT_A_DEVICE + source)
        with Session(WorkerProcess(folder, "auto", Limits()), submission, torch.device("cpu"), 300.0, shared) as session:
            session.start(Cold("none"))
            session.load()
            session.device_ipc, session._free_bytes = True, 1 << 20
            buffers.fill(lambda: torch.zeros(4))
            session.map("case", buffers)
            yield session, waits
        buffers.close()

    return start


def test_outputs_of_a_burst_are_delivered_in_lent_memory(lending):
    with lending(HONEST) as (session, waits):
        session.lend_for_outputs(3, session.call("case"))
        lent = session._outputs
        assert lent.value is None  # nothing is held twice
        for _ in range(2):  # the memory serves again
            called = session.burst(["case"] * 3).called
            session.lend_for_outputs(2, called[0])
            assert session._outputs is lent
            assert memory.byte_view(lent.storages[0])[:4].tolist() == list(torch.ones(1).view(torch.uint8))
            lent.storages[0].fill_(255)  # later than its copy was made
            assert [one.output.tolist() for one in called] == [[1.0] * 4] * 3
        assert waits == ["wait"] * 2  # the copies are complete when the clock stops
        assert session.take(session.call("case")).tolist() == [1.0] * 4


def test_what_is_not_in_lent_memory_when_the_worker_says_so_is_missing(lending):
    with lending(ANSWERS_EARLY) as (session, _):
        session.lend_for_outputs(3, session.call("case"))
        assert [one.output.tolist() for one in session.burst(["case"] * 3).called] == [[0.0] * 4] * 3


def test_outputs_that_lent_memory_is_too_small_for_go_through_a_file(lending):
    with lending(HONEST) as (session, waits):
        session.lend_for_outputs(1, session.call("case"))
        assert [one.output.tolist() for one in session.burst(["case"] * 3).called] == [[1.0] * 4] * 3
        assert not waits
        session.lend_for_outputs(3, session.call("case"))  # larger now
        session.burst(["case"] * 3)
        assert waits == ["wait"]


def test_how_many_outputs_have_room(lending):
    with lending(HONEST) as (session, _):
        called = session.call("case")
        assert session.room_for_outputs(called) == int(0.12 * (1 << 20)) // (2 * 16)
        session._free_bytes = 100
        assert session.room_for_outputs(called) == 2
        session.device_ipc = False
        assert session.room_for_outputs(called) > 1000


def test_twice_the_last_output_has_room(lending):
    with lending(HONEST) as (session, waits):
        session.lend_for_outputs(2, session.call("case"))
        session.burst(["case"] * 4)
        assert waits == ["wait"]


def test_where_no_device_memory_can_be_lent(lending):
    with lending(HONEST) as (session, waits):
        session.device_ipc = False
        session.lend_for_outputs(3, session.call("case"))
        assert session._outputs is None
        assert [one.output.tolist() for one in session.burst(["case"] * 3).called] == [[1.0] * 4] * 3
        assert not waits


def test_the_default_device_of_a_submission_is_not_the_workers():
    worker, output = Worker(Channel(socket.socket())), torch.arange(4, dtype=torch.float32)
    worker._outputs, worker._checks = [encode(output)], {"copied_at_return": True, "poisoned_memory": False}
    fd = memory.create_memfd("test", output.nbytes)
    with torch.device("meta"):
        worker._take([fd], calls=[0], offsets=[0], nbytes=output.nbytes)
    taken = memory.map_shared(fd, output.nbytes)
    os.close(fd)
    assert bytes(taken) == output.numpy().tobytes()
