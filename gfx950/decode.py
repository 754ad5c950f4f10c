"""Decoder: one line of llvm-objdump's disassembly -> one `Instruction`.

LLVM's own disassembler is the front end; this module turns its text into structured operands and modifiers and never
executes anything. `Instruction.assembly()` prints the structure back in assembler syntax: that the assembler then
gives the very same words is the decoder's main test.

Register numbers are the hardware's: scalar sources as in the ISA document's operand table (0..101 SGPRs, 106 VCC, 124
M0, 126 EXEC, 235.. apertures, 253 SCC), vector registers 0..511 with the accumulation registers a0.. at 256.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from .disassembly import CodeLine

AGPR_BASE = 256


class Kind(IntEnum):
    """What an operand is; the numbers are shared with native/program.hpp."""

    NONE = 0
    VGPR = 1  # index 0..511, a[] at 256
    SGPR = 2  # index as encoded in a scalar source field
    INT = 3  # inline integer -16..64, or an immediate field
    FLOAT = 4  # inline float; value = its binary32 bits
    LITERAL = 5  # 32-bit literal that follows the instruction
    OFF = 6  # an address part that is absent
    SYMBOL = 7  # hwreg(), sendmsg(), ...: value = the encoded field


NEG, ABS, SEXT = 1, 2, 4

SPECIAL_SGPRS = {
    "flat_scratch_lo": (102, 1), "flat_scratch_hi": (103, 1), "flat_scratch": (102, 2),
    "xnack_mask_lo": (104, 1), "xnack_mask_hi": (105, 1), "xnack_mask": (104, 2),
    "vcc_lo": (106, 1), "vcc_hi": (107, 1), "vcc": (106, 2),
    "m0": (124, 1), "exec_lo": (126, 1), "exec_hi": (127, 1), "exec": (126, 2),
    "src_shared_base": (235, 2), "src_shared_limit": (236, 2),
    "src_private_base": (237, 2), "src_private_limit": (238, 2), "src_pops_exiting_wave_id": (239, 1),
    "src_vccz": (251, 1), "src_execz": (252, 1), "src_scc": (253, 1),
    "vccz": (251, 1), "execz": (252, 1), "scc": (253, 1), "src_lds_direct": (254, 1), "lds_direct": (254, 1),
}  # fmt: skip
TTMP_BASE = 108

INLINE_FLOATS = {
    "0.5": 0x3F000000, "-0.5": 0xBF000000, "1.0": 0x3F800000, "-1.0": 0xBF800000, "2.0": 0x40000000,
    "-2.0": 0xC0000000, "4.0": 0x40800000, "-4.0": 0xC0800000, "0.15915494": 0x3E22F983,
    "0.15915494309189532": 0x3E22F983, "0.1592": 0x3E22F983, "0.15915494309189535": 0x3E22F983,
}  # fmt: skip

# Control values of DPP as the DPP word encodes them (CDNA3 ISA, "DPP").
DPP_SHIFTS = {"row_shl": 0x100, "row_shr": 0x110, "row_ror": 0x120, "row_newbcast": 0x150, "row_share": 0x150}
DPP_FIXED = {
    "wave_shl:1": 0x130, "wave_rol:1": 0x134, "wave_shr:1": 0x138, "wave_ror:1": 0x13C,
    "row_mirror": 0x140, "row_half_mirror": 0x141, "row_bcast:15": 0x142, "row_bcast:31": 0x143,
}  # fmt: skip
SDWA_SELECTS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
SDWA_UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")
OUTPUT_MODIFIERS = {"mul:2": 1, "mul:4": 2, "div:2": 3}
FLAGS = (
    "offen", "idxen", "lds", "gds", "sc0", "sc1", "nt", "clamp", "bound_ctrl", "glc", "slc", "tfe",
)  # fmt: skip
LIST_MODIFIERS = ("op_sel", "op_sel_hi", "neg_lo", "neg_hi", "neg")
NUMBER_MODIFIERS = ("offset", "offset0", "offset1", "row_mask", "bank_mask", "cbsz", "abid", "blgp", "bitop3", "format")


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand: `words` 32-bit registers from `index` on, or a constant `value`; `flags` = NEG | ABS | SEXT."""

    kind: Kind
    index: int = 0
    words: int = 1
    value: int = 0
    flags: int = 0
    text: str = ""  # as disassembled, without the flags

    def assembly(self) -> str:
        """The operand in assembler syntax."""
        text = f"|{self.text}|" if self.flags & ABS else self.text
        text = f"sext({text})" if self.flags & SEXT else text
        return f"-{text}" if self.flags & NEG else text


@dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction.

    `mnemonic` is LLVM's, with its _e32/_e64/_dpp/_sdwa suffix; `modifiers` maps a modifier's name to its number (flags:
    1; lists: bit i = entry i); `target` is the address a direct branch goes to; `problem` is set if the text holds
    something this decoder does not know.
    """

    address: int
    mnemonic: str
    operands: tuple[Operand, ...]
    modifiers: dict[str, int] = field(default_factory=dict)
    words: tuple[int, ...] = ()
    target: int | None = None
    text: str = ""
    problem: str = ""

    @property
    def size(self) -> int:
        """Bytes of the encoding."""
        return 4 * len(self.words)

    @property
    def base(self) -> str:
        """Mnemonic without the encoding's suffix."""
        return re.sub(r"_(e32|e64|e64_dpp|sdwa|dpp)$", "", self.mnemonic)

    def assembly(self) -> str:
        """This instruction in assembler syntax, built from the decoded fields alone."""
        operands = ", ".join(operand.assembly() for operand in self.operands)
        return " ".join(part for part in (self.mnemonic, operands, *_modifier_texts(self)) if part)


def decode(lines: Iterable[CodeLine]) -> list[Instruction]:
    """Instructions of disassembled code, in the same order."""
    return [decode_one(line.mnemonic, line.operands, line.address, line.words) for line in lines]


def decode_one(mnemonic: str, arguments: str, address: int, words: tuple[int, ...]) -> Instruction:
    """One instruction from its mnemonic, operand text, address and encoding words."""
    text = f"{mnemonic} {arguments}".strip()
    try:
        operands, modifiers = _parse_arguments(mnemonic, arguments, words)
    except ValueError as error:
        return Instruction(address, mnemonic, (), {}, words, None, text, str(error))
    target = None
    if re.match(r"s_(cbranch_(?!g_fork|join)|branch|call_b64)", mnemonic):
        target = address + 4 + 4 * _signed16(words[0])
    return Instruction(address, mnemonic, operands, modifiers, words, target, text)


def _signed16(word: int) -> int:
    return ((word & 0xFFFF) ^ 0x8000) - 0x8000


# --- arguments ---------------------------------------------------------------------------------------------------------

_SOPP_FIELD = re.compile(
    r"s_(nop|waitcnt|waitcnt_depctr|sendmsg|sendmsghalt|sleep|setprio|sethalt|setkill|branch|cbranch_\w+|trap|icache_inv|endpgm|inst_prefetch"
    r"|incperflevel|decperflevel|set_gpr_idx_mode|ttracedata_imm|barrier|wakeup|endpgm_saved|endpgm_ordered_ps_done)$"
)


def _parse_arguments(mnemonic: str, arguments: str, words: tuple[int, ...]) -> tuple[tuple[Operand, ...], dict[str, int]]:
    if _SOPP_FIELD.match(mnemonic) and "fork" not in mnemonic and mnemonic != "s_cbranch_join":
        return _sopp_operands(mnemonic, arguments, words), {}
    pieces, tail = _split(arguments)
    operands = [_operand(piece, mnemonic, words) for piece in pieces]
    modifiers: dict[str, int] = {}
    for token in tail:
        _modifier(token, modifiers, words)
    return tuple(operands), modifiers


def _sopp_operands(mnemonic: str, arguments: str, words: tuple[int, ...]) -> tuple[Operand, ...]:
    if not arguments.strip():
        return ()
    field_value = words[0] & 0xFFFF
    text = f"0x{field_value:x}" if mnemonic != "s_set_gpr_idx_mode" else str(field_value)
    return (Operand(Kind.SYMBOL, value=field_value, text=text),)


def _split(arguments: str) -> tuple[list[str], list[str]]:
    """Comma-separated operands, then space-separated modifiers; brackets nest."""
    pieces, tail, depth, piece = [], [], 0, ""
    in_tail = False
    for char in arguments.split("<")[0].strip() + "\n":
        depth += (char in "([") - (char in ")]")
        if depth == 0 and char in ", \n":
            if piece:
                in_tail = in_tail or _is_modifier(piece)
                (tail if in_tail else pieces).append(piece)
            piece = ""
        else:
            piece += char
    return pieces, tail


_DPP_NAMES = ("quad_perm", *DPP_SHIFTS, *(text.split(":")[0] for text in DPP_FIXED))
_SDWA_NAMES = ("dst_sel", "dst_unused", "src0_sel", "src1_sel")
_MODIFIER_NAMES = frozenset((*FLAGS, *LIST_MODIFIERS, *NUMBER_MODIFIERS, *_DPP_NAMES, *_SDWA_NAMES, "mul", "div"))


def _is_modifier(piece: str) -> bool:
    return piece.split(":")[0] in _MODIFIER_NAMES


_REGISTER = re.compile(r"(v|s|a|ttmp)(?:(\d+)|\[(\d+):(\d+)\])$")


def _operand(text: str, mnemonic: str, words: tuple[int, ...]) -> Operand:
    flags = 0
    if text.startswith("-") and not re.match(r"-[\d.]", text):
        flags, text = NEG, text[1:]
    if match := re.fullmatch(r"(neg|abs|sext)\((.*)\)", text):
        inner = _operand(match[2], mnemonic, words)
        flags |= {"neg": NEG, "abs": ABS, "sext": SEXT}[match[1]] | inner.flags
        return Operand(inner.kind, inner.index, inner.words, inner.value, flags, inner.text)
    if text.startswith("|"):
        flags, text = flags | ABS, text.strip("|")
    kind, index, count, value, shown = _value(text, mnemonic, words)
    return Operand(kind, index, count, value, flags, shown)


def _value(text: str, mnemonic: str, words: tuple[int, ...]) -> tuple[Kind, int, int, int, str]:
    if match := _REGISTER.match(text):
        first = int(match[2] or match[3])
        count = 1 if match[2] else int(match[4]) - first + 1
        base = {"v": 0, "s": 0, "a": AGPR_BASE, "ttmp": TTMP_BASE}[match[1]]
        kind = Kind.VGPR if match[1] in "va" else Kind.SGPR
        return kind, base + first, count, 0, text
    if text in SPECIAL_SGPRS:
        index, count = SPECIAL_SGPRS[text]
        return Kind.SGPR, index, count, 0, text
    if text in INLINE_FLOATS:
        return Kind.FLOAT, 0, 1, INLINE_FLOATS[text], text
    if text == "off":
        return Kind.OFF, 0, 0, 0, text
    if match := re.match(r"(hwreg|sendmsg|gpr_idx)\(", text):
        value = (words[0] >> 8 & 0xFF) if match[1] == "gpr_idx" else words[0] & 0xFFFF
        return Kind.SYMBOL, 0, 1, value, f"0x{value:x}"
    if match := re.fullmatch(r"(?:lit\()?(-?0x[0-9a-fA-F]+)\)?", text):
        return Kind.LITERAL, 0, 1, int(match[1], 16) & 0xFFFFFFFF, text
    if mnemonic == "s_call_b64":  # the disassembler may print a label
        return Kind.SYMBOL, 0, 1, words[0] & 0xFFFF, str(_signed16(words[0]))
    if re.fullmatch(r"-?\d+", text):
        return Kind.INT, 0, 1, int(text) & 0xFFFFFFFF, text
    raise ValueError(f"operand {text!r} of {mnemonic} is not known to the decoder")


# --- modifiers ---------------------------------------------------------------------------------------------------------


def _modifier(token: str, out: dict[str, int], words: tuple[int, ...]) -> None:
    name, _, value = token.partition(":")
    if name in FLAGS:
        out[name] = 1
    elif name == "offset" and value.startswith("swizzle"):
        out["offset"] = words[0] & 0xFFFF
    elif name in NUMBER_MODIFIERS:
        out[name] = int(value, 0) if not value.startswith("[") else _raise(token)
    elif name in LIST_MODIFIERS:
        out[name] = sum(int(bit) << i for i, bit in enumerate(value.strip("[]").split(",")))
        out[f"{name}_length"] = value.count(",") + 1
    elif token in OUTPUT_MODIFIERS:
        out["omod"] = OUTPUT_MODIFIERS[token]
    elif name in ("dst_sel", "src0_sel", "src1_sel"):
        out[name] = SDWA_SELECTS.index(value)
    elif name == "dst_unused":
        out[name] = SDWA_UNUSED.index(value)
    else:
        out["dpp_ctrl"] = _dpp_control(token)


def _raise(token: str) -> int:
    raise ValueError(f"modifier {token!r} is not known to the decoder")


def _dpp_control(token: str) -> int:
    name, _, value = token.partition(":")
    if token in DPP_FIXED:
        return DPP_FIXED[token]
    if name in DPP_SHIFTS:
        return DPP_SHIFTS[name] + int(value)
    if name == "quad_perm":
        return sum(int(lane) << 2 * i for i, lane in enumerate(value.strip("[]").split(",")))
    return _raise(token)


def _dpp_text(control: int) -> str:
    if control < 0x100:
        return "quad_perm:[" + ",".join(str(control >> 2 * i & 3) for i in range(4)) + "]"
    for text, code in DPP_FIXED.items():
        if code == control:
            return text
    name = next(name for name, code in DPP_SHIFTS.items() if code == control & 0xFF0)
    return f"{name}:{control & 15}"


def _modifier_texts(inst: Instruction) -> Iterator[str]:
    """Modifiers in the order that the assembler prints them."""
    for name, value in inst.modifiers.items():
        if name in FLAGS:
            yield "bound_ctrl:1" if name == "bound_ctrl" else name
        elif name in LIST_MODIFIERS:
            length = inst.modifiers[f"{name}_length"]
            yield f"{name}:[" + ",".join(str(value >> i & 1) for i in range(length)) + "]"
        elif name in ("row_mask", "bank_mask", "bitop3"):
            yield f"{name}:0x{value:x}"
        elif name in NUMBER_MODIFIERS:
            yield f"{name}:{value}"
        elif name == "omod":
            yield next(text for text, code in OUTPUT_MODIFIERS.items() if code == value)
        elif name in ("dst_sel", "src0_sel", "src1_sel"):
            yield f"{name}:{SDWA_SELECTS[value]}"
        elif name == "dst_unused":
            yield f"{name}:{SDWA_UNUSED[value]}"
        elif name == "dpp_ctrl":
            yield _dpp_text(value)
