"""What drivers say about a device: AMD's sysfs as a folder, NVIDIA's library as a stand-in, and how looks add up."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import gpu_nvidia
from harness.gpu_amd import AmdProbe
from harness.gpu_nvidia import NvidiaProbe, ProcessInfo
from harness.gpu_watch import GpuWatch, descendants
from harness.result import Conditions

OWN = os.getpid()


class Clock:
    time_ns = 0

    def now_ns(self) -> int:
        return self.time_ns


class Script:
    """A probe that answers from a list."""

    def __init__(self, *answers: dict):
        self.answers = list(answers)

    def read(self) -> dict:
        return self.answers.pop(0)


def looked(*answers: dict) -> Conditions:
    clock = Clock()
    watch = GpuWatch(Script(*answers), clock, lambda: frozenset({OWN}))
    for _ in answers:
        watch.look()
        clock.time_ns += 10**9
    return watch.take(2)


def test_looks_add_up():
    found = looked(
        {"core_mhz": 1900, "core_limit_mhz": 1980, "pids": frozenset({OWN})},
        {"core_mhz": 1500, "throttled": ("heat",), "pids": frozenset({OWN, 1, 2})},
        {"throttled": ("power cap", "heat")},
    )
    assert found == Conditions(1500, 1900, 1980, ("heat", "power cap"), 2, 2)


def test_nobody_of_ours_is_seen_in_another_process_namespace():
    assert looked({"pids": frozenset({1, 2})}).other_processes is None


def test_nothing_known_without_a_driver():
    watch = GpuWatch(None, Clock())
    watch.look()
    assert watch.take(0) == Conditions(exposed_samples=0)


def test_the_driver_is_asked_every_third_of_a_second():
    clock, probe = Clock(), Script(*({"core_mhz": mhz} for mhz in range(1, 100)))
    watch = GpuWatch(probe, clock, lambda: frozenset())
    for _ in range(100):
        watch.look()
        clock.time_ns += 10_000_000
    assert watch.take(0).core_high_mhz == 4


def test_a_case_does_not_inherit_the_last_ones_looks():
    watch = GpuWatch(Script({"core_mhz": 5}, {"core_mhz": 7}), Clock(), lambda: frozenset())
    watch.look()
    watch.take(0)
    watch.look()
    assert watch.take(0).core_low_mhz == 7


def test_descendants_are_those_of_the_process_and_theirs():
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as child:
        while len(grandchildren := descendants(child.pid)) < 2:  # the child takes a moment to start its own
            assert child.poll() is None
        found = descendants(OWN)
        assert {OWN, *grandchildren} <= found
        assert os.getppid() not in found
        assert child.stdin is not None
        child.stdin.close()


@pytest.fixture
def sysfs(tmp_path) -> Path:
    device = tmp_path / "bus/pci/devices/0000:c5:00.0"
    (device / "hwmon/hwmon3").mkdir(parents=True)
    (device / "hwmon/hwmon3/freq1_input").write_text("2100000000\n")
    (device / "pp_dpm_sclk").write_text("0: 132Mhz\n1: 2400Mhz *\n")
    kfd = tmp_path / "class/kfd/kfd"
    for node, (gpu_id, location) in enumerate((("0", 0), ("4711", 0xC5 << 8), ("4712", 0xC6 << 8))):
        (kfd / f"topology/nodes/{node}").mkdir(parents=True)
        (kfd / f"topology/nodes/{node}/gpu_id").write_text(f"{gpu_id}\n")
        (kfd / f"topology/nodes/{node}/properties").write_text(f"simd_count 4\nlocation_id {location}\ndomain 0\n")
    for pid, gpu_id, held in ((10, "4711", 4096), (11, "4712", 4096), (12, "4711", 0)):
        (kfd / f"proc/{pid}").mkdir(parents=True)
        (kfd / f"proc/{pid}/vram_{gpu_id}").write_text(f"{held}\n")
    return tmp_path


def test_amd(sysfs):
    probe = AmdProbe.open((0, 0xC5, 0), sysfs)
    assert probe is not None
    assert probe.read() == {"core_mhz": 2100, "core_limit_mhz": 2400, "pids": frozenset({10})}


def test_amd_without_the_device(sysfs):
    assert AmdProbe.open((0, 0xC9, 0), sysfs) is None


def test_amd_in_a_container_that_shows_half(sysfs):
    (sysfs / "bus/pci/devices/0000:c6:00.0").mkdir()
    for path in sysfs.glob("class/kfd/kfd/topology/nodes/*/properties"):
        path.unlink()
    probe = AmdProbe.open((0, 0xC6, 0), sysfs)
    assert probe is not None
    assert probe.read() == {"core_mhz": None, "core_limit_mhz": None, "pids": None}


class Library:
    """NVML with one device, in the calling convention of ctypes."""

    def __init__(self, mask: int = 0x24, processes: tuple[int, ...] = (OWN, 99), answers: int = 0):
        self.mask, self.processes, self.answers = mask, processes, answers

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, device) -> int:
        return 0 if uuid == b"GPU-abc" else 6

    def nvmlDeviceGetClockInfo(self, device, kind: int, mhz) -> int:
        mhz._obj.value = {1: 1755}[kind]
        return self.answers

    def nvmlDeviceGetMaxClockInfo(self, device, kind: int, mhz) -> int:
        mhz._obj.value = 1980
        return self.answers

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, device, mask) -> int:
        mask._obj.value = self.mask
        return self.answers

    def nvmlDeviceGetComputeRunningProcesses_v3(self, device, count, infos) -> int:
        count._obj.value = len(self.processes)
        for info, pid in zip(infos, self.processes, strict=False):
            info.pid = pid
        return self.answers


def nvidia(monkeypatch, library, uuid="abc") -> NvidiaProbe | None:
    monkeypatch.setattr(gpu_nvidia.ctypes, "CDLL", lambda name: library)
    return NvidiaProbe.open(uuid)


def test_nvidia(monkeypatch):
    probe = nvidia(monkeypatch, Library())
    assert probe is not None
    assert probe.read() == {
        "core_mhz": 1755, "core_limit_mhz": 1980, "throttled": ("power cap", "heat"), "pids": frozenset({OWN, 99}),
    }  # fmt: skip


def test_an_idle_device_and_a_chosen_clock_are_no_throttling(monkeypatch):
    probe = nvidia(monkeypatch, Library(mask=0x103))
    assert probe is not None
    assert probe.read()["throttled"] == ()


def test_nvidia_by_the_newer_name(monkeypatch):
    library = Library()
    library.nvmlDeviceGetCurrentClocksEventReasons = library.nvmlDeviceGetCurrentClocksThrottleReasons
    monkeypatch.delattr(Library, "nvmlDeviceGetCurrentClocksThrottleReasons")
    probe = nvidia(monkeypatch, library)
    assert probe is not None
    assert probe.read()["throttled"] == ("power cap", "heat")


def test_nvidia_that_does_not_answer(monkeypatch):
    probe = nvidia(monkeypatch, Library(answers=3))
    assert probe is not None
    assert probe.read() == {"core_mhz": None, "core_limit_mhz": None, "throttled": (), "pids": None}


def test_nvidia_without_the_device(monkeypatch):
    assert nvidia(monkeypatch, Library(), "xyz") is None


def test_the_layout_of_a_process_entry_is_the_librarys():
    assert ctypes.sizeof(ProcessInfo) == 24
    assert ProcessInfo.used_memory_bytes.offset == 8
