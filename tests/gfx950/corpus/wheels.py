"""Wheels fetched at test time into the user's cache; nothing of them enters the repository."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

FETCH_TIMEOUT_S = 300


class Unreachable(Exception):
    """The wheel could not be fetched; the text is the reason a test gives for being skipped."""


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "kernelproof" / "wheels"


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """`folder`, filled by `make(folder)` unless it is there: by one process at a time, and whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            scratch = Path(tempfile.mkdtemp(dir=folder.parent))
            try:
                make(scratch)
                scratch.rename(folder)
            except BaseException:
                shutil.rmtree(scratch, ignore_errors=True)
                raise
    return folder


def fetch(requirement: str) -> Path:
    """The wheel for `name==version`, downloaded once. Raises Unreachable."""
    try:
        folder = made_once(cache_folder() / requirement.replace("==", "-"), lambda empty: _download(requirement, empty))
    except OSError as error:
        raise Unreachable(f"{requirement} cannot be kept here: {error}") from None
    return next(folder.glob("*.whl"))


def _download(requirement: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    try:
        command += ["-d", str(folder), requirement]
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{requirement}: no answer from the package index in {FETCH_TIMEOUT_S} s") from None
    if done.returncode:
        last_line = (done.stderr.strip() or "pip failed").splitlines()[-1]
        raise Unreachable(f"{requirement} cannot be fetched here: {last_line}")


def unpacked(wheel: Path) -> Path:
    """The wheel's content as a folder that can stand in PYTHONPATH, unpacked once."""

    def extract(folder: Path) -> None:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)

    return made_once(wheel.with_suffix(""), extract)
