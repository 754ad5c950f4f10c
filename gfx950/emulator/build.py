"""Builds the executor (native/**/*.cpp) into a shared library on first use; library and objects are cached by content."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from ..errors import BuildFailed, ToolchainMissing
from ..tools import cache_dir, find_tool

NATIVE_DIR = Path(__file__).parent / "native"
# No contraction: a multiply and an add stay two roundings unless the instruction is a fused one.
FLAGS = ("-std=c++20", "-O3", "-march=native", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-fno-math-errno")


@lru_cache(maxsize=1)
def load_library() -> ctypes.CDLL:
    """The executor's shared library, built if need be. Raises BuildFailed, ToolchainMissing."""
    compiler = _compiler()
    settings = _settings(compiler)
    objects = {source: _cached(source, settings) for source in sorted(NATIVE_DIR.rglob("*.cpp"))}
    library = cache_dir() / f"executor-{_digest(*map(str, objects.values()))}.so"
    if not library.exists():
        print(f"gfx950: building the emulator with {Path(compiler[0]).name} (once, about a minute)", file=sys.stderr)
        _build(compiler, objects, library)
    return ctypes.CDLL(str(library))


def _compiler() -> tuple[str, ...]:
    """The clang that compiles gfx950 code, or the system's C++ compiler."""
    try:
        return find_tool("clang++", "it builds the emulator").command
    except ToolchainMissing:
        for name in ("c++", "g++"):
            if path := shutil.which(name):
                return (path,)
        raise


def _settings(compiler: tuple[str, ...]) -> str:
    """What all objects depend on: the compiler, its version and the host's CPU, which the code is tuned for."""
    version = subprocess.run([*compiler, "--version"], capture_output=True, text=True).stdout
    return _digest(*compiler, version, *FLAGS, platform.machine(), _cpu_features())


def _cached(source: Path, settings: str) -> Path:
    """Where the object of `source` belongs: its name says all that it depends on (arith/ includes nothing from outside)."""
    folders = {source.parent, NATIVE_DIR / "arith"}
    headers = sorted(header for folder in folders for header in folder.glob("*.hpp"))
    return cache_dir() / f"{source.stem}-{_digest(settings, *(path.read_text() for path in (source, *headers)))}.o"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def _cpu_features() -> str:
    try:
        return next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    except (OSError, StopIteration):
        return platform.processor()


def _build(compiler: tuple[str, ...], objects: dict[Path, Path], library: Path) -> None:
    def compile_missing(source: Path) -> None:
        if not objects[source].exists():
            _run([*compiler, *FLAGS, f"-I{NATIVE_DIR}", "-c", str(source)], objects[source])

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(compile_missing, objects))
    _run([*compiler, "-shared", *map(str, objects.values())], library)


def _run(command: list[str], output: Path) -> None:
    """Run a compiler; its output appears under its name only when it is whole."""
    with tempfile.TemporaryDirectory(dir=output.parent) as folder:
        made = Path(folder) / output.name
        done = subprocess.run([*command, "-o", str(made)], capture_output=True, text=True)
        if done.returncode:
            raise BuildFailed(command=" ".join(command), diagnostics=done.stderr.strip())
        made.replace(output)
