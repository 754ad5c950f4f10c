"""What a contained worker sees of the file system: the system, this Python, devices; never the project or a home folder."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/sys",
    "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/passwd",
    "/etc/group", "/etc/nsswitch.conf", "/etc/OpenCL", "/etc/vulkan",
)  # fmt: skip
TOOL_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "ROCM_HOME", "HIP_PATH")
GPU_DEVICES = ("nvidia*", "kfd", "dri")


def visible(hidden: Iterable[Path]) -> tuple[str, ...]:
    """Folders and files that a worker may read and run, without those `hidden`.

    A visible folder that contains a hidden one is replaced by its other entries; what was named inside a hidden folder,
    such as the virtual environment of a project, stays visible.
    """
    hidden = [path.resolve() for path in hidden]
    wanted = [Path(path) for path in SYSTEM] + [path for path in _python() + _tools() if not _too_wide(path)]
    found = {}
    for path in wanted:
        for form in (path, path.resolve()):
            if form.exists() or form.is_symlink():
                found |= dict.fromkeys(map(str, _without(form, hidden)))
    return tuple(found)


def gpu_devices() -> tuple[str, ...]:
    """Device files of NVIDIA and AMD GPUs."""
    return tuple(str(path) for pattern in GPU_DEVICES for path in sorted(Path("/dev").glob(pattern)))


def _python() -> list[Path]:
    folders = [Path(path) for path in sys.path if path and Path(path).name in ("site-packages", "dist-packages")]
    return [*folders, Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).parent]


def _tools() -> list[Path]:
    words = [word for name in TOOL_VARIABLES for word in os.environ.get(name, "").split(os.pathsep)]
    return [Path(word) for word in words if word.startswith("/")]


def _too_wide(path: Path) -> bool:
    """Whether a folder holds more than tools: the root, a home, the project itself or what is above them."""
    path = path.resolve()
    return any(place == path or path in place.parents for place in (Path.home(), HERE.parent, Path("/home"), Path("/tmp")))


def _without(path: Path, hidden: list[Path]) -> list[Path]:
    inside = [place for place in hidden if path == place or path in place.parents]
    if not inside or path.is_symlink() or not path.is_dir():
        return [path]
    return [kept for child in sorted(path.iterdir()) if child not in inside for kept in _without(child, inside)]
