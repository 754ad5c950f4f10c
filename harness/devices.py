"""The device of a run: what it is, what it can do at most (configs/devices.yml), how it is clocked."""

import contextlib
import functools
import os
import platform
import re
import subprocess
from pathlib import Path

import torch
import yaml

from harness.errors import DeviceUnavailable, UsageError
from harness.result import Clocks, Device, Peaks

DEVICES_FILE = Path(__file__).parent.parent / "configs" / "devices.yml"
HIDE_GPUS = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
GIB = 1 << 30


def select_device(name: str | None) -> torch.device:
    """The device called `cpu`, `cuda` or `cuda:N` (CUDA and HIP), by default the first GPU, else the CPU.

    Problems make their inputs on the GPU if torch sees one, so asking for the CPU hides the GPUs from this process and
    its workers: call it before anything touches a GPU. Raises DeviceUnavailable.
    """
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if re.fullmatch(r"cpu|cuda(:\d+)?", name) is None:
        raise UsageError(f"--device {name}: no such device; use cpu, cuda or cuda:N (ROCm devices are called cuda too)")
    if name == "cpu":
        os.environ.update(HIDE_GPUS)
        return torch.device("cpu")
    device, count = torch.device(name), torch.cuda.device_count()
    if not torch.cuda.is_available() or (device.index or 0) >= count:
        raise DeviceUnavailable(f"--device {name}: torch sees {count} GPUs on this machine; use --device cpu")
    device = torch.device("cuda", device.index or 0)
    _forbid_expandable_segments()
    torch.cuda.set_device(device)
    return device


def _forbid_expandable_segments() -> None:
    """Memory in expandable segments cannot be lent by a plain IPC handle; torch reads the setting when it first allocates."""
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"):
        settings = os.environ.get(name, "").split(",")
        kept = [setting for setting in settings if not setting.strip().startswith("expandable_segments")]
        if kept != settings:
            os.environ[name] = ",".join(kept)


def describe_device(device: torch.device) -> Device:
    """What is known about a device."""
    return _describe_cpu() if device.type == "cpu" else _describe_gpu(device)


def _describe_cpu() -> Device:
    info = _read("/proc/cpuinfo")
    model = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    name = f"{model[1] if model else platform.processor() or 'CPU'} ({len(os.sched_getaffinity(0))} cores)"
    return Device(
        name=name,
        kind="cpu",
        arch=platform.machine(),
        driver=platform.release(),
        torch=torch.__version__,
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        last_level_cache_bytes=_cpu_cache_bytes(),
    )


def _cpu_cache_bytes() -> int:
    """The largest cache of the first core, as the kernel tells it."""
    paths = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    sizes = [re.match(r"(\d+)([KM])", _read(str(path))) for path in paths]
    return max((int(size[1]) * {"K": 1 << 10, "M": 1 << 20}[size[2]] for size in sizes if size), default=32 << 20)


def _describe_gpu(device: torch.device) -> Device:
    properties = torch.cuda.get_device_properties(device)
    hip = torch.version.hip is not None
    peaks, known_cache_bytes = lookup_peaks(properties.name, DEVICES_FILE)
    smi = {} if hip else _nvidia_smi(str(properties.uuid))
    return Device(
        name=properties.name,
        kind="hip" if hip else "cuda",
        arch=properties.gcnArchName.split(":")[0] if hip else f"sm_{properties.major}{properties.minor}",
        driver=_read("/sys/module/amdgpu/version").strip() or None if hip else smi.get("driver_version"),
        torch=torch.__version__,
        memory_bytes=properties.total_memory,
        last_level_cache_bytes=max(known_cache_bytes, getattr(properties, "L2_cache_size", 0)),
        clocks=Clocks(_mhz(smi, "clocks.sm"), _mhz(smi, "clocks.mem"), _mhz(smi, "clocks.max.sm")),
        peaks=peaks,
    )


def lookup_peaks(name: str, path: Path) -> tuple[Peaks | None, int]:
    """Peaks and last-level cache bytes of the first entry of `path` that `name` matches; (None, 0) for an unknown device."""
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    entry = next((entry for entry in entries if entry["match"].lower() in name.lower()), None)
    if entry is None:
        return None, 0
    flops = {key: float(entry[key]) for key in ("bf16_flops", "fp8_flops", "fp4_flops") if key in entry}
    return Peaks(float(entry["bandwidth_bytes_per_s"]), **flops), int(entry["last_level_cache_bytes"])


@functools.cache
def _nvidia_smi(uuid: str) -> dict[str, str]:
    """What nvidia-smi says about one GPU, as it was when this process first asked; nothing if it is not there."""
    keys = ["driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm"]
    command = ["nvidia-smi", f"--query-gpu={','.join(keys)}", "--format=csv,noheader,nounits", f"--id=GPU-{uuid}"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        line = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()[0]
        return dict(zip(keys, (value.strip() for value in line.split(",")), strict=True))
    return {}


def _mhz(smi: dict[str, str], key: str) -> int | None:
    value = smi.get(key, "")
    return int(value) if value.isdigit() else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def data_limit_bytes(device: torch.device) -> int | None:
    """RLIMIT_DATA for workers: nine tenths of the memory that is available now on a CPU, none on a GPU."""
    return available_bytes() * 9 // 10 if device.type == "cpu" else None


def free_device_bytes(device: torch.device) -> int:
    """Memory of a GPU that nobody has taken."""
    return torch.cuda.mem_get_info(device)[0]


def available_bytes() -> int:
    """Host memory that can be had now: of the machine, or of the container that this process runs in."""
    available = re.search(r"^MemAvailable:\s+(\d+) kB", _read("/proc/meminfo"), re.MULTILINE)
    free_bytes = [int(available[1]) << 10 if available else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    limit, used = (_read(f"/sys/fs/cgroup/memory.{name}").strip() for name in ("max", "current"))
    if limit.isdigit() and used.isdigit():  # a container's own limit; "max" where there is none
        free_bytes.append(int(limit) - int(used))
    return min(free_bytes)
