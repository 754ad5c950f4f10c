"""AMD's kernel driver (amdgpu, KFD) through sysfs: clocks and processes. It tells no reasons for throttling there.

    bus/pci/devices/DDDD:BB:DD.F/hwmon/hwmon*/freq1_input     the core clock in Hz
    bus/pci/devices/DDDD:BB:DD.F/pp_dpm_sclk                  the clock's levels, such as `1: 2400Mhz *`
    class/kfd/kfd/topology/nodes/*/{gpu_id,properties}        which KFD id a PCI address has
    class/kfd/kfd/proc/PID/vram_GPUID                         bytes that a process holds on a device
"""

import re
from pathlib import Path
from typing import Self


class AmdProbe:
    """Asks about one device."""

    def __init__(self, device: Path, kfd: Path, gpu_id: str | None):
        self._device, self._kfd, self._gpu_id = device, kfd, gpu_id

    @classmethod
    def open(cls, address: tuple[int, int, int], sysfs: Path) -> Self | None:
        """The probe of the device at a PCI address (domain, bus, device); None where sysfs does not show it."""
        domain, bus, number = address
        device = sysfs / "bus" / "pci" / "devices" / f"{domain:04x}:{bus:02x}:{number:02x}.0"
        kfd = sysfs / "class" / "kfd" / "kfd"
        return cls(device, kfd, _gpu_id(kfd, domain, bus << 8 | number << 3)) if device.is_dir() else None

    def read(self) -> dict:
        """The fields of a GpuState."""
        return {"core_mhz": self._core_mhz(), "core_limit_mhz": self._limit_mhz(), "pids": self._pids()}

    def _core_mhz(self) -> int | None:
        values = [_read(path) for path in self._device.glob("hwmon/hwmon*/freq1_input")]
        return int(values[0]) // 1_000_000 if values and values[0].isdigit() else None

    def _limit_mhz(self) -> int | None:
        return max((int(mhz) for mhz in re.findall(r"(\d+)Mhz", _read(self._device / "pp_dpm_sclk"))), default=None)

    def _pids(self) -> frozenset[int] | None:
        if self._gpu_id is None:
            return None
        files = self._kfd.glob(f"proc/[0-9]*/vram_{self._gpu_id}")
        return frozenset(int(path.parent.name) for path in files if _read(path) not in ("", "0"))


def _gpu_id(kfd: Path, domain: int, location_id: int) -> str | None:
    """KFD's id of the device at a PCI location (bus << 8 | device << 3 | function)."""
    for node in kfd.glob("topology/nodes/*"):
        properties = dict(line.split(" ", 1) for line in _read(node / "properties").splitlines() if " " in line)
        if (properties.get("domain", "0"), properties.get("location_id")) == (str(domain), str(location_id)):
            return _read(node / "gpu_id") or None
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
