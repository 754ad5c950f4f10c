"""LLVM's own account of a compiled kernel: every instruction's registers, from the last machine IR before it is printed."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from gfx950.decode import Instruction, decode
from gfx950.disassembly import disassemble
from gfx950.effects import EXEC, M0, SCC, VCC, sgpr, vgpr
from gfx950.tools import find_tool

META = re.compile(r"(KILL|IMPLICIT_DEF|SCHED_\w+|WAVE_BARRIER|CFI_\w+|DBG_\w+|ATOMIC_FENCE|BUNDLE|SI_MASKED_UNREACHABLE)\b")
SPECIAL = {
    "vcc": VCC, "vcc_lo": sgpr(106), "vcc_hi": sgpr(107), "exec": EXEC, "exec_lo": sgpr(126), "exec_hi": sgpr(127),
    "scc": SCC, "m0": M0,
}  # fmt: skip
CHANGES_STATE = VCC | EXEC | SCC | M0


@dataclass(frozen=True)
class MachineInstr:
    """Register masks as in gfx950.effects. Implicit operands that only track liveness are left out."""

    opcode: str
    defs: int
    uses: int
    text: str


def compile_both(ir: str, folder: Path) -> tuple[list[MachineInstr], list[Instruction]]:
    """One LLVM IR module as machine IR and as disassembled machine code, in the same order."""
    llc = [*find_tool("llc", "tests compare with LLVM's machine IR").command, "-mcpu=gfx950", "-mtriple=amdgcn-amd-amdhsa"]
    (folder / "k.ll").write_text(ir)
    subprocess.run([*llc, "k.ll", "-o", "k.mir", "-stop-after=branch-relaxation"], check=True, cwd=folder)
    subprocess.run([*llc, "k.ll", "-o", "k.o", "-filetype=obj"], check=True, cwd=folder)
    code = decode(disassemble((folder / "k.o").read_bytes()))
    return parse((folder / "k.mir").read_text()), code


def parse(text: str) -> list[MachineInstr]:
    found = []
    for line in text.splitlines():
        line = line.strip().removesuffix("{").strip()
        is_code = re.match(r"(\$|[a-z-]+ +(\$|[a-z-]+ |[A-Z])|[A-Z][A-Z0-9]*_\w+)", line)
        instr = _instruction(line.split(" :: ")[0].split(", debug-location")[0]) if is_code else None
        found += [instr] if instr else []
    return found


def _instruction(line: str) -> MachineInstr | None:
    left, equals, right = line.partition(" = ")
    body = right if equals else line
    opcode = re.search(r"\b[A-Z][A-Z0-9]*_\w+", body)
    if opcode is None or META.match(opcode[0]):
        return None
    defs, uses = (_registers(left) if equals else 0), 0
    for operand in body[opcode.end() :].split(","):
        mask = _registers(operand)
        if "implicit" in operand:
            mask &= CHANGES_STATE
        if "implicit-def" in operand or " def " in f" {operand}":
            defs |= mask
        else:
            uses |= mask
    return MachineInstr(opcode[0], defs, uses, line)


def _registers(text: str) -> int:
    mask = 0
    for name in re.findall(r"\$(\w+)", text):
        if name in SPECIAL:
            mask |= SPECIAL[name]
            continue
        for kind, number in re.findall(r"(vgpr|agpr|sgpr)(\d+)", name):
            mask |= sgpr(int(number)) if kind == "sgpr" else vgpr(int(number) + (256 if kind == "agpr" else 0))
    return mask
