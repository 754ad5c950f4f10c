"""Every gfx950 instruction that LLVM's disassembler knows, found by asking it about every opcode of every encoding.

Encodings: CDNA3 ISA document, chapter "Microcode Formats"; gfx950's additions follow the same formats.
"""

from __future__ import annotations

import itertools
import random
import subprocess
from functools import lru_cache

from gfx950.disassembly import CodeLine, parse_listing
from gfx950.tools import find_tool

TARGET = ("-triple=amdgcn-amd-amdhsa", "-mcpu=gfx950")
VARIANTS = 6


def _words(rng: random.Random):
    """(words of) one candidate per opcode: registers even, so that 64-bit operands are aligned."""
    v = lambda: 2 * rng.randrange(0, 40)  # noqa: E731 - a register number
    s = lambda: 4 * rng.randrange(0, 20)  # noqa: E731
    flag = lambda share=0.25: rng.random() < share  # noqa: E731
    vs = lambda: 256 + v()  # noqa: E731
    for op in range(256):
        yield [0xBE800000 | s() << 16 | op << 8 | s()]  # SOP1
        yield [0x7E000000 | v() << 17 | op << 9 | vs()]  # VOP1
        yield [0x7C000000 | op << 17 | v() << 9 | vs()]  # VOPC
        yield [0xC0000000 | op << 18 | s() << 6 | s() // 2 | flag(0.7) << 17, 4 * rng.randrange(64)]  # SMEM
        yield [0xD8000000 | op << 17 | (flag() << 4) | 0x10, 0, 0][:2]  # DS without data
        yield [0xD8000000 | op << 17 | 0x10, v() << 8 | v()]
        yield [0xD8000000 | op << 17 | 0x10, v() << 16 | v() << 8 | v()]
        yield [0xD8000000 | op << 17 | 0x10, v() << 24 | v()]
        yield [0xD8000000 | op << 17 | 0x10, v() << 24 | v() << 8 | v()]
        yield [0xD8000000 | op << 17 | 0x10, v() << 24 | v() << 16 | v() << 8 | v()]
        yield [0xD8000000 | op << 17 | 0x10, v() << 24]
    for op in range(128):
        yield [0x80000000 | op << 23 | s() << 16 | s() << 8 | s()]  # SOP2
        yield [0xBF000000 | op << 16 | s() << 8 | s()]  # SOPC
        yield [0xBF800000 | op << 16 | rng.choice((0, 1, 0x0F70))]  # SOPP
        for segment, address in itertools.product(range(3), (0x7F, s())):
            head = 0xDC000000 | op << 18 | segment << 14 | flag() << 17 | flag() << 25
            yield [head | flag(0.5) << 16, v() << 24 | address << 16 | v() << 8 | v()]
            yield [head, address << 16 | v() << 8 | v()]
            yield [head | flag(0.5) << 13, address << 16 | v()]
        mubuf = 0xE0000000 | op << 18 | rng.choice((1, 2, 3)) << 12 | rng.randrange(4096) * flag(0.5)
        yield [mubuf | flag() << 14, rng.randrange(8) << 24 | s() // 4 << 16 | v() << 8 | v()]
        yield [mubuf | 1 << 16, 0x80 << 24 | s() // 4 << 16 | v()]
        packed = 0xD3800000 | op << 16 | v()
        yield [packed | 1 << 14, 0x18000000 | vs() | vs() << 9 | vs() << 18]
        yield [packed, vs() | vs() << 9 | vs() << 18]
        formats = rng.randrange(5) << 8, rng.randrange(5) << 29
        scaled = packed | 0x800 | formats[0], vs() | vs() << 9 | vs() << 18 | formats[1]
        yield [0xD3AC0000, vs() | vs() << 9, *scaled]  # scaled MFMA: its first half loads the scales
    for op in range(1024):
        yield [0xD0000000 | op << 16 | v(), vs() | vs() << 9 | vs() << 18]  # VOP3
        yield [0xD0000000 | op << 16 | s() << 8 | v(), vs() | vs() << 9 | vs() << 18]
        yield [0xD0000000 | op << 16 | s(), vs() | vs() << 9 | 106 << 18]
        yield [0xD0000000 | op << 16 | v(), vs() | s() << 9]
    for op in range(64):
        yield [op << 25 | v() << 17 | v() << 9 | vs()]  # VOP2
        yield [op << 25 | v() << 17 | v() << 9 | vs(), 0x12345678]
        yield [op << 25 | v() << 17 | v() << 9 | 249, 0x06060600 | v()]  # SDWA
        yield [op << 25 | v() << 17 | v() << 9 | 250, 0xFF000100 | v() | rng.randrange(1, 16) << 8]  # DPP
    for op in range(256):
        yield [0x7E000000 | v() << 17 | op << 9 | 249, 0x06060600 | v()]
        yield [0x7E000000 | v() << 17 | op << 9 | 250, 0xFF000100 | v() | rng.randrange(1, 16) << 8]
    for op in range(32):
        yield [0xB0000000 | op << 23 | s() << 16 | 0x1801]  # SOPK
        yield [0xB0000000 | op << 23 | 0x1801, 0x12345678]
    for op in range(16):
        yield [0xE8000000 | op << 15 | 1 << 19 | 1 << 12, 0x80 << 24 | s() // 4 << 16 | v() << 8 | v()]  # MTBUF


def _disassemble(candidates: list[list[int]]) -> list[str]:
    tool = find_tool("llvm-mc", "it lists the instructions of gfx950")
    lines = (" ".join(f"0x{byte:02x}" for word in words for byte in word.to_bytes(4, "little")) for words in candidates)
    command = [*tool.command, "-disassemble", *TARGET]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True)
    return [line.strip() for line in done.stdout.splitlines() if line.startswith("\t") and "nvalid" not in line]


def assemble(texts: list[str], folder) -> tuple[list[CodeLine | None], str]:
    """Each text assembled and disassembled again (None where the assembler refuses), and the assembler's messages."""
    mc, objdump = find_tool("llvm-mc", "it assembles"), find_tool("llvm-objdump", "it disassembles")
    output = folder / "assembled.o"
    refused, messages = set(), ""
    while True:
        body = "\n".join("s_nop 77" if k in refused else text for k, text in enumerate(texts)) + "\n"
        done = subprocess.run(
            [*mc.command, *TARGET, "-filetype=obj", "-o", str(output)], input=body, capture_output=True, text=True
        )
        if not done.returncode:
            break
        messages += done.stderr
        bad = {int(line.split(":")[1]) - 1 for line in done.stderr.splitlines() if ": error:" in line}
        if not bad - refused:
            raise RuntimeError(done.stderr[:1000])
        refused |= bad
    listing = subprocess.run([*objdump.command, "-d", "--mcpu=gfx950", str(output)], capture_output=True, text=True, check=True)
    lines = list(parse_listing(listing.stdout))
    assert len(lines) == len(texts)
    return [None if k in refused else line for k, line in enumerate(lines)], messages


@lru_cache(maxsize=1)
def examples() -> dict[str, tuple[str, ...]]:
    """Mnemonic -> a few example texts of every gfx950 instruction."""
    rng = random.Random(950)
    found: dict[str, dict[str, None]] = {}
    for _ in range(VARIANTS):
        for text in _disassemble(list(_words(rng))):
            mnemonic = text.split()[0]
            if not mnemonic.startswith("."):
                found.setdefault(mnemonic, {})[text] = None
    return {mnemonic: tuple(texts) for mnemonic, texts in sorted(found.items())}
