"""The referee's buffers: filled by the problem's generator, lent to workers, never taken back from them.

On a CPU the buffers are memory files. The referee maps them shared; a worker maps them privately, so its writes never
reach the referee and one copy serves both. On a GPU the buffers are memory of their own and are lent by descriptor
(NVIDIA), or lie in a pool of their own and are lent by IPC handle; the referee keeps the generator's own tensors apart
and judges with those.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from harness import cuda_vmm, memory
from harness.codec import Encoded, decode, encode, storages_of

LATE_BYTES = 8 << 20  # of a set in a GPU's memory: revealed last
LEAST_LATE_BYTES = 64 << 10  # less than that is not copied by a copy engine, but by the device that is held


@dataclass
class _Buffer:
    """A storage that workers may map: through `fd`, or by IPC handle if there is none.

    `device` is where the worker wants it: a memory file that belongs to a GPU is copied there by the worker.
    """

    storage: torch.UntypedStorage
    device: torch.device
    fd: int | None
    on_device: bool = False  # lent where it lies, in device memory
    loans: list[memory.DeviceLoan] = field(default_factory=list)

    def describe(self) -> dict[str, Any]:
        kind = "memfd" if not self.on_device else "vmm" if self.fd is not None else "ipc"
        entry = {"device": str(self.device), "nbytes": self.storage.nbytes(), "memory": kind}
        if kind == "ipc":  # every handle may be opened once, so each loan makes its own
            self.loans.append(memory.DeviceLoan(self.storage))
            entry["handle"] = self.loans[-1].describe()
        return entry


class InputBuffers:
    """The inputs of one case, or room for its outputs. `value` is what the referee judges with.

    `device_ipc` says whether device memory can be lent; if not, it goes through memory files and is copied. Without
    `private` (tests of that defence) workers map the files as the referee does.
    """

    def __init__(self, device_ipc: bool = True, private: bool = True):
        self._private = private
        self.value: Any = None
        self._device_ipc = device_ipc
        self._tree: Any = None
        self._buffers: list[_Buffer] = []
        self._next: Encoded | None = None  # prepared and not poured yet
        self._originals: list[torch.UntypedStorage] = []  # of `value`
        self._late: list[tuple[torch.Tensor, torch.Tensor]] = []  # lent bytes that are not revealed yet, and what they will be
        self._staged: list[torch.Tensor] = []  # the latter in pinned host memory, if that was asked for

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(buffer.storage.nbytes() for buffer in self._buffers)

    @property
    def files(self) -> int:
        """Descriptors that the buffers hold."""
        return sum(buffer.fd is not None for buffer in self._buffers)

    def fill(self, generate: Callable[[], Any]) -> bool:
        """Fill the buffers with what `generate` returns; True if the layout is the old one: workers need only REFRESH."""
        same = self.prepare(generate)
        self.pour()
        reveal([self])
        return same

    def prepare(self, generate: Callable[[], Any]) -> bool:
        """Generate contents and make room for them, unseen; True if the layout is the old one."""
        self.forget()
        self._next = encode(generate())
        sizes = [storage.nbytes() for storage in self._next.storages]
        same = self._next.tree == self._tree and sizes == [buffer.storage.nbytes() for buffer in self._buffers]
        if not same:
            self._release()
            self._buffers = [self._allocate(storage.nbytes(), storage.device) for storage in self._next.storages]
            self._tree = self._next.tree
        return same

    def pour(self, stage: bool = False) -> None:
        """Put the prepared contents where workers see them, but for those that `reveal` adds. `stage`: make ready for a copy
        engine what is left, before anything is to be seen. Raises MemoryError if there is no host memory for that.

        Host storages are moved one by one, so the peak is the inputs once and their largest storage again.
        """
        assert self._next is not None
        storages, self._next = self._next.storages, None
        lent = [buffer.storage if buffer.on_device else None for buffer in self._buffers]
        late_bytes = _late_bytes([storage.nbytes() if storage else 0 for storage in lent])
        parts = zip(lent, storages, late_bytes, strict=True)
        self._late = [(_end(storage, late), _end(new, late)) for storage, new, late in parts if storage and late]
        self._staged = [_pinned(new) for _, new in self._late] if stage else []
        for index, buffer in enumerate(self._buffers):
            if buffer.on_device:
                early = buffer.storage.nbytes() - late_bytes[index]
                memory.byte_view(buffer.storage)[:early].copy_(memory.byte_view(storages[index])[:early])
                continue
            buffer.storage.copy_(storages[index])
            if storages[index].device.type == "cpu":
                storages[index] = buffer.storage
        self._originals, self.value = storages, decode(self._tree, storages)
        _wait_for_device()

    def staged(self) -> Callable[[], None]:
        """A call that reveals the contents by a copy engine, which another process cannot keep busy as it can the device."""
        staged, late = self._staged, self.take_late()
        if not late:
            return lambda: None
        pinned = staged or [_pinned(new) for _, new in late]
        queue = torch.cuda.Stream(late[0][0].device)

        def complete() -> None:
            with torch.cuda.stream(queue):
                for (lent, _), new in zip(late, pinned, strict=True):
                    lent.copy_(new, non_blocking=True)
            queue.synchronize()

        return complete

    def take_late(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Lent bytes that are not revealed yet, and what they will be, for who does it now."""
        late, self._late, self._staged = self._late, [], []
        return late

    @property
    def tree(self) -> Any:
        """The layout, as codec.encode describes it."""
        return self._tree

    @property
    def storages(self) -> list[torch.UntypedStorage]:
        """The buffers themselves."""
        return [buffer.storage for buffer in self._buffers]

    @property
    def copied(self) -> bool:
        """Whether workers hold copies, which they must renew after contents were poured."""
        elsewhere = (buffer for buffer in self._buffers if not buffer.on_device and buffer.device.type != "cpu")
        return any(buffer.storage.nbytes() for buffer in elsewhere)

    def changed_on_device(self) -> list[int]:
        """Indices of lent device storages whose bytes are no longer what was poured."""
        lent = ((index, buffer.storage) for index, buffer in enumerate(self._buffers) if buffer.on_device)
        return [index for index, storage in lent if not memory.equal(storage, self._originals[index])]

    def positions(self, storages: Iterable[int]) -> list[int]:
        """Positions of the input tuple that lie in these storages; 0 if the input is no tuple."""
        parts = self._tree[1] if self._tree[0] in ("tuple", "list") else [self._tree]
        return [position for position, part in enumerate(parts) if not set(storages).isdisjoint(storages_of(part))]

    def lend(self) -> tuple[dict[str, Any], tuple[int, ...]]:
        """The fields of a MAP request, and the descriptors that go with it."""
        fields = {"tree": self._tree, "private": self._private, "storages": [buffer.describe() for buffer in self._buffers]}
        return fields, tuple(buffer.fd for buffer in self._buffers if buffer.fd is not None)

    def forget(self) -> None:
        """Drop `value`; device memory that only the judge needed is free again."""
        self._originals, self._late, self._staged, self.value = [], [], [], None

    def close(self) -> None:
        """Give the memory back."""
        self._next = None
        self._release()

    def _release(self) -> None:
        self.forget()
        for buffer in self._buffers:
            if buffer.fd is not None:
                os.close(buffer.fd)
            for loan in buffer.loans:
                loan.end()
        self._buffers = []

    def _allocate(self, nbytes: int, device: torch.device) -> _Buffer:
        if device.type == "cuda" and self._device_ipc and nbytes:
            return _on_device(nbytes, device)
        fd = memory.create_memfd("kernelproof-input", nbytes)
        storage = memory.map_shared(fd, nbytes)
        if self._private:
            memory.seal_writes(fd)  # a worker holds this descriptor while it maps
        return _Buffer(storage, device, fd)


def reveal(sets: Iterable[InputBuffers]) -> None:
    """Complete the contents of several sets at once: a thread that waits for the first set finds little to do."""
    late = [pair for buffers in sets for pair in buffers.take_late()]
    if late:
        torch.ops.aten._foreach_copy_([lent for lent, _ in late], [contents for _, contents in late])
        _wait_for_device()


def _wait_for_device() -> None:
    """Another process reads the buffers next: queue order does not reach it."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _end(storage: torch.UntypedStorage, nbytes: int) -> torch.Tensor:
    """The last bytes of a storage."""
    return memory.byte_view(storage)[storage.nbytes() - nbytes :]


def _pinned(contents: torch.Tensor) -> torch.Tensor:
    """A copy in host memory that copy engines reach. Raises MemoryError."""
    try:
        return torch.empty(contents.shape, dtype=torch.uint8, pin_memory=True).copy_(contents)
    except RuntimeError as error:
        raise MemoryError(f"no pinned host memory: {error}") from None


def _late_bytes(sizes: Sequence[int]) -> list[int]:
    """How many bytes at the end of each storage in a GPU's memory are revealed last: all of the small ones, on which
    everything depends, before the ends of the large ones. Of none too few for a copy engine, so of tiny ones nothing."""
    late, left = [LEAST_LATE_BYTES if size >= LEAST_LATE_BYTES else 0 for size in sizes], LATE_BYTES
    for index in sorted(range(len(sizes)), key=sizes.__getitem__):
        if late[index]:
            late[index] = max(late[index], min(sizes[index], left))
            left -= late[index]
    return late


def _on_device(nbytes: int, device: torch.device) -> _Buffer:
    """Device memory that can be lent by descriptor where the driver offers that, else by handle."""
    for _ in range(2 if torch.version.cuda else 0):
        with contextlib.suppress(cuda_vmm.CannotShare):
            storage, fd = cuda_vmm.create(nbytes, device)
            return _Buffer(storage, device, fd, on_device=True)
        torch.cuda.empty_cache()  # what torch keeps for later is missing to the driver
    with torch.cuda.use_mem_pool(_lending_pool()):
        return _Buffer(torch.UntypedStorage(nbytes, device=device), device, None, on_device=True)


@functools.cache
def _lending_pool() -> torch.cuda.MemPool:
    """An IPC handle opens the whole segment around a storage: in this pool only lent storages lie."""
    return torch.cuda.MemPool()
