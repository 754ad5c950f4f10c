"""Wheels fetched at test time into the user's cache; nothing of them enters the repository."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

FETCH_TIMEOUT_S = 300


class Unreachable(Exception):
    """The wheel could not be fetched; the text is the reason a test gives for being skipped."""


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "kernelproof" / "wheels"


def fetch(requirement: str) -> Path:
    """The wheel for `name==version`, downloaded once. Raises Unreachable."""
    folder = cache_folder() / requirement.replace("==", "-")
    if not (found := list(folder.glob("*.whl"))):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        try:
            command += ["-d", str(folder), requirement]
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise Unreachable(f"{requirement}: no answer from the package index in {FETCH_TIMEOUT_S} s") from None
        if done.returncode:
            last_line = (done.stderr.strip() or "pip failed").splitlines()[-1]
            raise Unreachable(f"{requirement} cannot be fetched here: {last_line}")
        found = list(folder.glob("*.whl"))
    return found[0]


def unpacked(wheel: Path) -> Path:
    """The wheel's content as a folder that can stand in PYTHONPATH, unpacked once."""
    folder = wheel.with_suffix("")
    if not folder.exists():
        scratch = wheel.with_suffix(f".{os.getpid()}")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(scratch)
        try:
            scratch.rename(folder)
        except OSError:  # another process was faster
            if not folder.exists():
                raise
    return folder
