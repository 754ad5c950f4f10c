"""What a launch found wrong, in words."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from ..codeobject import CodeObject, Kernel
from .image import IMAGE_BASE
from .program import Program

# native/findings.hpp, FindingKind, in the same order.
KINDS = (
    "unimplemented", "out-of-bounds", "read-only-store", "lds-out-of-bounds", "misaligned", "in-flight-read",
    "in-flight-write", "poison-address", "poison-branch", "poison-exec", "poison-store", "poison-scalar", "lds-race",
    "lds-dma-in-flight", "hazard", "runaway", "bad-pc", "trap", "register-range", "scratch-out-of-bounds", "unsupported",
    "inactive-lane",
)  # fmt: skip

VGPR_FILE, AGPR_BASE = 512, 256
SPECIAL = {106: "vcc_lo", 107: "vcc_hi", 124: "m0", 126: "exec_lo", 127: "exec_hi"}
UNSUPPORTED = {
    2000: "a swizzled buffer resource or one with add_tid_enable",
    2001: "an atomic on a generic address that points into LDS or scratch",
}


class NativeFinding(ctypes.Structure):
    """native/findings.hpp, Finding."""

    _fields_ = [
        ("kind", ctypes.c_uint32), ("workgroup", ctypes.c_uint32 * 3), ("wave", ctypes.c_int32), ("lane", ctypes.c_int32),
        ("inst", ctypes.c_int32), ("other_inst", ctypes.c_int32), ("other_wave", ctypes.c_int32), ("buffer", ctypes.c_int32),
        ("address", ctypes.c_uint64), ("detail", ctypes.c_int64), ("count", ctypes.c_uint64),
    ]  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong (or cannot be emulated), at one instruction; `count` = how often it happened.

    pc: address within the code object. line: source position "file:line" or "". other_pc, other_line: the second site of a
    race or of a missing wait. lane -1: no single lane.
    """

    kind: str
    message: str
    kernel: str
    pc: int
    instruction: str
    line: str
    workgroup: tuple[int, int, int]
    wave: int
    lane: int
    address: int
    count: int
    other_pc: int | None = None
    other_line: str = ""
    buffer: str = ""

    def __str__(self) -> str:
        where = f"{self.kernel} at {self.pc:#x}" + (f" ({self.line})" if self.line else "")
        who = f"workgroup {self.workgroup}, wave {self.wave}" + (f", lane {self.lane}" if self.lane >= 0 else "")
        times = f" [{self.count} times]" if self.count > 1 else ""
        return f"{self.kind}: {self.message}; in {where}: `{self.instruction}`, {who}{times}"


class Translator:
    """Turns the executor's records into Findings."""

    def __init__(self, code: CodeObject, kernel: Kernel, program: Program, buffers: Sequence[tuple[str, int, int]]) -> None:
        self._code, self._kernel, self._program = code, kernel, program
        self._buffers = buffers  # name, base address, bytes

    def beyond_registers(self, executed: Sequence[int], vgprs: int, agprs: int) -> list[Finding]:
        """Executed instructions that use v or a registers beyond those allocated: on hardware they belong to nobody.

        In a kernel that uses a registers, the v registers end where those begin.
        """
        uses_agprs = any(executed[index] and last_a >= 0 for index, (_, last_a) in enumerate(self._program.last_registers))
        vgprs = min(vgprs, self._kernel.descriptor.accum_offset) if uses_agprs else vgprs
        found = []
        for index, (last_v, last_a) in enumerate(self._program.last_registers):
            if executed[index] and (last_v >= vgprs or last_a >= agprs):
                bad = last_v if last_v >= vgprs else AGPR_BASE + last_a
                kind, nowhere = KINDS.index("register-range"), (ctypes.c_uint32 * 3)()
                found.append(self(NativeFinding(kind, nowhere, -1, -1, index, -1, -1, -1, 0, bad, executed[index])))
        return found

    def __call__(self, raw: NativeFinding) -> Finding:
        kind = KINDS[raw.kind]
        inst, other = self._instruction(raw.inst), self._instruction(raw.other_inst)
        return Finding(
            kind=kind,
            message=self._message(kind, raw),
            kernel=self._kernel.display_name,
            pc=inst.address if inst else 0,
            instruction=inst.text if inst else "(no instruction)",
            line=self._line(raw.inst),
            workgroup=tuple(raw.workgroup),
            wave=raw.wave,
            lane=raw.lane,
            address=raw.address,
            count=raw.count,
            other_pc=other.address if other else None,
            other_line=self._line(raw.other_inst),
            buffer=self._buffers[raw.buffer][0] if raw.buffer >= 0 else "",
        )

    def _instruction(self, index: int):
        return self._program.instructions[index] if 0 <= index < len(self._program.instructions) else None

    def _line(self, index: int) -> str:
        inst = self._instruction(index)
        frame = self._code.source_line(inst.address) if inst else None
        return str(frame) if frame else ""

    def _site(self, index: int) -> str:
        inst = self._instruction(index)
        if inst is None:
            return "an instruction that is not known"
        line = self._line(index)
        return f"`{inst.text}` at {inst.address:#x}" + (f" ({line})" if line else "")

    def _message(self, kind: str, raw: NativeFinding) -> str:
        return getattr(self, "_" + kind.replace("-", "_"))(raw)

    def _unimplemented(self, raw: NativeFinding) -> str:
        inst = self._instruction(raw.inst)
        if inst is None:
            return "the emulator does not implement this"
        return f"the emulator does not implement {inst.mnemonic}" + (f" ({inst.problem})" if inst.problem else "")

    def _out_of_bounds(self, raw: NativeFinding) -> str:
        access = "store" if raw.detail < 0 else "load"
        if raw.buffer < 0:
            return f"{access} of {abs(raw.detail)} bytes at {raw.address:#x}, far from every buffer"
        name, base, size = self._buffers[raw.buffer]
        return f"{access} of {abs(raw.detail)} bytes at byte {raw.address - base} of {name}, which has {size} bytes"

    def _read_only_store(self, raw: NativeFinding) -> str:
        return f"store to the read-only buffer {self._buffers[raw.buffer][0]}"

    def _lds_out_of_bounds(self, raw: NativeFinding) -> str:
        return f"{raw.detail} bytes at LDS byte {raw.address}, beyond the workgroup's LDS"

    def _scratch_out_of_bounds(self, raw: NativeFinding) -> str:
        return f"{raw.detail} bytes at scratch byte {raw.address}, beyond the lane's private segment"

    def _misaligned(self, raw: NativeFinding) -> str:
        return f"atomic of {abs(raw.detail)} bytes at the unaligned address {raw.address:#x}"

    def _in_flight_read(self, raw: NativeFinding) -> str:
        return f"reads {register_name(raw.detail)} before the wait that covers {self._site(raw.other_inst)}"

    def _in_flight_write(self, raw: NativeFinding) -> str:
        return f"overwrites {register_name(raw.detail)} before the wait that covers {self._site(raw.other_inst)}"

    def _poison_address(self, raw: NativeFinding) -> str:
        return "an address is computed from a value that was never set"

    def _poison_branch(self, raw: NativeFinding) -> str:
        return "a branch depends on a value that was never set"

    def _poison_exec(self, raw: NativeFinding) -> str:
        return "EXEC depends on a value that was never set"

    def _poison_store(self, raw: NativeFinding) -> str:
        return f"stores {register_name(raw.detail)}, which holds a value that was never set"

    def _poison_scalar(self, raw: NativeFinding) -> str:
        return "M0, a lane number or a mode depends on a value that was never set"

    def _lds_race(self, raw: NativeFinding) -> str:
        verb, other_verb = ("writes" if raw.detail & 2 else "reads"), ("wrote" if raw.detail & 1 else "read")
        other = f"wave {raw.other_wave}" if raw.other_wave >= 0 else "another wave"
        site = self._site(raw.other_inst)
        return f"{verb} LDS byte {raw.address}, which {other} {other_verb} with no barrier between: {site}"

    def _lds_dma_in_flight(self, raw: NativeFinding) -> str:
        return f"touches LDS byte {raw.address} before the wait that covers {self._site(raw.other_inst)}"

    def _hazard(self, raw: NativeFinding) -> str:
        needed, text = self._program.hazard_texts[raw.detail]
        return f"{text}: {raw.address} wait states after {self._site(raw.other_inst)}, {needed} needed"

    def _runaway(self, raw: NativeFinding) -> str:
        return f"the wave has spent its instructions: an endless loop around {self._site(raw.other_inst)}, or raise budget="

    def _bad_pc(self, raw: NativeFinding) -> str:
        return f"jump to {raw.address - IMAGE_BASE:#x}, where no instruction of the code object starts"

    def _trap(self, raw: NativeFinding) -> str:
        return f"trap {raw.detail}: the kernel stopped itself (an assertion or an unreachable place)"

    def _register_range(self, raw: NativeFinding) -> str:
        return f"{register_name(raw.detail)} is beyond the registers that the kernel's descriptor allocates"

    def _inactive_lane(self, raw: NativeFinding) -> str:
        taken = f"takes the value of lane {raw.detail}, which is switched off here: it gets 0"
        return f"{taken}, which {self._site(raw.other_inst)} uses; shuffle outside the divergent branch"

    def _unsupported(self, raw: NativeFinding) -> str:
        if 1000 <= raw.detail < 2000:
            return f"hardware register {raw.detail - 1000} is not emulated"
        return UNSUPPORTED.get(raw.detail, f"special source register {raw.detail} is not emulated")


def register_name(number: int) -> str:
    """v0.., a0.. (from 256), s0.. (from 512), as findings number them."""
    if number >= VGPR_FILE:
        return SPECIAL.get(number - VGPR_FILE, f"s{number - VGPR_FILE}")
    return f"a{number - AGPR_BASE}" if number >= AGPR_BASE else f"v{number}"
