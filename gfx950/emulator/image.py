"""The code object as the loader would place it: its segments, with dynamic relocations applied."""

from __future__ import annotations

import io
import struct

import numpy as np
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

from ..codeobject import CodeObject
from ..elf import naming_damage
from .buffers import base_address

# The image has the first slot of the address space; an instruction's guest address is IMAGE_BASE + its ELF address.
IMAGE_SLOT = 0
IMAGE_BASE = base_address(IMAGE_SLOT)

R_ABS64, R_RELATIVE64, R_GLOB_DAT = 3, 13, 18  # https://llvm.org/docs/AMDGPUUsage.html "Relocation Records"
R_ABS32_LO, R_ABS32_HI, R_ABS32 = 1, 2, 6


def load_image(code: CodeObject) -> np.ndarray:
    """The memory image from ELF address 0 on, shape [bytes] uint8; a fresh copy every time. Raises NotACodeObject."""
    with naming_damage(code.path):
        return _place(ELFFile(io.BytesIO(code.data)))


def _place(elf: ELFFile) -> np.ndarray:
    segments = [segment for segment in elf.iter_segments() if segment["p_type"] == "PT_LOAD"]
    image = np.zeros(max(s["p_vaddr"] + s["p_memsz"] for s in segments), np.uint8)
    for segment in segments:
        data = np.frombuffer(segment.data(), np.uint8)
        image[segment["p_vaddr"] : segment["p_vaddr"] + data.size] = data
    _relocate(elf, image)
    return image


def _relocate(elf: ELFFile, image: np.ndarray) -> None:
    for section in elf.iter_sections():
        if not isinstance(section, RelocationSection) or section["sh_type"] != "SHT_RELA" or not section["sh_flags"] & 2:
            continue
        symbols = elf.get_section(section["sh_link"])
        for entry in section.iter_relocations():
            symbol = 0
            if entry["r_info_sym"] and isinstance(symbols, SymbolTableSection):
                symbol = symbols.get_symbol(entry["r_info_sym"])["st_value"]
            _apply(image, entry["r_info_type"], entry["r_offset"], IMAGE_BASE + symbol + entry["r_addend"])


def _apply(image: np.ndarray, kind: int, offset: int, value: int) -> None:
    if kind in (R_ABS64, R_RELATIVE64, R_GLOB_DAT):
        data = struct.pack("<Q", value & (1 << 64) - 1)
    elif kind in (R_ABS32_LO, R_ABS32, R_ABS32_HI):
        data = struct.pack("<I", (value >> 32 if kind == R_ABS32_HI else value) & 0xFFFFFFFF)
    else:
        return
    image[offset : offset + len(data)] = np.frombuffer(data, np.uint8)
