"""When an output is taken: copied as its call returned, or, without that defence, once the whole device is idle."""

import os

import pytest
import torch

from harness import memory
from harness.codec import encode
from harness.inputs import InputBuffers
from harness.process import Limits, WorkerProcess
from harness.session import Session
from harness.timing import Cold
from harness.worker import Worker


@pytest.mark.parametrize("copied_at_return", [True, False])
def test_an_output_that_was_not_copied_is_complete_when_it_is_taken(monkeypatch, copied_at_return):
    """Else a queue that nobody has waited for would look like a wrong output instead of a fast one."""
    waited, output = [], torch.arange(4, dtype=torch.float32)
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    worker = Worker()
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


def test_the_default_device_of_a_submission_is_not_the_workers():
    worker, output = Worker(), torch.arange(4, dtype=torch.float32)
    worker._outputs, worker._checks = [encode(output)], {"copied_at_return": True, "poisoned_memory": False}
    fd = memory.create_memfd("test", output.nbytes)
    with torch.device("meta"):
        worker._take([fd], calls=[0], offsets=[0], nbytes=output.nbytes)
    taken = memory.map_shared(fd, output.nbytes)
    os.close(fd)
    assert bytes(taken) == output.numpy().tobytes()
