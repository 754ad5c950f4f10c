"""NVIDIA's management library (NVML), which comes with the driver, by ctypes: clocks, throttling, processes.

Names and numbers: nvml.h of CUDA 12 and 13. A question that a driver or a virtual GPU does not answer is left out.
"""

import ctypes
from typing import Any, Self

LIBRARY = "libnvidia-ml.so.1"
CLOCK_SM = 1
MAX_PROCESSES = 64
REASONS_FUNCTIONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")  # from 535 on
# nvmlClocksEventReason*: only those that take speed away; idle, a chosen clock and the display are none.
REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "heat",
    0x40: "heat, by hardware",
    0x80: "power brake",
}


class ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_v2_t."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used_memory_bytes", ctypes.c_ulonglong),
        ("gpu_instance_id", ctypes.c_uint),
        ("compute_instance_id", ctypes.c_uint),
    )


class NvidiaProbe:
    """Asks about one device. The library stays initialized for the life of the process."""

    def __init__(self, library: Any, device: Any):
        self._library, self._device = library, device

    @classmethod
    def open(cls, uuid: str) -> Self | None:
        """The probe of the device with this UUID (without `GPU-`); None where the library or the device is missing."""
        try:
            library = ctypes.CDLL(LIBRARY)
        except OSError:
            return None
        device = ctypes.c_void_p()
        if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode(), ctypes.byref(device)):
            return None
        return cls(library, device)

    def read(self) -> dict:
        """The fields of a GpuState."""
        core, limit, reasons = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_ulonglong()
        return {
            "core_mhz": core.value if self._ask("nvmlDeviceGetClockInfo", CLOCK_SM, ctypes.byref(core)) else None,
            "core_limit_mhz": limit.value if self._ask("nvmlDeviceGetMaxClockInfo", CLOCK_SM, ctypes.byref(limit)) else None,
            "throttled": self._reasons(reasons),
            "pids": self._pids(),
        }

    def _reasons(self, mask: ctypes.c_ulonglong) -> tuple[str, ...]:
        known = any(self._ask(function, ctypes.byref(mask)) for function in REASONS_FUNCTIONS)
        return tuple(name for bit, name in REASONS.items() if mask.value & bit) if known else ()

    def _pids(self) -> frozenset[int] | None:
        count, infos = ctypes.c_uint(MAX_PROCESSES), (ProcessInfo * MAX_PROCESSES)()
        if not self._ask("nvmlDeviceGetComputeRunningProcesses_v3", ctypes.byref(count), infos):
            return None
        return frozenset(info.pid for info in infos[: count.value])

    def _ask(self, function: str, *arguments: Any) -> bool:
        """Whether the driver has answered; functions that an old one lacks are not answered."""
        return hasattr(self._library, function) and getattr(self._library, function)(self._device, *arguments) == 0
