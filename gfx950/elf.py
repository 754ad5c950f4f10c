"""The containers of machine code: files, offload bundles, ELF, and the metadata note inside."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgpack
from elftools.common.exceptions import DWARFError, ELFError, ELFParseError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection

from . import bundle
from .errors import NotACodeObject, SourceMissing, Truncated, WrongTarget

ARCH = "gfx950"
EM_AMDGPU = 224
EF_AMDGPU_MACH = 0xFF
MACH_NAMES = {0x2F: "gfx906", 0x30: "gfx908", 0x3F: "gfx90a", 0x40: "gfx940", 0x4B: "gfx941", 0x4C: "gfx942", 0x4F: ARCH}
NT_AMDGPU_METADATA = 32
# What pyelftools and the readers below raise on bytes that make no sense.
PARSER_ERRORS = (
    ELFError, ELFParseError, DWARFError, ConstructError, struct.error, ValueError, KeyError, IndexError, TypeError,
    AttributeError, AssertionError, OverflowError, MemoryError, RecursionError,
)  # fmt: skip


@contextmanager
def naming_damage(path: str) -> Iterator[None]:
    """Turns what the parsers raise within the block into NotACodeObject."""
    try:
        yield
    except PARSER_ERRORS as error:
        raise NotACodeObject(path=path, reason=f"damaged: {error or type(error).__name__}") from None


def read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise SourceMissing(path=path) from None
    except OSError as error:
        raise NotACodeObject(path=path, reason=(error.strerror or "unreadable").lower()) from None


def unwrap(data: bytes, path: str) -> bytes:
    """Peel containers: an offload bundle, or a host program with one in its .hip_fatbin section."""
    if bundle.is_bundle(data):
        return bundle.unbundle(data, path, ARCH)
    if data[:4] == b"\x7fELF" and data[18:20] != EM_AMDGPU.to_bytes(2, "little"):
        section = _parse_elf(data, path).get_section_by_name(".hip_fatbin")
        if section and bundle.is_bundle(section.data()):
            return bundle.unbundle(section.data(), path, ARCH)
    return data


def _parse_elf(data: bytes, path: str) -> ELFFile:
    if data[:4] != b"\x7fELF":
        raise NotACodeObject(path=path, reason="an empty file" if not data else "it does not begin with an ELF header")
    if len(data) < 64:
        raise Truncated(path=path, what="the ELF header", end=64, size=len(data))
    table_offset, entry_size, entry_count = struct.unpack_from("<40xQ10xHH", data)
    table_end = table_offset + entry_size * entry_count
    if table_end > len(data):
        raise Truncated(path=path, what="the section table", end=table_end, size=len(data))
    elf = ELFFile(io.BytesIO(data))
    _check_sections(elf, data, path)
    return elf


def _check_sections(elf: ELFFile, data: bytes, path: str) -> None:
    for section in elf.iter_sections():
        end = section["sh_offset"] + section["sh_size"]
        if section["sh_type"] != "SHT_NOBITS" and end > len(data):
            raise Truncated(path=path, what=f"section {section.name or '(unnamed)'}", end=end, size=len(data))


def open_elf(data: bytes, path: str) -> ELFFile:
    elf = _parse_elf(data, path)
    machine = elf["e_machine"]
    if machine not in ("EM_AMDGPU", EM_AMDGPU):
        raise WrongTarget(path=path, found=f"machine {str(machine).removeprefix('EM_')}")
    mach = elf["e_flags"] & EF_AMDGPU_MACH
    if MACH_NAMES.get(mach) != ARCH:
        raise WrongTarget(path=path, found=MACH_NAMES.get(mach, f"AMDGPU machine {mach:#x}"))
    if elf["e_type"] != "ET_DYN":
        raise NotACodeObject(path=path, reason="an unlinked object; link it with ld.lld -shared")
    return elf


def _unpack(note: bytes | str, path: str) -> object:
    raw = note if isinstance(note, bytes) else note.encode("latin-1")
    try:
        return msgpack.unpackb(raw, strict_map_key=False)
    except (ValueError, msgpack.exceptions.UnpackException):
        raise NotACodeObject(path=path, reason="its metadata is not MessagePack: code object V2 is too old") from None


def _undotted(value: Any) -> Any:
    """The note's keys begin with a dot (.args, .offset): drop it."""
    if isinstance(value, dict):
        return {str(key).removeprefix("."): _undotted(item) for key, item in value.items()}
    return [_undotted(item) for item in value] if isinstance(value, list) else value


def read_metadata(elf: ELFFile, path: str) -> dict[str, Any]:
    """The code object's metadata note with the dots before its keys dropped; empty when it has none."""
    for section in elf.iter_sections():
        if isinstance(section, NoteSection):
            for note in section.iter_notes():
                if note["n_type"] == NT_AMDGPU_METADATA or note["n_name"] == "AMDGPU":
                    return _undotted(_unpack(note["n_descdata"], path))
    return {}
