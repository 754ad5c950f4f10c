"""A submission may not take the memory that the machine has given to others."""

import pytest
import torch

from harness import devices

GIB = 1 << 30


def limit_with(monkeypatch, **files):
    paths = {"meminfo": "/proc/meminfo", "max": "/sys/fs/cgroup/memory.max", "current": "/sys/fs/cgroup/memory.current"}
    contents = {paths[name]: text for name, text in files.items()}
    monkeypatch.setattr(devices, "_read", lambda path: contents.get(path, ""))
    return devices.data_limit_bytes(torch.device("cpu"))


@pytest.mark.parametrize(
    ("files", "available"),
    [
        ({"meminfo": f"MemTotal: 1 kB\nMemAvailable:   {10 * GIB >> 10} kB\n"}, 10 * GIB),
        ({"meminfo": f"MemAvailable: {10 * GIB >> 10} kB\n", "max": "max\n", "current": "5\n"}, 10 * GIB),
        ({"meminfo": f"MemAvailable: {10 * GIB >> 10} kB\n", "max": f"{4 * GIB}\n", "current": f"{GIB}\n"}, 3 * GIB),
    ],
)
def test_nine_tenths_of_what_is_available(monkeypatch, files, available):
    assert limit_with(monkeypatch, **files) == available * 9 // 10


def test_a_machine_that_does_not_say_has_its_whole_memory(monkeypatch):
    assert limit_with(monkeypatch) == devices.describe_device(torch.device("cpu")).memory_bytes * 9 // 10


def test_a_gpu_has_no_such_limit():
    assert devices.data_limit_bytes(torch.device("cuda")) is None
