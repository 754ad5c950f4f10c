"""Code objects: the linked ELF file that a GPU loads, its kernels, their arguments and resources, its machine code.

Formats: https://llvm.org/docs/AMDGPUUsage.html, sections "ELF Code Object", "Code Object V3-V6 Metadata".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from elftools.elf.sections import SymbolTableSection

from . import descriptor, disassembly, elf, lines
from .descriptor import KernelDescriptor
from .disassembly import CodeLine
from .errors import NoSuchKernel, NotACodeObject
from .lines import Frame, LineTable
from .names import demangle, without_parameters

SHF_ALLOC = 2


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
        """v registers used; rounded up to 4 where AGPRs follow them."""
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
    def display_name(self) -> str:
        """The author's name for it, template arguments included."""
        return without_parameters(self.demangled)

    @property
    def matches(self) -> frozenset[str]:
        """The names a user may call it: mangled, demangled, and the latter without return type or parameters."""
        bare = self.display_name
        return frozenset({self.name, self.demangled, bare, bare.split("<")[0]})


class CodeObject:
    """A gfx950 ELF file in memory. Use `CodeObject.load`."""

    def __init__(self, data: bytes, path: str) -> None:
        self.data = data
        self.path = path
        self._elf = elf.open_elf(data, path)
        self.kernels: tuple[Kernel, ...] = tuple(self._read_kernels())

    @classmethod
    def load(cls, source: str | Path | bytes, name: str | None = None) -> CodeObject:
        """From a file or its bytes: a linked ELF (.hsaco, .co), an offload bundle, or a host ELF holding .hip_fatbin.

        `name` is what messages call it, by default the path.
        Raises SourceMissing, NotACodeObject, Truncated, WrongTarget (and ToolchainMissing for a compressed bundle).
        """
        path = name or ("<bytes>" if isinstance(source, bytes) else str(source))
        data = source if isinstance(source, bytes) else elf.read_file(Path(source))
        with elf.naming_damage(path):
            return cls(elf.unwrap(data, path), path)

    def kernel(self, name: str | None = None) -> Kernel:
        """The kernel called `name` (see Kernel.matches); without a name, the only one there is. Raises NoSuchKernel."""
        found = [kernel for kernel in self.kernels if name is None or name == kernel.name]
        found = found or [kernel for kernel in self.kernels if name in kernel.matches]
        if len(found) == 1:
            return found[0]
        problem = "more than one kernel matches" if found else "no kernel"
        names = ", ".join(kernel.display_name for kernel in self.kernels) or "none"
        raise NoSuchKernel(path=self.path, problem=problem, name=name or "(unnamed)", kernels=names)

    @cached_property
    def code(self) -> tuple[CodeLine, ...]:
        """Every instruction in address order, by llvm-objdump. Raises ToolchainMissing, NotACodeObject."""
        with elf.naming_damage(self.path):
            return tuple(disassembly.disassemble(self.data))

    def kernel_code(self, kernel: Kernel) -> tuple[CodeLine, ...]:
        """The instructions of one kernel's symbol, in address order."""
        end = kernel.address + kernel.code_bytes
        return tuple(line for line in self.code if kernel.address <= line.address < end)

    @cached_property
    def line_table(self) -> LineTable:
        return lines.read_line_table(self._elf)

    def source_line(self, address: int) -> Frame | None:
        """Where the instruction at `address` comes from in the user's own source; None without debug information.

        Code inlined from the prelude or from HIP's headers counts as the line that called it; `line_table.stack(address)`
        tells them apart.
        """
        stack = self.line_table.stack(address)
        return next((frame for frame in stack if not _is_library(frame.file)), stack[0] if stack else None)

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes at a virtual address of the file (constants, code). Raises NotACodeObject when they are not in it."""
        section = self._section_at(address)
        if section is None or section["sh_type"] == "SHT_NOBITS" or address + size > section["sh_addr"] + section["sh_size"]:
            raise NotACodeObject(path=self.path, reason=f"no section holds {size} bytes at address {address:#x}")
        offset = section["sh_offset"] + address - section["sh_addr"]
        return self.data[offset : offset + size]

    def _section_at(self, address: int):
        """The section loaded at a virtual address, or None."""
        loaded = (section for section in self._elf.iter_sections() if section["sh_flags"] & SHF_ALLOC)
        return next((s for s in loaded if s["sh_addr"] <= address < s["sh_addr"] + s["sh_size"]), None)

    @cached_property
    def symbols(self) -> dict[str, tuple[int, int]]:
        """name -> (virtual address, size in bytes)."""
        return {symbol.name: (symbol["st_value"], symbol["st_size"]) for symbol in self._defined_symbols()}

    def _defined_symbols(self):
        for section in self._elf.iter_sections():
            if isinstance(section, SymbolTableSection):
                named = (symbol for symbol in section.iter_symbols() if symbol.name)
                yield from (symbol for symbol in named if symbol["st_shndx"] not in ("SHN_UNDEF", "SHN_ABS"))

    def _read_kernels(self):
        metadata = {_kernel_name(entry): entry for entry in elf.read_metadata(self._elf, self.path).get("amdhsa.kernels", [])}
        names = list(metadata) + [n[:-3] for n in self.symbols if n.endswith(".kd") and n[:-3] not in metadata]
        for name, demangled in zip(names, demangle(names), strict=True):
            if f"{name}.kd" not in self.symbols:
                raise NotACodeObject(path=self.path, reason=f"kernel {name} has no descriptor {name}.kd; was it linked?")
            yield self._read_kernel(name, demangled, metadata.get(name, {}))

    def _read_kernel(self, name: str, demangled: str, entry: dict[str, object]) -> Kernel:
        at = self.symbols[f"{name}.kd"][0]
        described = KernelDescriptor.parse(self.read(at, descriptor.SIZE))
        address = at + described.kernel_code_entry_byte_offset
        size = self.symbols.get(name, (address, 0))[1] or self._bytes_to_next_function(address)
        args = entry.get("args")
        return Kernel(
            name=name,
            demangled=demangled,
            address=address,
            code_bytes=size,
            descriptor=described,
            args=tuple(map(_kernel_arg, args)) if isinstance(args, list) else (),
            metadata=entry,
        )

    def _bytes_to_next_function(self, address: int) -> int:
        """Hand-written objects leave a symbol's size 0: the code then ends where the next function, or the section, begins.

        Labels do not end it.
        """
        section = self._section_at(address)
        end = section["sh_addr"] + section["sh_size"] if section else address
        functions = [s["st_value"] for s in self._defined_symbols() if s["st_info"]["type"] == "STT_FUNC"]
        return min([end, *(start for start in functions if start > address)]) - address


def _is_library(file: str) -> bool:
    return file.startswith(f"{Path(__file__).parent}/prelude") or "/include/hip/" in file or "/lib/clang/" in file


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
