"""Machine address to source line, from the DWARF line program and the inlining records beside it."""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from elftools.elf.elffile import ELFFile

from .elf import PARSER_ERRORS


@dataclass(frozen=True)
class Frame:
    """A source position. `file` is the path the compiler saw."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{display_path(self.file)}:{self.line}"


@dataclass(frozen=True)
class InlinedCall:
    """Code in [start, end) was inlined `depth` calls deep; `site` is where the call stands."""

    start: int
    end: int
    depth: int
    site: Frame


class LineTable:
    """rows: (start address, Frame, or None where code has no line), sorted by address."""

    def __init__(self, rows: list[tuple[int, Frame | None]], calls: list[InlinedCall]) -> None:
        self._starts = [start for start, _ in rows]
        self._frames = [frame for _, frame in rows]
        self._calls = calls

    def lookup(self, address: int) -> Frame | None:
        """The position itself, even inside an inlined function."""
        index = bisect.bisect_right(self._starts, address) - 1
        return self._frames[index] if index >= 0 else None

    def stack(self, address: int) -> tuple[Frame, ...]:
        """The position and the sites of the calls that it was inlined through, innermost first."""
        here = self.lookup(address)
        around = [call for call in self._calls if call.start <= address < call.end]
        sites = [call.site for call in sorted(around, key=lambda call: -call.depth)]
        return (here, *sites) if here else ()


def display_path(path: str) -> str:
    """Relative to the working folder when it lies inside, as compilers print it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def read_line_table(elf: ELFFile) -> LineTable:
    """Empty without debug information, or when it is damaged: source lines are a courtesy, never a reason to fail."""
    rows: list[tuple[int, Frame | None]] = []
    calls: list[InlinedCall] = []
    try:
        for unit in elf.get_dwarf_info().iter_CUs() if elf.has_dwarf_info() else ():
            program = elf.get_dwarf_info().line_program_for_CU(unit)
            if program is not None:
                files = _file_names(program, unit)
                rows += _unit_rows(program, files)
                calls += _inlined_calls(unit, files)
    except PARSER_ERRORS:
        return LineTable([], [])
    return LineTable(sorted(rows, key=lambda row: row[0]), calls)


def _unit_rows(program: Any, files: dict[int, str]) -> Iterator[tuple[int, Frame | None]]:
    line = 0
    for entry in program.get_entries():
        state = entry.state
        if state is None:
            continue
        line = state.line or line  # line 0 marks compiler-made code: name the last line before it
        frame = None if state.end_sequence or not line else Frame(files[state.file], line)
        yield state.address, frame


def _inlined_calls(unit: Any, files: dict[int, str]) -> Iterator[InlinedCall]:
    pending = [(unit.get_top_DIE(), 0)]
    while pending:
        entry, depth = pending.pop()
        if entry.tag == "DW_TAG_inlined_subroutine":
            depth += 1
            site = Frame(files[_number(entry, "DW_AT_call_file")], _number(entry, "DW_AT_call_line"))
            yield from (InlinedCall(start, end, depth, site) for start, end in _address_ranges(unit, entry))
        pending += [(child, depth) for child in entry.iter_children()]


def _number(entry: Any, attribute: str) -> int:
    return entry.attributes[attribute].value


def _address_ranges(unit: Any, entry: Any) -> list[tuple[int, int]]:
    if "DW_AT_ranges" in entry.attributes:
        base = unit.get_top_DIE().attributes.get("DW_AT_low_pc")
        listed = unit.dwarfinfo.range_lists().get_range_list_at_offset(_number(entry, "DW_AT_ranges"), cu=unit)
        return _absolute(listed, base.value if base else 0)
    if "DW_AT_low_pc" not in entry.attributes:
        return []
    start, high = _number(entry, "DW_AT_low_pc"), entry.attributes["DW_AT_high_pc"]
    is_address = high.form in ("DW_FORM_addr", "DW_FORM_addrx")
    return [(start, high.value if is_address else start + high.value)]


def _absolute(listed: Any, base: int) -> list[tuple[int, int]]:
    ranges = []
    for item in listed:
        if hasattr(item, "base_address"):
            base = item.base_address
        else:
            offset = 0 if item.is_absolute else base
            ranges.append((offset + item.begin_offset, offset + item.end_offset))
    return ranges


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
