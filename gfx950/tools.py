"""Where LLVM's programs are, and whether they are new enough to know gfx950."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .errors import CacheUnusable, ToolchainMissing, ToolchainTooOld

OLDEST_LLVM = 20  # the first release with the gfx950 target
PACKAGED_LLVM = 22  # what `make toolchain` installs and the tests run against
_ZIG = "ziglang"


@dataclass(frozen=True)
class Tool:
    """A program: the command that starts it and the LLVM version it reports."""

    command: tuple[str, ...]
    version: str

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    def environment(self) -> dict[str, str]:
        """What to run it in. ziglang's clang asks for a linker called lld, which is `zig ld.lld` there: a shim joins them."""
        if _ZIG not in self.command:
            return dict(os.environ)
        shim = cache_dir() / f"zig-{self.version}" / "lld"
        if not shim.exists():
            write_atomically(shim, f'#!/bin/sh\nshift 2\nexec "{sys.executable}" -m {_ZIG} ld.lld "$@"\n'.encode(), mode=0o755)
        return {**os.environ, "PATH": f"{shim.parent}{os.pathsep}{os.environ.get('PATH', '')}"}


def cache_dir() -> Path:
    """The user's cache folder for this package ($XDG_CACHE_HOME or ~/.cache); created on use. Raises CacheUnusable."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "kernelproof" / "gfx950"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CacheUnusable(path=folder, reason=error.strerror) from None
    return folder


def write_atomically(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Readers see the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as scratch:
        scratch.write(content)
    os.chmod(scratch.name, mode)
    os.replace(scratch.name, path)


def find_tool(name: str, purpose: str) -> Tool:
    """The newest usable LLVM program called `name` (clang, llvm-objdump, ...).

    Looked up in $GFX950_LLVM, then on PATH with and without a version suffix, then in /usr/lib/llvm-N/bin and ROCm's
    folder. For clang, PyPI's ziglang is the last resort. `purpose` says in the error what the program is needed for.
    Raises ToolchainMissing, ToolchainTooOld.
    """
    return _find_tool(name, purpose, os.environ.get("GFX950_LLVM", ""), os.environ.get("PATH", ""))


@cache
def _find_tool(name: str, purpose: str, llvm_dir: str, path: str) -> Tool:
    too_old: Tool | None = None
    for command in _candidates(name, llvm_dir, path):
        tool = Tool(command, _version(command))
        if tool.major >= OLDEST_LLVM:
            return tool
        too_old = too_old or tool
    if too_old and too_old.major:
        raise ToolchainTooOld(tool=" ".join(too_old.command), version=too_old.version)
    raise ToolchainMissing(tool=name, purpose=purpose)


def _candidates(name: str, llvm_dir: str, path: str) -> Iterator[tuple[str, ...]]:
    """Commands that may be `name`, best first; $GFX950_LLVM, when set, is the only place looked at."""
    suffixes = [f"-{PACKAGED_LLVM}", "-24", "-23", "-21", "-20", ""]
    folders = [llvm_dir] if llvm_dir else [path, f"/usr/lib/llvm-{PACKAGED_LLVM}/bin", "/opt/rocm/llvm/bin"]
    for folder in folders:
        for suffix in suffixes:
            if program := shutil.which(name + suffix, path=folder):
                yield (program,)
    if name == "clang" and not llvm_dir and importlib.util.find_spec(_ZIG):
        yield (sys.executable, "-m", _ZIG, "clang")


def _version(command: tuple[str, ...]) -> str:
    try:
        text = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return "0"
    found = re.search(r"version (\d+(?:\.\d+)*)", text)
    return found.group(1) if found else "0"
