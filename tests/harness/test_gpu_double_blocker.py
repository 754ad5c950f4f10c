"""The kernel that fills a device, on a stand-in driver: what is launched, when the caller goes on, what is refused."""

import ctypes
import re
import shutil
import subprocess
from typing import Any

import pytest
import torch

from harness import blocker
from harness.blocker import READ_BYTES, Arguments, Blocker, CannotBlock, NotHeld

DEVICE = torch.device("cuda", 0)
QUEUE = 0xABC
INVALID = 1
PARAMETERS: Any = Arguments._fields_


class Driver:
    """libcuda's part of blocker in the calling convention of ctypes. A launched kernel runs at once, unless `busy`."""

    def __init__(self, processors: int = 132, threads: int = 2048) -> None:
        self.attributes = {16: processors, 39: threads}
        self.broken, self.busy, self.lost_ns = "", False, 0
        self.launches: list[dict] = []

    def __getattribute__(self, name: str):
        found = object.__getattribute__(self, name)
        return (lambda *_: INVALID) if name.startswith("cu") and name == self.broken else found

    def cuModuleLoadData(self, module, image) -> int:
        module._obj.value = 7
        return 0 if b".visible .entry occupy(" in image.value else INVALID

    def cuModuleGetFunction(self, function, module, name) -> int:
        function._obj.value = 8
        return 0 if (module.value, name.value) == (7, b"occupy") else INVALID

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
        given = zip(PARAMETERS, pointers, strict=True)
        arguments = {name: kind.from_address(pointer).value for (name, kind), pointer in given}
        assert (function.value, extra, (gy, gz, by, bz)) == (8, None, (1, 1, 1, 1))
        assert arguments["words"] == ctypes.addressof(self.words) + 1
        self.launches.append({**arguments, "blocks": gx, "threads": bx, "shared_bytes": shared_bytes, "queue": queue.value})
        if not self.busy:
            self.words[0], self.words[1] = arguments["launch"], self.lost_ns
        return 0


@pytest.fixture
def driver(monkeypatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: made)
    monkeypatch.setattr(blocker, "_current_queue", lambda: lambda index: QUEUE)
    return made


@pytest.mark.parametrize(("processors", "threads"), [(132, 2048), (148, 2048), (84, 1536), (40, 1024)])
def test_every_thread_of_the_device_is_taken(driver, processors, threads):
    driver.attributes = {16: processors, 39: threads}
    Blocker(DEVICE).hold(1000)
    last = driver.launches[-1]
    assert last["blocks"] * last["threads"] == processors * threads
    assert last["threads"] <= 1024
    assert last["shared_bytes"] == 0
    assert (last["hold_ns"], last["queue"]) == (1000, QUEUE)


def test_launches_are_told_apart(driver):
    made = Blocker(DEVICE)
    for _ in range(3):
        made.hold(1)
    assert [launch["launch"] for launch in driver.launches] == [1, 2, 3, 4]  # the first one tried it out


def test_the_buffer_is_read_in_the_end(driver):
    buffer = torch.ones(1001)
    Blocker(DEVICE, buffer)
    last = driver.launches[-1]
    assert (last["buffer"], last["nbytes"]) == (buffer.data_ptr(), 4004 // READ_BYTES * READ_BYTES)
    Blocker(DEVICE)
    assert driver.launches[-1]["nbytes"] == 0


def test_nobody_goes_on_before_the_kernel_has_the_device(driver, monkeypatch):
    """Whoever launches something while the kernel is still waiting for its turn would run before it."""
    made, asked = Blocker(DEVICE), []

    def now() -> int:
        asked.append(None)
        if len(asked) == 5:
            driver.words[0] = driver.launches[-1]["launch"]
        return 0

    monkeypatch.setattr(made, "_now", now)
    driver.busy = True
    made.hold(1)
    assert len(asked) == 5


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


def test_what_another_context_took_is_reported(driver):
    made = Blocker(DEVICE)
    assert made.lost_ns == 0
    driver.lost_ns = 70_000
    made.hold(1)
    assert made.lost_ns == 70_000


@pytest.mark.parametrize(
    "function",
    ["cuModuleLoadData", "cuModuleGetFunction", "cuDeviceGetAttribute", "cuMemHostAlloc", "cuMemHostGetDevicePointer_v2",
     "cuLaunchKernel"],
)  # fmt: skip
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
    declared = re.findall(rb"\.param \.(u\d+) (\w+)", blocker.PTX)
    kinds = {ctypes.c_uint32: "u32", ctypes.c_uint64: "u64"}
    assert [(kind.decode(), name.decode()) for kind, name in declared] == [
        (kinds[kind], name) for name, kind in PARAMETERS
    ]


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"])
def test_the_kernel_assembles_and_two_blocks_fit(tmp_path, arch):
    if not (ptxas := shutil.which("ptxas")):
        pytest.skip("no ptxas")
    source = tmp_path / "occupy.ptx"
    source.write_bytes(blocker.PTX)
    command = [ptxas, "--verbose", "--gpu-name", arch, "--output-file", str(tmp_path / "occupy.cubin"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    if "is not defined for option 'gpu-name'" in done.stderr:
        pytest.skip(f"this ptxas does not know {arch}")
    assert done.returncode == 0, done.stderr
    (registers,) = re.findall(r"Used (\d+) registers", done.stdout + done.stderr)
    assert int(registers) <= 65536 // 2048
