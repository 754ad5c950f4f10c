"""Global memory: host arrays given an address in the emulated 47-bit space."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

SLOT_BITS = 36  # native/memory_map.hpp
SLOT_MIDDLE = 1 << (SLOT_BITS - 1)


class Buffer:
    """Memory that a kernel may use.

    array: numpy array or torch CPU tensor, C-contiguous; the kernel reads and writes it in place. writable: stores to a
    read-only buffer are reported. offset: bytes from the array's start to where the kernel's pointer points. pointers:
    {byte offset within the array: Buffer}, device pointers that the launch writes into it.
    """

    def __init__(
        self, array: Any, name: str = "", writable: bool = True, offset: int = 0, pointers: Mapping[int, Buffer] | None = None
    ) -> None:
        self.array = array
        self.name = name
        self.writable = writable
        self.offset = offset
        self.pointers = dict(pointers or {})
        self.bytes = host_bytes(array)

    def replaced(self, array: Any) -> Buffer:
        """The same buffer over another array."""
        return Buffer(array, self.name, self.writable, self.offset, self.pointers)


def host_bytes(array: Any) -> np.ndarray:
    """A uint8 view, shape [bytes], of an array's or CPU tensor's own memory. Raises TypeError, ValueError."""
    if hasattr(array, "data_ptr"):
        return _tensor_bytes(array)
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{type(array).__name__} is not an array or tensor")
    if not array.flags.c_contiguous:
        raise ValueError("the array is not C-contiguous; pass np.ascontiguousarray(...)")
    return array.reshape(-1).view(np.uint8)


def _tensor_bytes(tensor: Any) -> np.ndarray:
    if tensor.device.type != "cpu":
        raise ValueError(f"the tensor is on {tensor.device}; the emulator reads host memory, pass tensor.cpu()")
    if not tensor.is_contiguous():
        raise ValueError("the tensor is not contiguous; pass tensor.contiguous()")
    size = tensor.numel() * tensor.element_size()
    if size == 0:
        return np.zeros(0, np.uint8)
    return np.ctypeslib.as_array(ctypes.cast(tensor.data_ptr(), ctypes.POINTER(ctypes.c_uint8)), (size,))


class NativeBuffer(ctypes.Structure):
    """native/memory_map.hpp, Buffer."""

    _fields_ = [
        ("base", ctypes.c_uint64), ("size", ctypes.c_uint64), ("host", ctypes.c_void_p), ("writable", ctypes.c_uint32),
        ("pad", ctypes.c_uint32), ("requested_load", ctypes.c_uint64), ("requested_store", ctypes.c_uint64),
        ("unique_load", ctypes.c_uint64), ("unique_store", ctypes.c_uint64),
    ]  # fmt: skip


class AddressSpace:
    """Gives every buffer a slot of its own; two Buffers over one array share its slot."""

    def __init__(self) -> None:
        self.entries: list[tuple[np.ndarray, str, bool]] = []  # bytes, name, writable
        self._index: dict[tuple[int, int], int] = {}

    def place(self, data: np.ndarray, name: str, writable: bool) -> int:
        """Address of `data`, shape [bytes] uint8."""
        key = (data.ctypes.data, data.size)
        if key not in self._index:
            self._index[key] = len(self.entries)
            self.entries.append((data, name, writable))
        return base_address(self._index[key])

    def place_buffer(self, buffer: Buffer, name: str) -> int:
        """Address that the kernel's pointer holds; also places what the buffer points to."""
        address = self.place(buffer.bytes, buffer.name or name, buffer.writable) + buffer.offset
        for at, target in buffer.pointers.items():
            pointer = self.place_buffer(target, f"{buffer.name or name}+{at}")
            buffer.bytes[at : at + 8] = np.frombuffer(pointer.to_bytes(8, "little"), np.uint8)
        return address

    def native(self) -> ctypes.Array:
        """The buffers as the executor takes them."""
        table = (NativeBuffer * len(self.entries))()
        for k, (data, _, writable) in enumerate(self.entries):
            table[k].base, table[k].size = base_address(k), data.size
            table[k].host, table[k].writable = data.ctypes.data, writable
        return table


def base_address(index: int) -> int:
    """Guest address of the buffer in slot `index`; slot 0 stays empty, so that null pointers fault."""
    return (index + 1 << SLOT_BITS) + SLOT_MIDDLE
