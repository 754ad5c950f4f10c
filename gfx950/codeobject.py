"""Code objects: the linked ELF file that a GPU loads, its kernels, their arguments and resources, its machine code.

Formats: https://llvm.org/docs/AMDGPUUsage.html, sections "ELF Code Object", "Code Object V3-V6 Metadata".
"""

from __future__ import annotations

import ctypes
import io
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

import msgpack
from elftools.common.exceptions import ELFError, ELFParseError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection

from . import bundle, descriptor, disassembly, lines
from .descriptor import KernelDescriptor
from .disassembly import CodeLine
from .errors import NoSuchKernel, NotACodeObject, SourceMissing, Truncated, WrongTarget
from .lines import Frame, LineTable

ARCH = "gfx950"
EM_AMDGPU = 224
EF_AMDGPU_MACH = 0xFF
MACH_NAMES = {0x2F: "gfx906", 0x30: "gfx908", 0x3F: "gfx90a", 0x40: "gfx940", 0x4B: "gfx941", 0x4C: "gfx942", 0x4F: ARCH}
NT_AMDGPU_METADATA = 32


@dataclass(frozen=True)
class KernelArg:
    """One kernel argument as the metadata describes it; offset and size in bytes within the kernarg segment.

    value_kind: global_buffer, by_value, dynamic_shared_pointer, hidden_block_count_x, ... (the metadata's own words).
    """

    offset: int
    size: int
    value_kind: str
    name: str = ""
    type_name: str = ""
    address_space: str = ""
    access: str = ""

    @property
    def hidden(self) -> bool:
        """Filled in by the run time, not by the caller."""
        return self.value_kind.startswith("hidden_")


@dataclass(frozen=True)
class Kernel:
    """A kernel of a code object. `metadata` holds the note's entry (without leading dots); it may be empty."""

    name: str  # mangled, the symbol's own name
    demangled: str
    address: int  # virtual address of the first instruction
    code_bytes: int
    descriptor: KernelDescriptor
    args: tuple[KernelArg, ...]
    metadata: dict[str, object] = field(repr=False)

    def _count(self, key: str, default: int) -> int:
        value = self.metadata.get(key, default)
        return value if isinstance(value, int) else default

    @property
    def vgpr_count(self) -> int:
        """v registers used, the AGPRs apart."""
        total = self._count("vgpr_count", self.descriptor.vgpr_count)
        return min(total, self.descriptor.accum_offset) if self.agpr_count else total

    @property
    def agpr_count(self) -> int:
        return self._count("agpr_count", max(0, self.descriptor.vgpr_count - self.descriptor.accum_offset))

    @property
    def sgpr_count(self) -> int:
        return self._count("sgpr_count", 0)

    @property
    def vgpr_spill_count(self) -> int:
        return self._count("vgpr_spill_count", 0)

    @property
    def sgpr_spill_count(self) -> int:
        return self._count("sgpr_spill_count", 0)

    @property
    def scratch_bytes(self) -> int:
        """Private (scratch) memory per work-item."""
        return self._count("private_segment_fixed_size", self.descriptor.private_segment_fixed_size)

    @property
    def lds_bytes(self) -> int:
        """Static LDS per workgroup; what the launch adds dynamically is not known here."""
        return self._count("group_segment_fixed_size", self.descriptor.group_segment_fixed_size)

    @property
    def kernarg_bytes(self) -> int:
        return self._count("kernarg_segment_size", self.descriptor.kernarg_size)

    @property
    def max_workgroup_size(self) -> int:
        """The most work-items a workgroup may have (metadata's max_flat_workgroup_size)."""
        return self._count("max_flat_workgroup_size", 1024)

    @property
    def matches(self) -> frozenset[str]:
        """The names a user may call it: mangled, demangled, and the latter without return type or parameters."""
        bare = _without_parameters(self.demangled)
        return frozenset({self.name, self.demangled, bare, bare.split("<")[0]})


class CodeObject:
    """A gfx950 ELF file in memory. Use `CodeObject.load`."""

    def __init__(self, data: bytes, path: str) -> None:
        self.data = data
        self.path = path
        self._elf = _open_elf(data, path)
        self.kernels: tuple[Kernel, ...] = tuple(self._read_kernels())

    @classmethod
    def load(cls, source: str | Path | bytes) -> CodeObject:
        """From a file or its bytes: a linked ELF (.hsaco, .co), an offload bundle, or a host ELF holding .hip_fatbin.

        Raises SourceMissing, NotACodeObject, Truncated, WrongTarget (and ToolchainMissing for a compressed bundle).
        """
        if isinstance(source, bytes):
            data, path = source, "<bytes>"
        else:
            data, path = _read_file(Path(source)), str(source)
        return cls(_unwrap(data, path), path)

    def kernel(self, name: str | None = None) -> Kernel:
        """The kernel called `name` (see Kernel.matches); without a name, the only one there is. Raises NoSuchKernel."""
        found = [kernel for kernel in self.kernels if name is None or name == kernel.name]
        found = found or [kernel for kernel in self.kernels if name in kernel.matches]
        if len(found) == 1:
            return found[0]
        problem = "more than one kernel matches" if found else "no kernel"
        names = ", ".join(_without_parameters(kernel.demangled) for kernel in self.kernels) or "none"
        raise NoSuchKernel(path=self.path, problem=problem, name=name or "(unnamed)", kernels=names)

    @cached_property
    def code(self) -> tuple[CodeLine, ...]:
        """Every instruction of the executable sections in address order, by llvm-objdump. Raises ToolchainMissing."""
        return tuple(disassembly.disassemble(self.data))

    def kernel_code(self, kernel: Kernel) -> tuple[CodeLine, ...]:
        """The instructions of one kernel's symbol, in address order."""
        end = kernel.address + kernel.code_bytes
        return tuple(line for line in self.code if kernel.address <= line.address < end)

    @cached_property
    def line_table(self) -> LineTable:
        return lines.read_line_table(self._elf)

    def source_line(self, address: int) -> Frame | None:
        """The innermost source position of the instruction at `address`; None without debug information."""
        return self.line_table.lookup(address)

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes at a virtual address of the file (constants, code). Raises NotACodeObject when they are not in it."""
        for section in self._elf.iter_sections():
            start, kind = section["sh_addr"], section["sh_type"]
            if section["sh_flags"] & 2 and kind != "SHT_NOBITS" and start <= address and address + size <= start + section["sh_size"]:
                offset = section["sh_offset"] + address - start
                return self.data[offset : offset + size]
        raise NotACodeObject(path=self.path, reason=f"no section holds address {address:#x}")

    @cached_property
    def symbols(self) -> dict[str, tuple[int, int]]:
        """name -> (virtual address, size in bytes)."""
        tables = [section for section in self._elf.iter_sections() if isinstance(section, SymbolTableSection)]
        return {
            symbol.name: (symbol["st_value"], symbol["st_size"])
            for table in tables
            for symbol in table.iter_symbols()
            if symbol.name and symbol["st_shndx"] not in ("SHN_UNDEF", "SHN_ABS")
        }

    def _read_kernels(self):
        metadata = {_kernel_name(entry): entry for entry in self._metadata().get("amdhsa.kernels", [])}
        names = list(metadata) + [n[:-3] for n in self.symbols if n.endswith(".kd") and n[:-3] not in metadata]
        for name in names:
            if f"{name}.kd" not in self.symbols:
                raise NotACodeObject(path=self.path, reason=f"kernel {name} has no descriptor {name}.kd; was it linked?")
            yield self._read_kernel(name, metadata.get(name, {}))

    def _read_kernel(self, name: str, entry: dict[str, object]) -> Kernel:
        at = self.symbols[f"{name}.kd"][0]
        described = KernelDescriptor.parse(self.read(at, descriptor.SIZE))
        address = at + described.kernel_code_entry_byte_offset
        size = self.symbols.get(name, (address, 0))[1] or self._bytes_to_next_symbol(address)
        args = entry.get("args")
        return Kernel(
            name=name,
            demangled=demangle(name),
            address=address,
            code_bytes=size,
            descriptor=described,
            args=tuple(map(_kernel_arg, args)) if isinstance(args, list) else (),
            metadata=entry,
        )

    def _bytes_to_next_symbol(self, address: int) -> int:
        """Hand-written objects may leave a symbol's size 0: the code then ends where the next one, or the section, begins."""
        ends = [s["sh_addr"] + s["sh_size"] for s in self._elf.iter_sections() if s["sh_addr"] <= address < s["sh_addr"] + s["sh_size"]]
        starts = [start for start, _ in self.symbols.values() if start > address]
        return min([*ends, *starts], default=address) - address

    def _metadata(self) -> dict[str, list[dict]]:
        for section in self._elf.iter_sections():
            if isinstance(section, NoteSection):
                for note in section.iter_notes():
                    if note["n_type"] == NT_AMDGPU_METADATA or note["n_name"] == "AMDGPU":
                        return _undotted(_unpack(note["n_descdata"], self.path))
        return {}


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise SourceMissing(path=path) from None
    except OSError as error:
        raise NotACodeObject(path=path, reason=(error.strerror or "unreadable").lower()) from None


def _unwrap(data: bytes, path: str) -> bytes:
    """Peel containers: an offload bundle, or a host program with one in its .hip_fatbin section."""
    if bundle.is_bundle(data):
        return bundle.unbundle(data, path, ARCH)
    if data[:4] == b"\x7fELF" and data[18:20] != EM_AMDGPU.to_bytes(2, "little"):
        section = _parse_elf(data, path).get_section_by_name(".hip_fatbin")
        if section and bundle.is_bundle(section.data()):
            return bundle.unbundle(section.data(), path, ARCH)
    return data


def _parse_elf(data: bytes, path: str) -> ELFFile:
    if data[:4] != b"\x7fELF":
        raise NotACodeObject(path=path, reason="an empty file" if not data else "it does not begin with an ELF header")
    if len(data) < 64:
        raise Truncated(path=path, what="the ELF header", end=64, size=len(data))
    try:
        elf = ELFFile(io.BytesIO(data))
        _check_complete(elf, data, path)
        return elf
    except (ELFError, ELFParseError, UnicodeDecodeError, OverflowError, MemoryError) as error:
        raise NotACodeObject(path=path, reason=f"damaged ELF: {error}") from None


def _check_complete(elf: ELFFile, data: bytes, path: str) -> None:
    table_end = elf["e_shoff"] + elf["e_shnum"] * elf["e_shentsize"]
    if table_end > len(data):
        raise Truncated(path=path, what="the section table", end=table_end, size=len(data))
    for section in elf.iter_sections():
        end = section["sh_offset"] + section["sh_size"]
        if section["sh_type"] != "SHT_NOBITS" and end > len(data):
            raise Truncated(path=path, what=f"section {section.name or '(unnamed)'}", end=end, size=len(data))


def _open_elf(data: bytes, path: str) -> ELFFile:
    elf = _parse_elf(data, path)
    machine = elf["e_machine"]
    if machine not in ("EM_AMDGPU", EM_AMDGPU):
        raise WrongTarget(path=path, found=f"machine {str(machine).removeprefix('EM_')}")
    mach = elf["e_flags"] & EF_AMDGPU_MACH
    if MACH_NAMES.get(mach) != ARCH:
        raise WrongTarget(path=path, found=MACH_NAMES.get(mach, f"AMDGPU machine {mach:#x}"))
    if elf["e_type"] != "ET_DYN":
        raise NotACodeObject(path=path, reason="an unlinked object; link it with ld.lld -shared")
    return elf


def _unpack(note: bytes | str, path: str) -> object:
    raw = note if isinstance(note, bytes) else note.encode("latin-1")
    try:
        return msgpack.unpackb(raw, strict_map_key=False)
    except (ValueError, msgpack.exceptions.UnpackException):
        raise NotACodeObject(path=path, reason="its metadata note is not MessagePack (code object V2 is not supported)") from None


def _undotted(value):
    """The note's keys begin with a dot (.args, .offset): drop it."""
    if isinstance(value, dict):
        return {str(key).removeprefix("."): _undotted(item) for key, item in value.items()}
    return [_undotted(item) for item in value] if isinstance(value, list) else value


def _kernel_name(entry: dict) -> str:
    return str(entry.get("symbol", "")).removesuffix(".kd") or str(entry["name"])


def _kernel_arg(entry: dict) -> KernelArg:
    return KernelArg(
        offset=entry["offset"],
        size=entry["size"],
        value_kind=entry["value_kind"],
        name=entry.get("name", ""),
        type_name=entry.get("type_name", ""),
        address_space=entry.get("address_space", ""),
        access=entry.get("actual_access", entry.get("access", "")),
    )


def _without_parameters(demangled: str) -> str:
    """'void add<3>(float*, int)' -> 'add<3>'."""
    depth = 0
    start, end = 0, len(demangled)
    for index, char in enumerate(demangled):
        depth += (char == "<") - (char == ">")
        if depth == 0 and char == " ":
            start = index + 1
        if depth == 0 and char == "(" and not demangled.startswith("(anonymous", index):
            end = index
            break
    return demangled[start:end]


@lru_cache(maxsize=1)
def _demangler():
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return None
    function = getattr(library, "__cxa_demangle")
    function.restype = ctypes.c_void_p
    return function


@lru_cache(maxsize=4096)
def demangle(name: str) -> str:
    """The C++ name of an Itanium-mangled symbol, by the C++ run time's own demangler; `name` itself when it is not one."""
    function = _demangler() if name.startswith("_Z") else None
    if function is None:
        return name
    status = ctypes.c_int()
    text = function(name.encode(), None, None, ctypes.byref(status))
    if status.value or not text:
        return name
    demangled = ctypes.string_at(text).decode()
    ctypes.CDLL(None).free(ctypes.c_void_p(text))
    return demangled
