"""The kernels that fill a device, on a stand-in driver: what is launched, when the caller goes on, what is refused."""

import ctypes
import itertools
import re
import shutil
import subprocess
import time
from typing import Any

import pytest
import torch

from harness import blocker
from harness.blocker import READ_BYTES, Blocker, CannotBlock, KernelFault, LingerArguments, NotHeld, OccupyArguments
from harness.seal import Seal

DEVICE = torch.device("cuda", 0)
QUEUE, HURRIED_QUEUE = 0xABC, 0xDEF
INVALID = 1
HANDLES = {b"occupy": 8, b"linger": 9}
PARAMETERS: Any = {8: OccupyArguments._fields_, 9: LingerArguments._fields_}


class Driver:
    """libcuda's part of blocker in the calling convention of ctypes. A launched kernel runs at once, unless `busy`."""

    def __init__(self, processors: int = 132, threads: int = 2048) -> None:
        self.attributes = {16: processors, 39: threads}
        self.broken, self.status, self.busy, self.lost_ns, self.late_ns = "", INVALID, False, 0, 0
        self.begins_ns, self.needed_ns = itertools.repeat(1_500), itertools.repeat(4_500)
        self.log: list[dict | str] = []

    def __getattribute__(self, name: str):
        found = object.__getattribute__(self, name)
        return (lambda *_: self.status) if name.startswith("cu") and name == self.broken else found

    def cuModuleLoadData(self, module, image) -> int:
        module._obj.value = 7
        return 0 if b".visible .entry occupy(" in image.value else INVALID

    def cuModuleGetFunction(self, function, module, name) -> int:
        function._obj.value = HANDLES[name.value]
        return 0 if module.value == 7 else INVALID

    def cuCtxGetStreamPriorityRange(self, least, greatest) -> int:
        least._obj.value, greatest._obj.value = 0, -5
        return 0

    def cuStreamCreateWithPriority(self, queue, flags, priority) -> int:
        queue._obj.value = HURRIED_QUEUE
        return 0 if (flags, priority.value) == (1, -5) else INVALID

    def cuDeviceGetAttribute(self, value, which, device) -> int:
        value._obj.value = self.attributes[which]
        return 0

    def cuMemHostAlloc(self, host, nbytes, flags) -> int:
        self.words = (ctypes.c_uint32 * (nbytes.value // 4))(*[0xDEAD] * (nbytes.value // 4))  # not cleared
        host._obj.value = ctypes.addressof(self.words)
        return 0 if flags == 2 else INVALID

    def cuMemHostGetDevicePointer_v2(self, device, host, flags) -> int:
        device._obj.value = host.value + 1  # the device may know it by another address
        return 0

    def cuLaunchKernel(self, function, gx, gy, gz, bx, by, bz, shared_bytes, queue, pointers, extra) -> int:
        given = zip(PARAMETERS[function.value], pointers, strict=True)
        arguments = {name: kind.from_address(pointer).value for (name, kind), pointer in given}
        assert (extra, gy, gz, by, bz, shared_bytes) == (None, 1, 1, 1, 1, 0)
        name = {handle: name.decode() for name, handle in HANDLES.items()}[function.value]
        self.log.append({**arguments, "name": name, "blocks": gx, "threads": bx, "queue": queue.value})
        (self._occupy if name == "occupy" else self._linger)(arguments)
        return 0

    def _occupy(self, arguments: dict) -> None:
        assert arguments["words"] == ctypes.addressof(self.words) + 1
        if not self.busy:
            self.words[0], self.words[1] = arguments["launch"], self.lost_ns

    def _linger(self, arguments: dict) -> None:
        word = (arguments["late"] - 1 - ctypes.addressof(self.words)) // 4
        if arguments["linger_ns"] == 0:
            self.words[word] = next({2: self.begins_ns, 3: self.needed_ns}[word])
        elif self.late_ns:
            self.words[word] = self.late_ns

    def launches(self, name: str) -> list[dict]:
        return [entry for entry in self.log if isinstance(entry, dict) and entry["name"] == name]


@pytest.fixture
def driver(monkeypatch) -> Driver:
    made = Driver()

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            made.log.append("event")

    monkeypatch.setattr(ctypes, "CDLL", lambda name: made)
    monkeypatch.setattr(blocker, "_current_queue", lambda: lambda index: QUEUE)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: made.log.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: made.log.append(f"sleep {cycles}"))
    return made


@pytest.mark.parametrize(("processors", "threads"), [(132, 2048), (148, 2048), (84, 1536), (40, 1024)])
def test_every_thread_of_the_device_is_taken(driver, processors, threads):
    """By both kernels: the second one, on a queue that goes first, waits for the places of the first one."""
    driver.attributes = {16: processors, 39: threads}
    made = Blocker(DEVICE)
    driver.log.clear()
    made.hold(1000)
    first, second = driver.log
    for launch in (first, second):
        assert launch["blocks"] * launch["threads"] == processors * threads
        assert launch["threads"] <= 1024
    assert (first["name"], first["queue"], first["hold_ns"]) == ("occupy", QUEUE, 1000)
    assert (second["name"], second["queue"], second["linger_ns"]) == ("linger", HURRIED_QUEUE, made.linger_ns)


def test_what_comes_behind_the_hold_comes_before_anybody_else(driver):
    """The start event: what another thread launches on the caller's queue later is timed."""
    made = Blocker(DEVICE)
    driver.log.clear()
    made.hold(1000, lambda: driver.log.append("start"))
    first, start, second = driver.log
    assert (first["name"], start, second["name"]) == ("occupy", "start", "linger")


def test_launches_are_told_apart(driver):
    made = Blocker(DEVICE)
    tried_out = len(driver.launches("occupy"))
    for _ in range(3):
        made.hold(1)
    assert [launch["launch"] for launch in driver.launches("occupy")] == list(range(1, tried_out + 4))


def test_the_buffer_is_read_in_the_end(driver):
    buffer = torch.ones(1001)
    Blocker(DEVICE, buffer)
    last = driver.launches("occupy")[-1]
    assert (last["buffer"], last["nbytes"]) == (buffer.data_ptr(), 4004 // READ_BYTES * READ_BYTES)
    Blocker(DEVICE)
    assert driver.launches("occupy")[-1]["nbytes"] == 0


def test_how_long_the_callers_queue_needs_is_measured_as_calls_are_timed(driver):
    """Held, a kernel that lingers behind, the start event, and one thread that says when it begins. The quickest counts."""
    driver.needed_ns = iter([9_000, 4_000, *[4_500] * (blocker.CALIBRATIONS - 2)])
    made = Blocker(DEVICE)
    assert made.linger_ns == 4_000 - blocker.MARGIN_NS
    assert driver.log[0] == f"sleep {blocker.WARM_UP_CYCLES}"  # at a low clock it would seem to need longer
    *_, occupy, linger, event, stamp, synchronized = driver.log
    assert (occupy["name"], occupy["queue"]) == ("occupy", QUEUE)
    assert (linger["name"], linger["queue"], linger["linger_ns"]) == ("linger", HURRIED_QUEUE, 0)
    assert (event, synchronized) == ("event", "synchronize")
    assert (stamp["name"], stamp["queue"], stamp["blocks"], stamp["threads"]) == ("linger", QUEUE, 1, 1)
    assert stamp["late"] != linger["late"]


@pytest.mark.parametrize("needed_ns", [100, 1_500, 1_500 + blocker.MARGIN_NS + blocker.PLACED_NS])
def test_where_the_callers_queue_is_quick_enough_nothing_lingers(driver, needed_ns):
    """It would begin when its time is nearly up, and take that for something that had got in between."""
    driver.needed_ns = itertools.repeat(needed_ns)
    made = Blocker(DEVICE)
    driver.log.clear()
    made.hold(1)
    assert [launch["name"] for launch in driver.log] == ["occupy"]
    assert made.lost_ns == 0


def test_a_device_that_others_have_now_and_then_is_measured_when_they_do_not(driver, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda s: None)
    busy_ns = [blocker.NEEDED_LIMIT_NS + 1] * blocker.CALIBRATIONS * 3
    driver.needed_ns = iter([*busy_ns, *[4_500] * blocker.CALIBRATIONS])
    assert Blocker(DEVICE).needed_ns == 4_500


def test_a_stamp_says_how_long_ago_the_device_was_let_go(driver):
    made = Blocker(DEVICE)
    driver.log.clear()
    made.hold(1)
    driver.needed_ns = iter([4_500 + 9_000, 4_000])
    made.stamp()
    assert driver.launches("linger")[-1]["queue"] == QUEUE  # behind what is there
    assert made.since_ns == 9_000  # but for what the front end takes anyway
    made.stamp()
    assert made.since_ns == 0


def test_a_stamp_that_never_comes_is_no_stamp_of_the_call_before(driver, monkeypatch):
    made = Blocker(DEVICE)
    made.hold(1)
    made.stamp()
    made.hold(1)
    assert made.since_ns > 4_000_000_000


def test_a_device_that_is_shared_is_refused(driver, monkeypatch):
    monkeypatch.setattr(blocker, "PATIENCE_NS", 0)
    driver.needed_ns = itertools.repeat(blocker.NEEDED_LIMIT_NS + 1)
    with pytest.raises(CannotBlock, match="begins 20001 ns late, the limit is 20000 ns: give the process a device of its own"):
        Blocker(DEVICE)


def test_nobody_goes_on_before_the_kernel_has_the_device(driver, monkeypatch):
    """Whoever launches something while the kernel is still waiting for its turn would run before it."""
    made, asked = Blocker(DEVICE), []

    def now() -> int:
        asked.append(None)
        if len(asked) == 5:
            driver.words[0] = driver.launches("occupy")[-1]["launch"]
        return 0

    monkeypatch.setattr(made, "_now", now)
    driver.busy = True
    driver.log.clear()
    made.hold(1)
    assert len(asked) == 5
    assert [launch["name"] for launch in driver.log] == ["occupy", "linger"]  # which would run before it as well


def test_a_device_that_is_never_free(driver, monkeypatch):
    made = Blocker(DEVICE)
    driver.busy = True
    monkeypatch.setattr(made, "_now", iter(range(0, 10**12, 10**9)).__next__)
    with pytest.raises(NotHeld, match="not free for the clock within 10 s: leave nothing running on it"):
        made.hold(1)


def test_a_launch_that_fails_is_no_time(driver):
    made = Blocker(DEVICE)
    driver.broken = "cuLaunchKernel"
    made._ask = blocker._asker()
    with pytest.raises(NotHeld, match="cuLaunchKernel: CUDA error 1"):
        made.hold(1)


@pytest.mark.parametrize(("status", "text"), [(700, "an illegal memory access was encountered"), (719, "unspecified launch")])
@pytest.mark.parametrize("step", ["hold", "stamp"])
def test_a_fault_of_a_kernel_that_a_launch_meets_is_none_of_the_launch(driver, status, text, step):
    """The call's own, which the driver reports to whoever asks next."""
    made = Blocker(DEVICE)
    driver.broken, driver.status = "cuLaunchKernel", status
    made._ask = blocker._asker()
    with pytest.raises(KernelFault, match=f"CUDA error {status}: {text}"):
        getattr(made, step)(*([1] if step == "hold" else []))


@pytest.mark.parametrize("status", [1, 2, 201, 400, 701, 703, 709, 720, 999])
def test_other_errors_are_the_launchs_own(driver, status):
    """Too few resources, and a context that somebody has destroyed, are no fault of a kernel."""
    made = Blocker(DEVICE)
    driver.broken, driver.status = "cuLaunchKernel", status
    made._ask = blocker._asker()
    with pytest.raises(NotHeld, match=f"cuLaunchKernel: CUDA error {status}"):
        made.stamp()


def test_what_another_context_took_is_reported(driver):
    made = Blocker(DEVICE)
    made.hold(1)
    assert made.lost_ns == 0
    driver.lost_ns = 70_000
    made.hold(1)
    assert made.lost_ns == 70_000


def test_what_got_in_between_is_reported(driver):
    made = Blocker(DEVICE)
    driver.lost_ns, driver.late_ns = 70_000, 4_100
    made.hold(1)
    assert made.lost_ns == 74_100
    driver.lost_ns = driver.late_ns = 0
    made.hold(1)
    assert made.lost_ns == 0


@pytest.mark.parametrize("function", blocker.FUNCTIONS)
def test_a_driver_that_refuses_is_named(driver, function):
    driver.broken = function
    with pytest.raises(CannotBlock, match=f"{function}: CUDA error 1"):
        Blocker(DEVICE)


def test_a_device_that_cannot_be_filled_is_found_when_the_clock_is_built(driver, monkeypatch):
    driver.busy = True
    monkeypatch.setattr(blocker, "RUNNING_LIMIT_NS", 0)
    with pytest.raises(CannotBlock, match="not free"):
        Blocker(DEVICE)


def test_machines_without_the_driver(monkeypatch):
    """HIP has no libcuda, and a CPU nothing to fill."""

    def missing(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(CannotBlock, match=r"no NVIDIA driver: libcuda\.so\.1"):
        Blocker(DEVICE)
    with pytest.raises(CannotBlock, match="cpu is not an NVIDIA device"):
        Blocker(torch.device("cpu"))


def test_the_kernels_parameters_are_the_structures(driver):
    kinds = {ctypes.c_uint32: "u32", ctypes.c_uint64: "u64"}
    for name, handle in HANDLES.items():
        (text,) = re.findall(rb"\.visible \.entry %s\((.*?)\n\)" % name, blocker.PTX, flags=re.DOTALL)
        declared = [(kind.decode(), name.decode()) for kind, name in re.findall(rb"\.param \.(u\d+) (\w+)", text)]
        assert declared == [(kinds[kind], name) for name, kind in PARAMETERS[handle]]


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"])
def test_the_kernels_assemble_and_two_blocks_fit(tmp_path, arch):
    if not (ptxas := shutil.which("ptxas")):
        pytest.skip("no ptxas")
    source = tmp_path / "occupy.ptx"
    source.write_bytes(blocker.PTX)
    command = [ptxas, "--verbose", "--gpu-name", arch, "--output-file", str(tmp_path / "occupy.cubin"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    if "is not defined for option 'gpu-name'" in done.stderr:
        pytest.skip(f"this ptxas does not know {arch}")
    assert done.returncode == 0, done.stderr
    registers = re.findall(r"Used (\d+) registers", done.stdout + done.stderr)
    assert len(registers) == len(HANDLES)
    assert max(map(int, registers)) <= 65536 // 2048


@pytest.mark.parametrize("name", ["_occupy", "_linger", "_stamp"])
def test_what_a_kernel_is_launched_with_is_sealed(driver, monkeypatch, name):
    """A buffer of no bytes would leave the caches warm, a stamp that is written elsewhere would never come."""
    made = Blocker(DEVICE)
    monkeypatch.undo()  # the seal looks at libc
    sealed = Seal(made, Blocker, OccupyArguments, LingerArguments)
    made.hold(1)
    made.stamp()
    assert sealed.broken() is None
    kernel = getattr(made, name)
    with pytest.raises(TypeError):
        kernel.fixed[0] = ("late", 1)
    setattr(made, name, kernel._replace(fixed=tuple((field, 0) for field, _ in kernel.fixed)))
    assert sealed.broken() == name
