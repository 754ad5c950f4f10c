"""Memory that two processes see: memfd on the host, IPC handles of device memory."""

import fcntl
import mmap
import os

import torch

COUNTER_FIELD, NO_COUNTER = 4, b"/none"  # in what UntypedStorage._share_cuda_ returns: file, then index in it
EVENT_FIELD, NO_EVENT = 6, (b"", False)  # handle of an event, and whether the borrower must wait for it
ALIGNMENT_BYTES = 256
COMPARED_BYTES = 64 << 20  # at a time: a comparison on a GPU needs as much memory again
F_SEAL_FUTURE_WRITE = 0x10  # Linux 5.1; not in Python's fcntl


def create_memfd(name: str, nbytes: int) -> int:
    """A new anonymous memory file of `nbytes` (at least one page, so that it can be mapped).

    Its size is sealed: a process that shrank a file which another one reads would end that one with SIGBUS.
    """
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, max(nbytes, mmap.PAGESIZE))
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return fd


def seal_writes(fd: int) -> None:
    """From now on nobody can write the file, however it is opened; only shared mappings made before still can."""
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL)


def map_shared(fd: int, nbytes: int) -> torch.UntypedStorage:
    """A host storage whose bytes are the file's: writes are seen by everybody who mapped it."""
    return _storage(mmap.mmap(fd, max(nbytes, mmap.PAGESIZE), mmap.MAP_SHARED), nbytes)


def map_inputs(fd: int, nbytes: int, private: bool) -> tuple[torch.UntypedStorage, mmap.mmap]:
    """A host storage that reads the file and, if `private`, keeps its writes to itself (copy on write); its mapping."""
    mapping = mmap.mmap(fd, max(nbytes, mmap.PAGESIZE), mmap.MAP_PRIVATE if private else mmap.MAP_SHARED)
    return _storage(mapping, nbytes), mapping


def equal(a: torch.UntypedStorage, b: torch.UntypedStorage) -> bool:
    """Whether two storages hold the same bytes; compared piece by piece, on the device of the first."""
    pairs = zip(byte_view(a).split(COMPARED_BYTES), byte_view(b).split(COMPARED_BYTES), strict=True)
    return all(torch.equal(left, right.to(left.device)) for left, right in pairs)


def byte_view(storage: torch.UntypedStorage) -> torch.Tensor:
    """A storage as a uint8 tensor."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, 0, (storage.nbytes(),), (1,))


def layout(sizes: list[int]) -> tuple[list[int], int]:
    """Aligned offsets of consecutive pieces, and their total."""
    offsets, total = [], 0
    for size in sizes:
        offsets.append(total)
        total += -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return offsets, total


def _storage(mapping: mmap.mmap, nbytes: int) -> torch.UntypedStorage:
    """The first `nbytes` of a mapping, which the storage keeps alive."""
    if not nbytes:
        return torch.UntypedStorage(0)
    return torch.frombuffer(mapping, dtype=torch.uint8, count=nbytes).untyped_storage()


class DeviceLoan:
    """Device memory that another process may open once, by torch's own storage sharing (CUDA and HIP).

    torch counts borrowers in a file of /dev/shm, which a contained process does not see: the lender counts for it, so the
    memory comes back whatever became of the borrower. An event, which the driver shares in the same way, is left out too:
    lent memory is complete before anybody is told of it.
    """

    def __init__(self, storage: torch.UntypedStorage):
        self._device = storage.device
        self._fields = list(storage._share_cuda_())

    def describe(self) -> list:
        """The JSON form of the handle; neither the counter's file nor the event is named."""
        fields = [*self._fields[:COUNTER_FIELD], NO_COUNTER, *self._fields[COUNTER_FIELD + 1 : EVENT_FIELD], *NO_EVENT]
        return [{"hex": item.hex()} if isinstance(item, bytes) else item for item in fields]

    def end(self) -> None:
        """The borrower has given the memory back, or is gone."""
        counter, index = self._fields[COUNTER_FIELD : COUNTER_FIELD + 2]
        torch.UntypedStorage._release_ipc_counter(counter, index, device=self._device)


def import_device_storage(handle: list, device: torch.device) -> torch.UntypedStorage:
    """The storage behind another process's handle; `device` is this process's name of the same GPU."""
    fields = [bytes.fromhex(item["hex"]) if isinstance(item, dict) else item for item in handle]
    return torch.UntypedStorage._new_shared_cuda(device.index or 0, *fields[1:])
