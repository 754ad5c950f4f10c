"""Two kernels that take every place on an NVIDIA device, so that nothing else can run until they end: PTX, by ctypes.

A device-side sleep occupies one thread: kernels of other queues run beside it. `occupy` is launched with as many
threads as the device can hold, waits by the device's clock, reads a buffer larger than the L2 cache (which also drops
what copy engines have put there meanwhile), and ends everywhere at once. It uses no shared memory: that would change
how the multiprocessors divide their L1, and the next kernel would pay for changing it back.

The front end of the caller's queue takes some microseconds from there to the first kernel behind its start event; a
kernel that waits on another queue would take the free places at once. So `linger` waits on a queue of the greatest
priority: places go to it first, and it keeps them for `linger_ns`, a little less than the caller's queue needs, which
is measured when the Blocker is made. A kernel that got in between all the same keeps a block of it from its place until
it ends itself or the other blocks do; a block that begins only then reports how late it is.

Only another context is not kept out: it gets the device in turns. Such a turn shows as a gap in the clock of `occupy`.
Names and numbers: cuda.h of CUDA 12 and 13; cudaGetErrorString; PTX ISA 6.3, "nanosleep", "%globaltimer", "barrier".
"""

import ctypes
import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

LIBRARY = "libcuda.so.1"
FUNCTIONS = (
    "cuModuleLoadData", "cuModuleGetFunction", "cuDeviceGetAttribute", "cuMemHostAlloc", "cuMemHostGetDevicePointer_v2",
    "cuCtxGetStreamPriorityRange", "cuStreamCreateWithPriority", "cuLaunchKernel",
)  # fmt: skip
MULTIPROCESSORS, THREADS_PER_MULTIPROCESSOR = 16, 39  # CU_DEVICE_ATTRIBUTE_*
BLOCKS_PER_MULTIPROCESSOR = 2  # a block has at most 1024 threads, a multiprocessor up to 2048
MAPPED = 2  # CU_MEMHOSTALLOC_DEVICEMAP
MAX_WORD = 0xFFFFFFFF
FAULTS = {  # CUresult: what a kernel ends its context with; every later call of the driver returns it
    700: "an illegal memory access was encountered",
    702: "the launch timed out and was terminated",
    710: "device-side assert triggered",
    714: "hardware stack error",
    715: "an illegal instruction was encountered",
    716: "misaligned address",
    717: "operation not supported on global/shared address space",
    718: "invalid program counter",
    719: "unspecified launch failure",
    721: "tensor memory not completely freed",
}
READ_BYTES = 16  # by one thread at a time
RUNNING, LOST, LATE, STAMP = range(4)  # words in host memory that the kernels write
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: torch's default queue must not wait for `linger`
WARM_UP_CYCLES = 100_000_000  # a device that was idle raises its clock meanwhile; 0.05 s on an H200 that was not
CALIBRATIONS, CALIBRATION_NS = 16, 300_000  # held so long that the host has queued the little that a calibration needs
# By which `linger` ends sooner than the quickest calibration had its first kernel. Its blocks take some 0.7 us to leave, and a
# launch of clusters that comes while they do is placed badly: with 0.5 us MLA's took 5 to 10 us more, in up to all samples.
MARGIN_NS = 1500
PLACED_NS = 500  # for which `linger` must have its places at least, or its blocks would seem late
NEEDED_LIMIT_NS = 20_000  # on an H200 a kernel of another queue was 3.3 us ahead
PATIENCE_NS, PAUSE_S = 5_000_000_000, 0.05  # with somebody else who has the device now and then
RUNNING_LIMIT_NS = 10_000_000_000  # until the kernel has the whole device; the official clear before it takes 0.03 s
PTX = b"""
.version 6.3
.target sm_70
.address_size 64

.global .align 4 .u32 begun;    // blocks, of all launches so far
.global .align 4 .u32 done;     // blocks that have waited and read
.global .align 4 .u32 given_up; // the last launch that did not have the whole device
.global .align 8 .u64 released; // by the device's clock: when the last block of `occupy` had waited and read
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
    mov.u64 start, %globaltimer;
    red.global.max.u64 [released], start;
    membar.gl;
    atom.global.add.u32 count, [done], 1;

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

.visible .entry linger(
    .param .u64 late,      // host memory, u32: how long after `released` a block began whose time was up by then, in ns
    .param .u64 linger_ns  // from `released` on
)
.maxntid 1024, 1, 1
{
    .reg .pred yes;
    .reg .b32 thread, gap32;
    .reg .b64 host, now, let_go, until, gap;

    mov.u64 now, %globaltimer;
    mov.u32 thread, %tid.x;
    setp.ne.u32 yes, thread, 0;
    @yes bra end;
    ld.volatile.global.u64 let_go, [released];
    ld.param.u64 until, [linger_ns];
    add.u64 until, let_go, until;
    setp.lt.u64 yes, now, until;
    @yes bra stay;
    sub.u64 gap, now, let_go;
    min.u64 gap, gap, 0xffffffff;
    cvt.u32.u64 gap32, gap;
    ld.param.u64 host, [late];
    cvta.to.global.u64 host, host;
    st.volatile.global.u32 [host], gap32;
    bra end;

stay:
    mov.u64 now, %globaltimer;
    setp.lt.u64 yes, now, until;
    @yes bra stay;

end:
    bar.sync 0;
    ret;
}
"""


class CannotBlock(RuntimeError):
    """The driver is not NVIDIA's, or refuses."""


class KernelFault(RuntimeError):
    """A kernel that was running on the device has failed, not what the driver was asked for: its context is lost."""


class NotHeld(RuntimeError):
    """The device did not become the blocker's: something else was running, or the driver was tampered with."""


class OccupyArguments(ctypes.Structure):
    """The parameters of `occupy`."""

    _fields_ = (
        ("hold_ns", ctypes.c_uint64),
        ("words", ctypes.c_uint64),
        ("buffer", ctypes.c_uint64),
        ("nbytes", ctypes.c_uint64),
        ("launch", ctypes.c_uint32),
    )


class LingerArguments(ctypes.Structure):
    """The parameters of `linger`."""

    _fields_ = (("late", ctypes.c_uint64), ("linger_ns", ctypes.c_uint64))


class Kernel(NamedTuple):
    """What a launch takes, apart from the queue. Nothing in it can be changed: what a launch reads is made for it."""

    function: int
    size: tuple[int, int, int, int, int, int]  # blocks, then threads of each, by x, y, z
    arguments: type[ctypes.Structure]
    fixed: tuple[tuple[str, int], ...]  # its fields that do not change from launch to launch


class Blocker:
    """Holds one device. Everything that it calls is bound when it is made, before a submission is there."""

    def __init__(self, device: torch.device, buffer: torch.Tensor | None = None):
        """buffer: what is read in the end, so that the caches hold nothing else. Raises CannotBlock."""
        if device.type != "cuda":
            raise CannotBlock(f"{device} is not an NVIDIA device")
        self._ask = ask = _asker()
        self._now, self._queue, self._index = time.perf_counter_ns, _current_queue(), device.index or 0
        self._words, words = _host_words(ask, 4)
        self._own_queue, self._launches = _hurried_queue(ask), itertools.count(1)
        self._buffer = buffer  # keeps the memory
        nbytes = buffer.nbytes // READ_BYTES * READ_BYTES if buffer is not None else 0
        address = buffer.data_ptr() if buffer is not None else 0
        size, (occupy, linger) = _size(ask, self._index), _functions(ask, b"occupy", b"linger")
        self._occupy = _kernel(occupy, *size, OccupyArguments, words=words, buffer=address, nbytes=nbytes)
        self._linger = _kernel(linger, *size, LingerArguments, late=words + 4 * LATE)
        self._stamp = _kernel(linger, 1, 1, LingerArguments, late=words + 4 * STAMP, linger_ns=0)
        self.begins_ns, self.needed_ns = self._calibrate(device)
        self.linger_ns = _linger_ns(self.begins_ns, self.needed_ns)

    def hold(self, hold_ns: int, behind: Callable[[], object] = lambda: None) -> None:
        """Take the device, behind what is on the current queue, for `hold_ns` and the time of the read; then keep it until the
        current queue is about to begin its next kernel. Returns as soon as nothing else can run there. Raises NotHeld, or
        KernelFault.

        `behind` is called as soon as the device is asked for: what it puts on the current queue comes before anybody else's."""
        self._fill(hold_ns, behind)
        if self.linger_ns:
            self._stay(self.linger_ns)

    def stamp(self) -> None:
        """Behind what is on the current queue: note how long ago the last hold ended, for `since_ns`. Raises as `hold` does."""
        self._launch(self._stamp, self._queue(self._index))

    @property
    def since_ns(self) -> int:
        """From the end of the last hold to the stamp, beyond what the front end of an undisturbed queue takes. Known once the
        device is idle."""
        return max(0, self._words[STAMP] - self.needed_ns)

    @property
    def lost_ns(self) -> int:
        """For how long something else had the device during the last hold or right after it: another context, or a kernel
        that got in before `linger`. Known once the device is idle."""
        return self._words[LOST] + self._words[LATE]

    def _fill(self, hold_ns: int, behind: Callable[[], object] = lambda: None) -> None:
        number = next(self._launches) & MAX_WORD
        self._launch(self._occupy, self._queue(self._index), hold_ns=hold_ns, launch=number)
        behind()
        asked_ns = self._now()
        while self._words[RUNNING] != number:
            if self._now() - asked_ns > RUNNING_LIMIT_NS:
                limit = f"within {RUNNING_LIMIT_NS // 10**9} s"
                raise NotHeld(f"the device was not free for the clock {limit}: leave nothing running on it between calls")
        self._words[LATE] = 0  # the last launch of `linger` has ended: it had places which are taken now
        self._words[STAMP] = MAX_WORD  # until it is stamped

    def _stay(self, linger_ns: int) -> None:
        self._launch(self._linger, self._own_queue, linger_ns=linger_ns)

    def _launch(self, kernel: Kernel, queue: int | None, **given: int) -> None:
        arguments, shared_bytes = kernel.arguments(**dict(kernel.fixed), **given), 0
        function, handle = ctypes.c_void_p(kernel.function), ctypes.c_void_p(queue)
        try:
            self._ask("cuLaunchKernel", function, *kernel.size, shared_bytes, handle, _pointers(arguments), None)
        except CannotBlock as error:
            raise NotHeld(f"the device could not be held for the clock: {error}") from None

    def _calibrate(self, device: torch.device) -> tuple[int, int]:
        """How long after `released` `linger` begins, and the first kernel behind a start event, at best. Raises CannotBlock: a
        device that cannot be filled is found now and not in a submission's call."""
        asked_ns = self._now()
        try:
            torch.cuda._sleep(WARM_UP_CYCLES)
            while True:
                begins_ns, needed_ns = zip(*(self._measured(device) for _ in range(CALIBRATIONS)), strict=True)
                if min(needed_ns) <= NEEDED_LIMIT_NS or self._now() - asked_ns > PATIENCE_NS:
                    return min(begins_ns), min(needed_ns)
                time.sleep(PAUSE_S)
        except NotHeld as error:
            raise CannotBlock(str(error)) from None

    def _measured(self, device: torch.device) -> tuple[int, int]:
        """The same, once. With no time to stay all are late and say when they began."""
        self._fill(CALIBRATION_NS)
        self._stay(0)
        torch.cuda.Event(enable_timing=True).record()
        self.stamp()
        torch.cuda.synchronize(device)
        return self._words[LATE], self._words[STAMP]


def _linger_ns(begins_ns: int, needed_ns: int) -> int:
    """For how long `linger` may keep its places without keeping one from the caller's queue; 0 if it hardly had them by then.
    Raises CannotBlock."""
    if needed_ns > NEEDED_LIMIT_NS:
        limit = f"the limit is {NEEDED_LIMIT_NS} ns: give the process a device of its own"
        raise CannotBlock(f"the first kernel behind a start event begins {needed_ns} ns late, {limit}")
    linger_ns = needed_ns - MARGIN_NS
    return linger_ns if linger_ns > begins_ns + PLACED_NS else 0


def _asker() -> Callable[..., None]:
    """Calls the driver by function name; raises CannotBlock, or KernelFault. The functions are looked up now."""
    try:
        driver = ctypes.CDLL(LIBRARY)
        functions = {name: getattr(driver, name) for name in FUNCTIONS}
    except (OSError, AttributeError) as error:
        raise CannotBlock(f"no NVIDIA driver: {error}") from None

    def ask(name: str, *arguments: Any) -> None:
        if status := functions[name](*arguments):
            if fault := FAULTS.get(status):
                raise KernelFault(f"CUDA error {status}: {fault}")
            raise CannotBlock(f"{name}: CUDA error {status}")

    return ask


def _functions(ask: Callable[..., None], *names: bytes) -> list[ctypes.c_void_p]:
    """The module's kernels of these names."""
    module, functions = ctypes.c_void_p(), [ctypes.c_void_p() for _ in names]
    ask("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(PTX))
    for function, name in zip(functions, names, strict=True):
        ask("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(name))
    return functions


def _kernel(
    function: ctypes.c_void_p, blocks: int, threads: int, arguments: type[ctypes.Structure], **fixed: int
) -> Kernel:
    return Kernel(function.value or 0, (blocks, 1, 1, threads, 1, 1), arguments, tuple(fixed.items()))


def _size(ask: Callable[..., None], device: int) -> tuple[int, int]:
    """Blocks, and threads of each: together every thread that the device can hold."""
    processors, threads = (_attribute(ask, which, device) for which in (MULTIPROCESSORS, THREADS_PER_MULTIPROCESSOR))
    return processors * BLOCKS_PER_MULTIPROCESSOR, threads // BLOCKS_PER_MULTIPROCESSOR


def _hurried_queue(ask: Callable[..., None]) -> int | None:
    """A queue of the greatest priority, whose kernels get free places first. Kept for good."""
    queue, least, greatest = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
    ask("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
    ask("cuStreamCreateWithPriority", ctypes.byref(queue), NON_BLOCKING, greatest)
    return queue.value


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


def _pointers(arguments: ctypes.Structure) -> Any:
    """void *[], one pointer for each of a kernel's parameters."""
    start, kind = ctypes.addressof(arguments), type(arguments)
    offsets = [getattr(kind, field[0]).offset for field in kind._fields_]
    return (ctypes.c_void_p * len(offsets))(*(start + offset for offset in offsets))


def _current_queue() -> Callable[[int], int]:
    """The handle of a device's current queue; a builtin, which holds no name that could be replaced."""
    return torch._C._cuda_getCurrentRawStream
