"""Device memory by descriptor, on a stand-in driver whose device memory is memory files of the host."""

import ctypes
import mmap
import os
import socket
from collections.abc import Iterator

import pytest
import torch

from harness import cuda_vmm, memory
from harness.cuda_vmm import CannotShare

DEVICE = torch.device("cuda", 0)
GRANULARITY = 2 << 20
INVALID = 1


class Driver:
    """libcuda's part of cuda_vmm in the calling convention of ctypes; what is not given back stays in its tables."""

    def __init__(self) -> None:
        self.handles: dict[int, int] = {}  # -> descriptor of a memory file
        self.mapped: dict[int, mmap.mmap] = {}  # by address
        self.reserved: dict[int, int] = {}  # address -> size
        self.broken = ""  # the function that fails
        self._serial, self._free_address = 100, 1 << 40

    def __getattribute__(self, name: str):
        found = object.__getattribute__(self, name)
        return (lambda *_: INVALID) if name.startswith("cu") and name == self.broken else found

    def _new_handle(self, fd: int, handle) -> int:
        self._serial += 1
        self.handles[self._serial], handle._obj.value = fd, self._serial
        return 0

    def cuMemGetAllocationGranularity(self, granularity, properties, option) -> int:
        granularity._obj.value = GRANULARITY
        return 0 if properties._obj.location.type == 1 else INVALID

    def cuMemCreate(self, handle, size, properties, flags) -> int:
        asked = properties._obj
        if size.value % GRANULARITY or (asked.type, asked.handle_types, asked.location.id) != (1, 1, 0):
            return INVALID
        return self._new_handle(memory.create_memfd("device", size.value), handle)

    def cuMemRelease(self, handle) -> int:
        os.close(self.handles.pop(handle.value))
        return 0

    def cuMemExportToShareableHandle(self, fd, handle, kind, flags) -> int:
        fd._obj.value = os.dup(self.handles[handle.value])
        return 0

    def cuMemImportFromShareableHandle(self, handle, fd, kind) -> int:
        return self._new_handle(os.dup(fd.value), handle)

    def cuMemAddressReserve(self, address, size, alignment, wish, flags) -> int:
        address._obj.value, self._free_address = self._free_address, self._free_address + size.value
        self.reserved[address._obj.value] = size.value
        return 0

    def cuMemAddressFree(self, address, size) -> int:
        return 0 if self.reserved.pop(address.value) == size.value else INVALID

    def cuMemMap(self, address, size, offset, handle, flags) -> int:
        self.mapped[address.value] = mmap.mmap(self.handles[handle.value], size.value)
        return 0

    def cuMemSetAccess(self, address, size, access, count) -> int:
        return 0 if (access._obj.flags, access._obj.location.id, count.value) == (3, 0, 1) else INVALID

    def cuMemUnmap(self, address, size) -> int:
        return INVALID if self.mapped.pop(address.value, None) is None else 0


@pytest.fixture
def driver(monkeypatch) -> Iterator[Driver]:
    made = Driver()

    def as_tensor(mapping, device):
        """What torch.as_tensor does with device memory: no copy, and the tensor keeps the owner."""
        array = mapping.__cuda_array_interface__
        (nbytes,), (address, read_only) = array["shape"], array["data"]
        assert (array["typestr"], read_only) == ("|u1", False)
        tensor = torch.frombuffer(made.mapped[address], dtype=torch.uint8, count=nbytes)
        OWNERS.append(mapping)
        return tensor

    monkeypatch.setattr(cuda_vmm, "_driver", lambda: made)
    monkeypatch.setattr(torch, "as_tensor", as_tensor)
    cuda_vmm._granularity.cache_clear()
    yield made
    OWNERS.clear()


def as_bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))


OWNERS: list[cuda_vmm.Mapping] = []  # stands for the storages: while one is in here, its memory is mapped


@pytest.mark.parametrize("nbytes", [1, 5000, GRANULARITY, GRANULARITY + 1])
def test_both_see_the_same_bytes(driver, nbytes):
    lent, fd = cuda_vmm.create(nbytes, DEVICE)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        socket.send_fds(ours, [b"x"], [fd])
        received = socket.recv_fds(theirs, 1, 1)[1][0]
    opened = cuda_vmm.open_shared(received, nbytes, DEVICE)
    os.close(received)
    os.close(fd)
    as_bytes(lent).fill_(7)
    assert as_bytes(opened).tolist() == [7] * nbytes


def test_everything_is_given_back(driver):
    _, fd = cuda_vmm.create(10, DEVICE)
    cuda_vmm.open_shared(fd, 10, DEVICE)
    os.close(fd)
    assert (len(driver.mapped), driver.handles) == (2, {})  # a mapping needs no handle any more
    OWNERS.clear()
    assert (driver.mapped, driver.reserved) == ({}, {})


@pytest.mark.parametrize(
    "function",
    ["cuMemGetAllocationGranularity", "cuMemCreate", "cuMemExportToShareableHandle", "cuMemAddressReserve", "cuMemMap",
     "cuMemSetAccess"],
)  # fmt: skip
def test_a_driver_that_refuses_is_named_and_nothing_is_kept(driver, function):
    driver.broken = function
    with pytest.raises(CannotShare, match=f"{function}: CUDA error 1"):
        cuda_vmm.create(10, DEVICE)
    OWNERS.clear()
    assert (driver.handles, driver.mapped, driver.reserved) == ({}, {}, {})


def test_a_descriptor_of_something_else_is_refused(driver):
    driver.broken = "cuMemImportFromShareableHandle"
    with pytest.raises(CannotShare, match="cuMemImportFromShareableHandle"):
        cuda_vmm.open_shared(0, 10, DEVICE)


def test_a_machine_without_the_driver(monkeypatch):
    cuda_vmm._granularity.cache_clear()
    cuda_vmm._driver.cache_clear()
    monkeypatch.setattr(cuda_vmm, "LIBRARY", "libcuda-that-is-nowhere.so.1")
    with pytest.raises(CannotShare, match="nowhere"):
        cuda_vmm.create(10, DEVICE)


def test_the_structures_have_the_layout_of_cuda_h():
    """CUmemLocation 8, CUmemAllocationProp 32 with its location at 8, CUmemAccessDesc 12 bytes (x86-64, aarch64)."""
    sizes = [ctypes.sizeof(kind) for kind in (cuda_vmm.Location, cuda_vmm.Properties, cuda_vmm.Access)]
    assert sizes == [8, 32, 12]
    assert (cuda_vmm.Properties.location.offset, cuda_vmm.Access.flags.offset) == (8, 8)
