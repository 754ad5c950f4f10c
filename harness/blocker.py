"""A kernel that takes every place on an NVIDIA device, so that nothing else can run until it ends: PTX, by ctypes.

A device-side sleep occupies one thread: kernels of other queues run beside it. This kernel is launched with as many
threads as the device can hold, waits by the device's clock, reads a buffer larger than the L2 cache (which also drops
what copy engines have put there meanwhile), and ends everywhere at once. It uses no shared memory: that would change
how the multiprocessors divide their L1, and the next kernel would pay for changing it back.

Only another context is not kept out: it gets the device in turns. Such a turn shows as a gap in the kernel's clock.
Names and numbers: cuda.h of CUDA 12 and 13; PTX ISA 6.3, "nanosleep", "%globaltimer", "barrier".
"""

import ctypes
import itertools
import time
from collections.abc import Callable
from typing import Any

import torch

LIBRARY = "libcuda.so.1"
MULTIPROCESSORS, THREADS_PER_MULTIPROCESSOR = 16, 39  # CU_DEVICE_ATTRIBUTE_*
BLOCKS_PER_MULTIPROCESSOR = 2  # a block has at most 1024 threads, a multiprocessor up to 2048
MAPPED = 2  # CU_MEMHOSTALLOC_DEVICEMAP
MAX_LAUNCH = 0xFFFFFFFF
READ_BYTES = 16  # by one thread at a time
RUNNING_LIMIT_NS = 10_000_000_000  # until the kernel has the whole device; the official clear before it takes 0.03 s
PTX = b"""
.version 6.3
.target sm_70
.address_size 64

.global .align 4 .u32 begun;    // blocks, of all launches so far
.global .align 4 .u32 done;     // blocks that have waited and read
.global .align 4 .u32 given_up; // the last launch that did not have the whole device
.global .align 4 .u32 sink;     // never written; without it the reads would be left out

.visible .entry occupy(
    .param .u64 hold_ns,
    .param .u64 words,   // host memory, two u32: the last launch that had the whole device; what it lost of it in ns
    .param .u64 buffer,
    .param .u64 nbytes,  // of the buffer, a multiple of 16
    .param .u32 launch   // counted from 1
)
.maxntid 1024, 1, 1
{
    .reg .pred follower, yes;
    .reg .b32 thread, threads, block, blocks, number, target, count, lost32, x, a, b, c, d;
    .reg .b64 hold, host, address, nbytes64, start, now, last, gap, lost, offset, step;

    mov.u32 thread, %tid.x;
    mov.u32 threads, %ntid.x;
    mov.u32 block, %ctaid.x;
    mov.u32 blocks, %nctaid.x;
    ld.param.u32 number, [launch];
    mul.lo.u32 target, number, blocks;  // what either count comes to in this launch
    setp.ne.u32 follower, thread, 0;
    @follower bra held;

    ld.param.u64 hold, [hold_ns];
    ld.param.u64 host, [words];
    cvta.to.global.u64 host, host;
    mov.u64 start, %globaltimer;
    mov.u64 last, start;
    mov.u64 lost, 0;
    atom.global.add.u32 count, [begun], 1;
    add.u32 count, count, 1;
    setp.ne.u32 yes, count, target;
    @yes bra wait;
    ld.volatile.global.u32 count, [given_up];
    setp.eq.u32 yes, count, number;
    @yes bra wait;
    st.volatile.global.u32 [host], number;  // the last block has begun and none has ended: all are running

wait:
    mov.u64 now, %globaltimer;
    sub.u64 gap, now, last;
    mov.u64 last, now;
    setp.gt.u64 yes, gap, 30000;  // a turn is taken every microsecond unless another context has the device
    @yes add.u64 lost, lost, gap;
    sub.u64 gap, now, start;
    setp.ge.u64 yes, gap, hold;
    @yes bra waited;
    nanosleep.u32 500;
    bra wait;

waited:
    setp.ne.u32 yes, block, 0;
    @yes bra held;
    min.u64 lost, lost, 0xffffffff;
    cvt.u32.u64 lost32, lost;
    st.volatile.global.u32 [host+4], lost32;

held:
    bar.sync 0;
    ld.param.u64 address, [buffer];
    cvta.to.global.u64 address, address;
    ld.param.u64 nbytes64, [nbytes];
    mad.lo.u32 a, block, threads, thread;
    mul.wide.u32 offset, a, 16;
    mul.lo.u32 a, blocks, threads;
    mul.wide.u32 step, a, 16;
    add.u64 address, address, offset;
    mov.u32 x, 0;

read:
    setp.ge.u64 yes, offset, nbytes64;
    @yes bra was_read;
    ld.global.v4.u32 {a, b, c, d}, [address];
    xor.b32 a, a, b;
    xor.b32 c, c, d;
    xor.b32 a, a, c;
    xor.b32 x, x, a;
    add.u64 address, address, step;
    add.u64 offset, offset, step;
    bra read;

was_read:
    setp.ne.u32 yes, x, 0x12345678;
    @yes bra together;
    st.global.u32 [sink], x;

together:
    bar.sync 0;
    @follower bra end;
    atom.global.add.u32 count, [done], 1;
    mov.u64 start, %globaltimer;

others:
    ld.volatile.global.u32 count, [done];
    sub.u32 count, count, target;
    setp.ge.s32 yes, count, 0;
    @yes bra end;
    mov.u64 now, %globaltimer;
    sub.u64 gap, now, start;
    setp.lt.u64 yes, gap, 10000000;  // a block that finds no place must not wait for this one forever
    @yes bra others;
    st.volatile.global.u32 [given_up], number;

end:
    bar.sync 0;
    ret;
}
"""


class CannotBlock(RuntimeError):
    """The driver is not NVIDIA's, or refuses."""


class NotHeld(RuntimeError):
    """The device did not become the blocker's: something else was running, or the driver was tampered with."""


class Arguments(ctypes.Structure):
    """The kernel's parameters."""

    _fields_ = (
        ("hold_ns", ctypes.c_uint64),
        ("words", ctypes.c_uint64),
        ("buffer", ctypes.c_uint64),
        ("nbytes", ctypes.c_uint64),
        ("launch", ctypes.c_uint32),
    )


class Blocker:
    """Holds one device. Everything that it calls is bound when it is made, before a submission is there."""

    def __init__(self, device: torch.device, buffer: torch.Tensor | None = None):
        """buffer: what is read in the end, so that the caches hold nothing else. Raises CannotBlock."""
        if device.type != "cuda":
            raise CannotBlock(f"{device} is not an NVIDIA device")
        ask = _asker()
        self._now, self._queue, self._index = time.perf_counter_ns, _current_queue(), device.index or 0
        self._function = _function(ask)
        processors, threads = (_attribute(ask, which, self._index) for which in (MULTIPROCESSORS, THREADS_PER_MULTIPROCESSOR))
        self._blocks = processors * BLOCKS_PER_MULTIPROCESSOR
        self._threads = threads // BLOCKS_PER_MULTIPROCESSOR
        host, words = _host_words(ask, 2)
        self._words, self._ask, self._launches = host, ask, itertools.count(1)
        nbytes = buffer.nbytes // READ_BYTES * READ_BYTES if buffer is not None else 0
        self._buffer = buffer  # keeps the memory
        self._arguments = Arguments(words=words, buffer=buffer.data_ptr() if buffer is not None else 0, nbytes=nbytes)
        self._pointers = _pointers(self._arguments)
        self._try_out()

    def hold(self, hold_ns: int) -> None:
        """Take the device, behind what is on the current queue, for `hold_ns` and the time of the read. Returns as soon as
        nothing else can run there. Raises NotHeld."""
        number = self._arguments.launch = next(self._launches) & MAX_LAUNCH
        self._arguments.hold_ns = hold_ns
        self._start()
        asked_ns = self._now()
        while self._words[0] != number:
            if self._now() - asked_ns > RUNNING_LIMIT_NS:
                limit = f"within {RUNNING_LIMIT_NS // 10**9} s"
                raise NotHeld(f"the device was not free for the clock {limit}: leave nothing running on it between calls")

    @property
    def lost_ns(self) -> int:
        """For how long another context had the device during the last hold; known once the device is idle."""
        return self._words[1]

    def _start(self) -> None:
        grid, block, no_shared_bytes = (self._blocks, 1, 1), (self._threads, 1, 1), 0
        queue = ctypes.c_void_p(self._queue(self._index))
        try:
            self._ask("cuLaunchKernel", self._function, *grid, *block, no_shared_bytes, queue, self._pointers, None)
        except CannotBlock as error:
            raise NotHeld(f"the device could not be held for the clock: {error}") from None

    def _try_out(self) -> None:
        """Hold once: a device that cannot be filled is found now and not in a submission's call."""
        try:
            self.hold(0)
        except NotHeld as error:
            raise CannotBlock(str(error)) from None


def _asker() -> Callable[..., None]:
    """Calls the driver by function name; raises CannotBlock. The functions are looked up now."""
    try:
        driver = ctypes.CDLL(LIBRARY)
        names = ("cuModuleLoadData", "cuModuleGetFunction", "cuDeviceGetAttribute", "cuMemHostAlloc", "cuLaunchKernel")
        functions = {name: getattr(driver, name) for name in (*names, "cuMemHostGetDevicePointer_v2")}
    except (OSError, AttributeError) as error:
        raise CannotBlock(f"no NVIDIA driver: {error}") from None

    def ask(name: str, *arguments: Any) -> None:
        if status := functions[name](*arguments):
            raise CannotBlock(f"{name}: CUDA error {status}")

    return ask


def _function(ask: Callable[..., None]) -> ctypes.c_void_p:
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    ask("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(PTX))
    ask("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(b"occupy"))
    return function


def _attribute(ask: Callable[..., None], which: int, device: int) -> int:
    found = ctypes.c_int()
    ask("cuDeviceGetAttribute", ctypes.byref(found), which, device)
    return found.value


def _host_words(ask: Callable[..., None], count: int) -> tuple[Any, int]:
    """u32 [count] in host memory that the device can write, zeroed, and the device's address of it. Kept for good."""
    host, there = ctypes.c_void_p(), ctypes.c_uint64()
    ask("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(4 * count), MAPPED)
    ask("cuMemHostGetDevicePointer_v2", ctypes.byref(there), host, 0)
    words = (ctypes.c_uint32 * count).from_address(host.value or 0)
    words[:] = [0] * count
    return words, there.value


def _pointers(arguments: Arguments) -> Any:
    """void *[], one pointer for each of the kernel's parameters."""
    start = ctypes.addressof(arguments)
    offsets = [getattr(Arguments, field[0]).offset for field in Arguments._fields_]
    return (ctypes.c_void_p * len(offsets))(*(start + offset for offset in offsets))


def _current_queue() -> Callable[[int], int]:
    """The handle of a device's current queue; a builtin, which holds no name that could be replaced."""
    return torch._C._cuda_getCurrentRawStream
