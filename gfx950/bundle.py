"""Clang offload bundles: containers that hold code objects for several targets, of which the gfx950 one is taken.

Format: https://clang.llvm.org/docs/ClangOffloadBundler.html (magic, entry count, then offset/size/target of each entry).
"""

from __future__ import annotations

import struct
import subprocess
import tempfile
from pathlib import Path

from .errors import NotACodeObject, Truncated, WrongTarget
from .tools import find_tool

BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_MAGIC = b"CCOB"


def is_bundle(data: bytes) -> bool:
    return data.startswith((BUNDLE_MAGIC, COMPRESSED_MAGIC))


def unbundle(data: bytes, path: object, arch: str) -> bytes:
    """The code object for `arch` in the bundle `data`. Raises WrongTarget, Truncated, NotACodeObject, ToolchainMissing."""
    if data.startswith(COMPRESSED_MAGIC):
        return _unbundle_compressed(data, path, arch)
    entries = _entries(data, path)
    for target, (offset, size) in entries.items():
        if _matches(target, arch):
            if offset + size > len(data):
                raise Truncated(path=path, what=f"bundle entry {target}", end=offset + size, size=len(data))
            return data[offset : offset + size]
    raise WrongTarget(path=path, found=_names(entries))


def _entries(data: bytes, path: object) -> dict[str, tuple[int, int]]:
    """target triple -> (byte offset, size in bytes)."""
    entries: dict[str, tuple[int, int]] = {}
    position = len(BUNDLE_MAGIC)
    try:
        (count,) = struct.unpack_from("<Q", data, position)
        position += 8
        for _ in range(count):
            offset, size, name_size = struct.unpack_from("<QQQ", data, position)
            position += 24
            if position + name_size > len(data):
                raise struct.error
            entries[data[position : position + name_size].decode("ascii", "replace")] = (offset, size)
            position += name_size
    except struct.error:
        raise Truncated(path=path, what="the bundle's table", end=position + 24, size=len(data)) from None
    return entries


def _matches(target: str, arch: str) -> bool:
    """hipv4-amdgcn-amd-amdhsa--gfx950:sramecc+ matches gfx950; host entries do not."""
    return target.split(":")[0].endswith(f"-{arch}")


def _names(targets) -> str:
    return ", ".join(name for name in targets if not name.startswith("host")) or "the host only"


def _unbundle_compressed(data: bytes, path: object, arch: str) -> bytes:
    """clang's own unbundler knows every version and compression method of the compressed form."""
    tool = find_tool("clang-offload-bundler", "it unpacks compressed offload bundles")
    with tempfile.TemporaryDirectory() as scratch:
        packed, unpacked = Path(scratch) / "packed", Path(scratch) / "unpacked"
        packed.write_bytes(data)
        bundler = [*tool.command, "--type=o", f"--input={packed}"]
        listing = subprocess.run([*bundler, "--list"], capture_output=True, text=True)
        if listing.returncode:
            raise NotACodeObject(path=path, reason=f"a damaged compressed bundle: {listing.stderr.strip().splitlines()[-1]}")
        targets = listing.stdout.split()
        wanted = next((target for target in targets if _matches(target, arch)), None)
        if wanted is None:
            raise WrongTarget(path=path, found=_names(targets))
        subprocess.run([*bundler, "--unbundle", f"--targets={wanted}", f"--output={unpacked}"], check=True)
        return unpacked.read_bytes()
