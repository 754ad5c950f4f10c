"""Machine address to source line, from the DWARF line program and the inlining records beside it."""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from elftools.common.exceptions import DWARFError, ELFError
from elftools.elf.elffile import ELFFile


@dataclass(frozen=True)
class Frame:
    """A source position. `file` is the path the compiler saw."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{display_path(self.file)}:{self.line}"


class LineTable:
    """Rows (start address, Frame or None where code has no line), sorted by address."""

    def __init__(self, rows: list[tuple[int, Frame | None]]) -> None:
        self._starts = [start for start, _ in rows]
        self._frames = [frame for _, frame in rows]

    def lookup(self, address: int) -> Frame | None:
        index = bisect.bisect_right(self._starts, address) - 1
        return self._frames[index] if index >= 0 else None


def display_path(path: str) -> str:
    """Relative to the working folder when it lies inside, as compilers print it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def read_line_table(elf: ELFFile) -> LineTable:
    """Empty without debug information, or when it is damaged: source lines are a courtesy, never a reason to fail."""
    try:
        if not elf.has_dwarf_info():
            return LineTable([])
        rows = [row for unit in elf.get_dwarf_info().iter_CUs() for row in _unit_rows(elf, unit)]
    except (DWARFError, ELFError, KeyError, IndexError, AttributeError):
        return LineTable([])
    return LineTable(sorted(rows, key=lambda row: row[0]))


def _unit_rows(elf: ELFFile, unit: Any) -> Iterator[tuple[int, Frame | None]]:
    program = elf.get_dwarf_info().line_program_for_CU(unit)
    if program is None:
        return
    files = _file_names(program, unit)
    line = 0
    for entry in program.get_entries():
        state = entry.state
        if state is None:
            continue
        line = state.line or line  # line 0 marks compiler-made code: name the last line before it
        frame = None if state.end_sequence or not line else Frame(files[state.file], line)
        yield state.address, frame


def _file_names(program: Any, unit: Any) -> dict[int, str]:
    """File number of the line program -> absolute path. Numbers start at 1 before DWARF 5 and at 0 from then on."""
    header = program.header
    first = 0 if header.version >= 5 else 1
    root = unit.get_top_DIE().attributes.get("DW_AT_comp_dir")
    base = _text(root.value) if root else ""
    folders = [_text(folder) for folder in header.include_directory]
    if first == 1:
        folders.insert(0, base)
    return {
        number: os.path.normpath(os.path.join(base, folders[entry.dir_index], _text(entry.name)))
        for number, entry in enumerate(header.file_entry, start=first)
    }


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
