"""Builds the executor (native/*.cpp) into a shared library on first use, cached by content."""

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
    sources = sorted(NATIVE_DIR.rglob("*.cpp"))
    library = cache_dir() / f"executor-{_key(compiler)}.so"
    if not library.exists():
        print(f"gfx950: building the emulator with {Path(compiler[0]).name} (once, about a minute)", file=sys.stderr)
        _build(compiler, sources, library)
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


def _key(compiler: tuple[str, ...]) -> str:
    """Content of the sources, compiler version and host CPU (the code is tuned for it)."""
    digest = hashlib.sha256()
    for path in sorted(NATIVE_DIR.rglob("*.[ch]pp")):
        digest.update(path.relative_to(NATIVE_DIR).as_posix().encode() + path.read_bytes())
    version = subprocess.run([*compiler, "--version"], capture_output=True, text=True).stdout
    digest.update(" ".join((*compiler, version, *FLAGS, platform.machine(), _cpu_features())).encode())
    return digest.hexdigest()[:20]


def _cpu_features() -> str:
    try:
        return next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    except (OSError, StopIteration):
        return platform.processor()


def _build(compiler: tuple[str, ...], sources: list[Path], library: Path) -> None:
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:

        def compile_one(source: Path) -> Path:
            output = Path(folder) / (source.relative_to(NATIVE_DIR).as_posix().replace("/", "-") + ".o")
            _run([*compiler, *FLAGS, f"-I{NATIVE_DIR}", "-c", str(source), "-o", str(output)])
            return output

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            objects = list(pool.map(compile_one, sources))
        built = Path(folder) / "executor.so"
        _run([*compiler, "-shared", *map(str, objects), "-o", str(built)])
        built.replace(library)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BuildFailed(command=" ".join(command), diagnostics=done.stderr.strip())
