"""Static checks of a kernel's machine code, each naming the source lines concerned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from .codeobject import CodeObject
from .definitions import addresses_registers_at_run_time, undefined_reads
from .effects import Class, classify, register_names
from .limits import LDS_BYTES_PER_CU, WAVE_SIZE, vgpr_limit
from .lines import Frame
from .subject import Subject

ERROR, WARNING, NOTE = "error", "warning", "note"
UNBOUNDED_WORKGROUP = 1024  # what the metadata says where the source has no launch bounds


@dataclass(frozen=True)
class Finding:
    """One thing that a check has to say. Errors are wrong, warnings cost speed or are rarely meant, notes are for reading."""

    check: str
    severity: str
    kernel: str
    message: str
    address: int | None = None
    file: str | None = None
    line: int | None = None

    def to_json(self) -> dict[str, object]:
        """JSON object; `file` is the path that the compiler saw, absent facts are null."""
        return asdict(self)

    def __str__(self) -> str:
        if self.file is not None and self.line is not None:
            place = str(Frame(self.file, self.line))
        else:
            place = self.kernel if self.address is None else f"{self.kernel} at {self.address:#x}"
        return f"{place}: {self.severity}: {self.message} [{self.check}]"


def _finding(subject: Subject, check: str, severity: str, message: str, address: int | None = None) -> Finding:
    frame = subject.code.source_line(address) if address is not None else None
    place = (frame.file, frame.line) if frame else (None, None)
    return Finding(check, severity, subject.kernel.display_name, message, address, *place)


def check(code: CodeObject, kernel: str | None = None) -> list[Finding]:
    """Run every check on one kernel, or on all of a code object. Raises NoSuchKernel, ToolchainMissing."""
    kernels = [code.kernel(kernel)] if kernel else code.kernels
    return [finding for each in kernels for finding in check_kernel(Subject(code, each))]


def check_kernel(subject: Subject) -> Iterator[Finding]:
    for run in CHECKS:
        yield from run(subject)


def undecodable(subject: Subject) -> Iterator[Finding]:
    """Words that gfx950 has no instruction for: other targets' instructions, or data in the way of execution."""
    for inst in subject.reachable:
        if not inst.mnemonic[0].isalpha():
            words = " ".join(f"{word:08x}" for word in inst.words)
            message = f"{words} is no gfx950 instruction; was it assembled for another processor?"
            yield _finding(subject, "unknown-instruction", ERROR, message, inst.address)


def spills(subject: Subject) -> Iterator[Finding]:
    kernel = subject.kernel
    scratch = [inst for inst in subject.reachable if inst.mnemonic.startswith("scratch_")]
    lines = subject.lines_of(scratch)
    where = f"; around {lines}" if lines else ""
    address = scratch[0].address if scratch else None
    if kernel.vgpr_spill_count:
        message = f"{kernel.vgpr_spill_count} VGPRs spilled to scratch memory{where}; fewer live values, or a smaller workgroup"
        yield _finding(subject, "spills", WARNING, message, address)
    elif kernel.scratch_bytes or kernel.descriptor.uses_dynamic_stack:
        size = (
            "a stack of unknown size" if kernel.descriptor.uses_dynamic_stack else f"{kernel.scratch_bytes} bytes a work-item"
        )
        message = f"scratch memory is used, {size}{where}; an array indexed at run time, or a call that was not inlined"
        yield _finding(subject, "scratch", WARNING, message, address)
    if kernel.sgpr_spill_count:
        message = f"{kernel.sgpr_spill_count} SGPRs spilled to lanes of VGPRs; fewer values that are the same for a whole wave"
        yield _finding(subject, "sgpr-spills", NOTE, message)


def launch_bounds(subject: Subject) -> Iterator[Finding]:
    """The workgroup size that a kernel admits limits its registers: 1024 work-items leave 128 VGPRs a lane."""
    kernel = subject.kernel
    limit = vgpr_limit(kernel.max_workgroup_size)
    used = kernel.descriptor.vgpr_count
    unbounded = kernel.max_workgroup_size == UNBOUNDED_WORKGROUP
    if used == limit < vgpr_limit(WAVE_SIZE) and (unbounded or kernel.vgpr_spill_count):
        message = (
            f"workgroups of up to {kernel.max_workgroup_size} work-items cap a lane at {limit} VGPRs, and the kernel is at that"
            f" cap ({used} allocated, {kernel.vgpr_spill_count} spilled); if it runs with fewer, say so with __launch_bounds__"
        )
        yield _finding(subject, "launch-bounds", WARNING, message, kernel.address)


def lds_size(subject: Subject) -> Iterator[Finding]:
    used = subject.kernel.lds_bytes
    if used > LDS_BYTES_PER_CU:
        message = f"{used} bytes of static LDS, but a CU of gfx950 has {LDS_BYTES_PER_CU}; the launch will fail"
        yield _finding(subject, "lds-size", ERROR, message, subject.kernel.address)


def lds_dma_offset(subject: Subject) -> Iterator[Finding]:
    """The immediate offset of an LDS-DMA load is added to the LDS address as well as to the memory address."""
    for inst in subject.reachable:
        offset = inst.modifiers.get("offset", 0)
        if offset and classify(inst) is Class.LDS_DMA:
            message = (
                f"LDS-DMA with immediate offset {offset}: it moves the LDS destination too (M0 + {offset} + lane's share);"
                " keep it 0 and put the distance into the address"
            )
            yield _finding(subject, "lds-dma-offset", WARNING, message, inst.address)


def hazards(subject: Subject) -> Iterator[Finding]:
    at = {inst.address: inst for inst in subject.instructions}
    for hazard in subject.hazards:
        producer, consumer = at[hazard.producer], at[hazard.consumer]
        source = subject.code.source_line(hazard.producer)
        written = f"`{producer.text}`{f' of {source}' if source else ''}"
        message = (
            f"`{consumer.text}` {hazard.rule.text} {hazard.found} wait states after {written}, {hazard.needed} are needed;"
            f" put `s_nop {_nop(hazard.needed - hazard.found)}` between"
        )
        severity = NOTE if hazard.advisory else ERROR
        yield _finding(subject, f"hazard/{hazard.rule.name}", severity, message, hazard.consumer)


def _nop(states: int) -> str:
    """The operand of s_nop for that many wait states; one s_nop gives at most 16."""
    return str(states - 1) if states <= 16 else f"15` and `s_nop {states - 17}"


def undefined(subject: Subject) -> Iterator[Finding]:
    if not subject.flow.exact or addresses_registers_at_run_time(subject.instructions):
        what = "registers" if subject.flow.exact else "jumps"
        message = f"{what} addressed at run time: registers read before they are written were not looked for"
        yield _finding(subject, "undefined-read", NOTE, message, subject.kernel.address)
        return
    for index, mask in undefined_reads(subject.kernel.descriptor, subject.instructions, subject.flow):
        inst = subject.instructions[index]
        message = f"`{inst.text}` reads {register_names(mask)}, which nothing before it writes"
        yield _finding(subject, "undefined-read", ERROR, message, inst.address)


CHECKS: tuple[Callable[[Subject], Iterator[Finding]], ...] = (
    undecodable, spills, launch_bounds, lds_size, lds_dma_offset, hazards, undefined,
)  # fmt: skip
