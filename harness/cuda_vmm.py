"""NVIDIA device memory that another process maps by a file descriptor: CUDA's virtual memory management, by ctypes.

CUDA's older IPC handles find the lender by its process id and a socket of the machine's network, and their events by a
file in /dev/shm: a contained worker reaches none of them. A descriptor that was sent to it needs nothing else.
Names and numbers: cuda.h of CUDA 12 and 13, "Virtual Memory Management".
"""

import contextlib
import ctypes
import functools
import weakref
from typing import Any

import torch

LIBRARY = "libcuda.so.1"
PINNED, POSIX_FD, ON_DEVICE, READ_WRITE, MINIMUM_GRANULARITY = 1, 1, 1, 3, 0


class CannotShare(RuntimeError):
    """The driver refuses; the memory must go another way."""


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


class Mapping:
    """Memory of one allocation in this process's address space; torch reads it as an array of bytes."""

    def __init__(self, handle: ctypes.c_uint64, nbytes: int, device: torch.device):
        size, address = _rounded(nbytes, device), ctypes.c_uint64()
        _ask("cuMemAddressReserve", ctypes.byref(address), size, _size(0), ctypes.c_uint64(0), ctypes.c_uint64(0))
        self.close = weakref.finalize(self, _unmap, address, size)
        self.close.atexit = False  # the process takes everything with it, and the driver may be gone already
        _ask("cuMemMap", address, size, _size(0), handle, ctypes.c_uint64(0))
        access = Access(Location(ON_DEVICE, device.index or 0), READ_WRITE)
        _ask("cuMemSetAccess", address, size, ctypes.byref(access), _size(1))
        self.__cuda_array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address.value, False), "version": 3}


def create(nbytes: int, device: torch.device) -> tuple[torch.UntypedStorage, int]:
    """New device memory, and the descriptor that it can be lent by. Raises CannotShare."""
    handle, fd = ctypes.c_uint64(), ctypes.c_int(-1)
    _ask("cuMemCreate", ctypes.byref(handle), _rounded(nbytes, device), ctypes.byref(_properties(device)), ctypes.c_uint64(0))
    with contextlib.ExitStack() as undone:
        undone.callback(_ask, "cuMemRelease", handle)  # the mapping keeps the memory
        storage = _storage(Mapping(handle, nbytes, device), device)
        _ask("cuMemExportToShareableHandle", ctypes.byref(fd), handle, POSIX_FD, ctypes.c_uint64(0))
    return storage, fd.value


def open_shared(fd: int, nbytes: int, device: torch.device) -> torch.UntypedStorage:
    """The memory behind another process's descriptor, which may be closed afterwards. Raises CannotShare."""
    handle = ctypes.c_uint64()
    _ask("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(fd), POSIX_FD)
    try:
        return _storage(Mapping(handle, nbytes, device), device)
    finally:
        _ask("cuMemRelease", handle)


def _storage(mapping: Mapping, device: torch.device) -> torch.UntypedStorage:
    """A storage that keeps the mapping alive."""
    return torch.as_tensor(mapping, device=device).untyped_storage()


def _unmap(address: ctypes.c_uint64, size: ctypes.c_size_t) -> None:
    with contextlib.suppress(CannotShare):  # nothing was mapped there yet
        _ask("cuMemUnmap", address, size)
    _ask("cuMemAddressFree", address, size)


def _properties(device: torch.device) -> Properties:
    return Properties(type=PINNED, handle_types=POSIX_FD, location=Location(ON_DEVICE, device.index or 0))


def _rounded(nbytes: int, device: torch.device) -> ctypes.c_size_t:
    """Up to what the device maps as a whole, usually 2 MiB."""
    granularity = _granularity(device)
    return _size(-(-nbytes // granularity) * granularity)


@functools.cache
def _granularity(device: torch.device) -> int:
    found = _size(0)
    _ask("cuMemGetAllocationGranularity", ctypes.byref(found), ctypes.byref(_properties(device)), MINIMUM_GRANULARITY)
    return found.value


def _size(value: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(value)


def _ask(function: str, *arguments: Any) -> None:
    try:
        status = getattr(_driver(), function)(*arguments)
    except (OSError, AttributeError) as error:  # no NVIDIA driver, or one before 10.2
        raise CannotShare(f"{function}: {error}") from None
    if status:
        raise CannotShare(f"{function}: CUDA error {status}")


@functools.cache
def _driver() -> Any:
    return ctypes.CDLL(LIBRARY)
