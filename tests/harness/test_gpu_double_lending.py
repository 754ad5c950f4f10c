"""How device memory is lent, with stand-ins for the driver and torch's allocator: by descriptor, by handle, in what order."""

import contextlib
import os

import pytest
import torch

from harness import cuda_vmm, inputs, memory
from harness.cuda_vmm import CannotShare
from harness.inputs import InputBuffers
from harness.worker import Inputs

DEVICE = torch.device("cuda", 0)


class Machine:
    """What torch and the driver were asked for."""

    def __init__(self):
        self.log: list[str] = []
        self.refusals = 0  # of the driver, before it gives memory

    def create(self, nbytes, device):
        self.log.append("create")
        if self.refusals:
            self.refusals -= 1
            raise CannotShare("cuMemCreate: CUDA error 2")
        return torch.UntypedStorage(nbytes), memory.create_memfd("device", nbytes)


class Loan:
    """memory.DeviceLoan."""

    def __init__(self, storage):
        self.ended = False

    def describe(self):
        return ["handle"]

    def end(self):
        self.ended = True


@pytest.fixture
def machine(monkeypatch) -> Machine:
    made, plain = Machine(), torch.UntypedStorage
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(cuda_vmm, "create", made.create)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: made.log.append("empty_cache"))
    monkeypatch.setattr(torch.cuda, "use_mem_pool", lambda pool: contextlib.nullcontext(made.log.append("pool")))
    monkeypatch.setattr(inputs, "_lending_pool", lambda: None)
    monkeypatch.setattr(torch, "UntypedStorage", lambda nbytes, device=None: plain(nbytes))
    monkeypatch.setattr(memory, "DeviceLoan", Loan)
    return made


def test_by_descriptor_where_the_driver_can(machine):
    buffer = inputs._on_device(10, DEVICE)
    assert machine.log == ["create"]
    assert buffer.describe() == {"device": "cuda:0", "nbytes": 10, "memory": "vmm"}
    os.close(buffer.fd)


def test_torchs_cache_makes_room_once(machine):
    machine.refusals = 1
    buffer = inputs._on_device(10, DEVICE)
    assert machine.log == ["create", "empty_cache", "create"]
    assert buffer.describe()["memory"] == "vmm"
    os.close(buffer.fd)


def test_by_handle_where_the_driver_refuses(machine):
    machine.refusals = 9
    buffer = inputs._on_device(10, DEVICE)
    assert machine.log[-1] == "pool"
    assert buffer.describe() == {"device": "cuda:0", "nbytes": 10, "memory": "ipc", "handle": ["handle"]}


def test_by_handle_on_amd(machine, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    assert inputs._on_device(10, DEVICE).describe()["memory"] == "ipc"
    assert machine.log == ["pool"]


def test_descriptors_and_handles_reach_the_storages_that_they_are_of(machine, monkeypatch):
    """A tuple of host memory, device memory by descriptor, by handle, and host memory again."""
    buffers = InputBuffers()
    allocate = buffers._allocate
    made = []

    def in_turn(nbytes, device):
        machine.refusals = 0 if len(made) == 1 else 9
        made.append(inputs._on_device(nbytes, DEVICE) if len(made) in (1, 2) else allocate(nbytes, device))
        return made[-1]

    monkeypatch.setattr(buffers, "_allocate", in_turn)
    value = tuple(torch.full((8,), number, dtype=torch.uint8) for number in range(4))
    buffers.fill(lambda: value)
    fields, fds = buffers.lend()
    assert [entry["memory"] for entry in fields["storages"]] == ["memfd", "vmm", "ipc", "memfd"]
    assert len(fds) == 3

    opened = []
    monkeypatch.setattr(cuda_vmm, "open_shared", lambda fd, nbytes, device: opened.append(fd) or made[1].storage)
    monkeypatch.setattr(memory, "import_device_storage", lambda handle, device: opened.append(handle) or made[2].storage)
    seen = Inputs(fields["tree"], fields["storages"], list(fds), torch.device("cpu"), private=True)
    assert opened == [made[1].fd, ["handle"]]
    assert [tensor.tolist() for tensor in seen.value] == [tensor.tolist() for tensor in value]
    assert not buffers.copied
    loan = made[2].loans[0]
    buffers.close()
    assert loan.ended
