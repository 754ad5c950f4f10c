"""Machine code to text, by LLVM's own disassembler: the one decoder that knows every gfx950 encoding."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from .tools import find_tool


@dataclass(frozen=True)
class CodeLine:
    """One instruction: `mnemonic operands` as llvm-objdump prints it, at a virtual address, with its 32-bit words."""

    address: int
    mnemonic: str
    operands: str
    words: tuple[int, ...]
    symbol: str

    @property
    def size_bytes(self) -> int:
        return 4 * len(self.words)

    @property
    def text(self) -> str:
        return f"{self.mnemonic} {self.operands}".rstrip()


_SYMBOL = re.compile(r"([0-9a-f]{16}) <(.+)>:$")
_INSTRUCTION = re.compile(r"\t(\S+)(?: (.*?))?\s*// ([0-9A-F]{12}): ((?:[0-9A-F]{8} ?)+)(?:<.*>)?$")


def disassemble(elf: bytes) -> Iterator[CodeLine]:
    """Instructions of every executable section of a gfx950 ELF, in address order. Raises ToolchainMissing, ValueError."""
    tool = find_tool("llvm-objdump", "it disassembles gfx950 machine code, which disasm, check and emulation need")
    with tempfile.NamedTemporaryFile(suffix=".hsaco") as file:
        file.write(elf)
        file.flush()
        command = [*tool.command, "-d", "--mcpu=gfx950", file.name]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise ValueError(f"llvm-objdump refuses it: {reason}")
    yield from parse_listing(done.stdout)


def parse_listing(listing: str) -> Iterator[CodeLine]:
    symbol = ""
    for line in listing.splitlines():
        if found := _INSTRUCTION.match(line):
            mnemonic, operands, address, words = found.groups()
            encoding = tuple(int(word, 16) for word in words.split())
            yield CodeLine(int(address, 16), mnemonic, operands or "", encoding, symbol)
        elif found := _SYMBOL.match(line):
            symbol = found.group(2)
