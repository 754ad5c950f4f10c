"""Packs decoded instructions into the records of native/program.hpp."""

from __future__ import annotations

import ctypes
import re
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

from ..codeobject import CodeObject, Kernel
from ..decode import AGPR_BASE, Instruction, Kind, Operand, decode
from ..effects import Class, classify
from ..flow import control_flow
from ..hazards import find_hazards
from ..mfma import label
from ..report import busy_cycles
from .build import load_library
from .image import IMAGE_BASE

MAX_OPERANDS = 6
UNDECODED = 255
_OPERAND = struct.Struct("<BBBxHxxI")
_HEAD = struct.Struct("<QIIiiiIHBBBBBBBBBBBBBBBBB5x")
RECORD_BYTES = _HEAD.size + MAX_OPERANDS * _OPERAND.size

_FLAG_BITS = {
    "offen": 1, "idxen": 2, "lds": 4, "gds": 8, "sc0": 16, "sc1": 32, "nt": 64, "clamp": 128, "bound_ctrl": 256,
    "glc": 16, "slc": 64, "tfe": 2048,
}  # fmt: skip
_DPP, _SDWA = 512, 1024
_ALL_HALVES = 7
SDWA_DWORD = 6


@dataclass(frozen=True, slots=True)
class Cost:
    """kind: class of the instruction, as in reports; cycles: that its pipe is busy, an estimate; mfma: shape and formats."""

    kind: str
    cycles: int
    mfma: str = ""


class Program:
    """The executable form of a code object's text: `handle` for the executor, `instructions` for messages."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.instructions = list(instructions)
        self._library = load_library()
        names: dict[str, int] = {}
        index = {inst.address: k for k, inst in enumerate(self.instructions)}
        records = b"".join(_pack(inst, names, index) for inst in self.instructions)
        table = (ctypes.c_char_p * len(names))(*(name.encode() for name in names))
        create = self._library.emu_program_create
        create.restype = ctypes.c_void_p
        create.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64]
        self.hazard_texts: list[tuple[int, str]] = []  # wait states needed, what the consumer does
        self._hazards_known: set[str] = set()
        self._lock = threading.Lock()
        self._addresses = frozenset(index)
        self.handle = create(records, len(self.instructions), ctypes.cast(table, ctypes.c_void_p), len(names))

    def begins_at(self, address: int) -> bool:
        """Whether an instruction begins at this address of the code object."""
        return address in self._addresses

    @cached_property
    def costs(self) -> list[Cost]:
        """What one execution of each instruction counts."""
        return [_cost(inst) for inst in self.instructions]

    @cached_property
    def last_registers(self) -> list[tuple[int, int]]:
        """For each instruction the highest v and the highest a register that it names, -1 for none."""
        return [_last_registers(inst) for inst in self.instructions]

    def find_hazards(self, kernel: Kernel) -> None:
        """Tells the executor which pairs of this kernel's instructions lack wait states on some path."""
        with self._lock:
            if kernel.name in self._hazards_known:
                return
            self._hazards_known.add(kernel.name)
            end = kernel.address + kernel.code_bytes
            own = [inst for inst in self.instructions if kernel.address <= inst.address < end]
            index = {inst.address: k for k, inst in enumerate(self.instructions)}
            pairs = [hazard for hazard in find_hazards(own, control_flow(own)) if not hazard.advisory]
            records = [(index[h.producer], index[h.consumer], h.needed) for h in pairs]
            self.hazard_texts += [(h.needed, h.rule.text) for h in pairs]
            packed = b"".join(struct.pack("<iii", *record) for record in records)
            self._library.emu_program_add_hazards(ctypes.c_void_p(self.handle), packed, ctypes.c_uint64(len(records)))

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._library.emu_program_destroy(ctypes.c_void_p(self.handle))

    @cached_property
    def unimplemented(self) -> list[Instruction]:
        """Instructions that would raise UnimplementedOpcode if they were executed."""
        query = self._library.emu_program_unimplemented
        query.restype = ctypes.POINTER(ctypes.c_uint8)
        flags = query(ctypes.c_void_p(self.handle))
        return [inst for k, inst in enumerate(self.instructions) if flags[k]]


_programs: WeakKeyDictionary[CodeObject, Program] = WeakKeyDictionary()


def program_of(code: CodeObject) -> Program:
    """The program of a code object, made once and kept as long as the code object lives."""
    if code not in _programs:
        _programs[code] = Program(decode(code.code))
    return _programs[code]


def kernel_unimplemented(code: CodeObject, kernel: Kernel) -> list[Instruction]:
    """Unimplemented instructions within one kernel's own code."""
    end = kernel.address + kernel.code_bytes
    return [inst for inst in program_of(code).unimplemented if kernel.address <= inst.address < end]


def _cost(inst: Instruction) -> Cost:
    kind = classify(inst)
    return Cost(kind.value, busy_cycles([inst]).get(kind.value, 0), label(inst) if kind is Class.MFMA else "")


def _last_registers(inst: Instruction) -> tuple[int, int]:
    last = [operand.index + operand.words - 1 for operand in inst.operands if operand.kind == Kind.VGPR]
    v = max((index for index in last if index < AGPR_BASE), default=-1)
    a = max((index - AGPR_BASE for index in last if index >= AGPR_BASE), default=-1)
    return v, a


def _pack(inst: Instruction, names: dict[str, int], index: dict[int, int]) -> bytes:
    name = names.setdefault(inst.base, len(names))
    m = inst.modifiers
    flags = sum(bit for flag, bit in _FLAG_BITS.items() if m.get(flag))
    flags |= _DPP if "dpp_ctrl" in m else 0
    flags |= _SDWA if inst.mnemonic.endswith("_sdwa") else 0
    count = UNDECODED if inst.problem or len(inst.operands) > MAX_OPERANDS else len(inst.operands)
    head = _HEAD.pack(
        IMAGE_BASE + inst.address, name, flags, index.get(inst.target, -1) if inst.target is not None else -1,
        m.get("offset", m.get("offset0", 0)), m.get("offset1", 0), inst.words[0], m.get("dpp_ctrl", 0), inst.size, count,
        m.get("neg_lo", 0), m.get("neg_hi", 0), _op_sel(inst), m.get("op_sel_hi", _default_op_sel_hi(inst.base)),
        m.get("omod", 0), m.get("cbsz", 0), m.get("abid", 0), m.get("blgp", m.get("neg", 0)), m.get("bitop3", 0),
        m.get("row_mask", 15), m.get("bank_mask", 15), m.get("dst_sel", SDWA_DWORD), m.get("dst_unused", 0),
        m.get("src0_sel", SDWA_DWORD), m.get("src1_sel", SDWA_DWORD),
    )  # fmt: skip
    operands = [_pack_operand(operand) for operand in inst.operands[:MAX_OPERANDS]]
    return head + b"".join(operands).ljust(MAX_OPERANDS * _OPERAND.size, b"\0")


def _pack_operand(operand: Operand) -> bytes:
    return _OPERAND.pack(operand.kind, operand.words, operand.flags, operand.index, operand.value & 0xFFFFFFFF)


_VOP3P_PREFIX = 0x1A7  # bits 31..23 of the first word
_DESTINATION_HALF = 8


def _op_sel(inst: Instruction) -> int:
    """op_sel as encoded, bits 11..14: where the list leaves out a third source, its last bit still means the destination."""
    value, length = inst.modifiers.get("op_sel", 0), inst.modifiers.get("op_sel_length", 0)
    if length in (2, 3) and inst.words[0] >> 23 != _VOP3P_PREFIX and value >> (length - 1):
        return value & ~(1 << (length - 1)) | _DESTINATION_HALF
    return value


_PACKED = re.compile(r"v_(pk_(?!fmac)|dot\d+_)")


def _default_op_sel_hi(base: str) -> int:
    """Packed operations use the high halves for their high result unless told otherwise; v_fma_mix and MFMA do not."""
    return _ALL_HALVES if _PACKED.match(base) else 0
