#!/usr/bin/env python3
"""What ptxas gives the CUDA kernels: registers, spills, shared memory, and how many blocks fit on an H200's multiprocessor.

    python scripts/cuda_resources.py                                       a table
    python scripts/cuda_resources.py --json docs/results/cuda-resources.json   the record behind docs/h200.md

Needs nvcc and no GPU. The kernels are those of kernels/cuda/variants.cuh, compiled as the submission compiles them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kernels.cuda_backend import CUDA_KERNELS, CUDA_SOURCES  # noqa: E402
from kernels.nvcc import NVCC_OPTIONS, find_nvcc  # noqa: E402
from scripts.docs_tables import resources_table  # noqa: E402

# An sm_90 multiprocessor (CUDA C++ Programming Guide, technical specifications of compute capability 9.0).
REGISTERS, SHARED_BYTES, THREADS, BLOCKS = 65_536, 228 << 10, 2048, 32
RESERVED_SHARED_BYTES = 1024  # of every block
WARP, REGISTER_UNIT = 32, 256  # registers are handed out to warps in these units
ENTRY = re.compile(r"Compiling entry function '(?P<entry>\w+)'")
SPILLS = re.compile(r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads")
SPILL_FIGURES = ("stack", "stores", "loads")
USED = re.compile(r"Used (?P<registers>\d+) registers")
STATIC = re.compile(r"(?P<bytes>\d+) bytes smem")
# Prints `number type threads dynamic_shared_bytes` for every variant; the type stands in the kernel's mangled name.
LIST_VARIANTS = """
#include <cstdio>
#include <typeinfo>
#include "variants.cuh"
template <class L> void show(int variant, L*) {
  printf("%d %s %d %d\\n", variant, typeid(L).name(), (int)L::THREADS, (int)L::SMEM);
}
int main() {
  for (int v = 0; with_variant(v, [&](auto* l) { show(v, l); }); ++v) {}
}
"""


class NvccFailed(Exception):
    """nvcc is missing or could not compile; the message is what it said."""


@dataclass(frozen=True)
class Compiled:
    """One entry function as ptxas reports it."""

    registers: int
    static_shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


@dataclass(frozen=True)
class Kernel:
    """One variant."""

    name: str
    threads: int
    registers: int
    shared_bytes: int  # static and dynamic
    spill_bytes: int  # stores and loads
    stack_bytes: int
    blocks_per_multiprocessor: int


def parse_ptxas(text: str) -> dict[str, Compiled]:
    """Entry function -> its resources, from what `-Xptxas -v` prints."""
    found, entry, spills = {}, "", {}
    for line in text.splitlines():
        if match := ENTRY.search(line):
            entry, spills = match["entry"], {}
        elif entry and (match := SPILLS.search(line)):
            spills = {name: int(value) for name, value in match.groupdict().items()}
        elif entry and (match := USED.search(line)):
            shared = STATIC.search(line)
            static_bytes = int(shared["bytes"]) if shared else 0
            found[entry] = Compiled(int(match["registers"]), static_bytes, *(spills.get(name, 0) for name in SPILL_FIGURES))
            entry = ""
    return found


def blocks_at_once(threads: int, registers: int, shared_bytes: int) -> int:
    """Blocks of a kernel that fit on one multiprocessor of sm_90."""
    warps = -(-threads // WARP)
    by_registers = REGISTERS // (warps * -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT)
    return min(BLOCKS, THREADS // threads, by_registers, SHARED_BYTES // (shared_bytes + RESERVED_SHARED_BYTES))


def compiled_kernels(nvcc: str, folder: Path) -> list[Kernel]:
    """Compile the variants in `folder`. Raises NvccFailed."""
    for name, text in {**CUDA_SOURCES, "list_variants.cu": LIST_VARIANTS}.items():
        (folder / name).write_text(text, encoding="utf-8")
    said = run([nvcc, *NVCC_OPTIONS, "-Xptxas", "-v", "-o", str(folder / "mla.so"), str(folder / "launch.cu")])
    device = [option for option in NVCC_OPTIONS if option not in ("-shared", "-Xcompiler", "-fPIC")]
    run([nvcc, *device, "-o", str(folder / "list_variants"), str(folder / "list_variants.cu")])
    variants = run([str(folder / "list_variants")]).splitlines()
    entries = parse_ptxas(said)
    return [kernel_of(CUDA_KERNELS[int(line.split()[0])], line.split()[1:], entries) for line in variants]


def kernel_of(name: str, variant: Sequence[str], entries: dict[str, Compiled]) -> Kernel:
    """The kernel whose mangled name holds the variant's type. Raises NvccFailed if ptxas reported none."""
    kind, threads, dynamic_bytes = variant[0], int(variant[1]), int(variant[2])
    entry = next((found for mangled, found in entries.items() if kind in mangled), None)
    if entry is None:
        raise NvccFailed(f"ptxas reported no kernel of {name} ({kind})")
    shared_bytes = entry.static_shared_bytes + dynamic_bytes
    return Kernel(
        name,
        threads,
        entry.registers,
        shared_bytes,
        entry.spill_store_bytes + entry.spill_load_bytes,
        entry.stack_bytes,
        blocks_at_once(threads, entry.registers, shared_bytes),
    )


def run(command: Sequence[str]) -> str:
    """Everything that a command printed. Raises NvccFailed."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NvccFailed(f"{Path(command[0]).name} failed:\n{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the record")
    options = parser.parse_args(argv)
    nvcc = find_nvcc()
    if nvcc is None:
        print("error: nvcc is not on PATH and not below CUDA_HOME; it comes with the CUDA toolkit", file=sys.stderr)
        return 2
    try:
        with tempfile.TemporaryDirectory(prefix="cuda-resources-") as folder:
            kernels = compiled_kernels(nvcc, Path(folder))
        version = re.search(r"release [\d.]+, V([\d.]+)", run([nvcc, "--version"]))
    except NvccFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    sources = hashlib.sha256(repr(CUDA_SOURCES).encode()).hexdigest()[:12]
    record = {"schema_version": 1, "nvcc": version[1] if version else None, "sources": sources}
    record["kernels"] = [asdict(kernel) for kernel in kernels]
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(resources_table([record]), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
