"""The command line: python -m gfx950 report|disasm|check|run PATH. Exit code 0 clean, 1 findings, 2 bad input or usage."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from . import checks, report, run_command
from .codeobject import CodeObject, Kernel
from .decode import decode_one
from .elf import ARCH
from .errors import Gfx950Error, NoKernelFiles, SourceMissing, WrongArch
from .toolchain import compile_hip

CLEAN, FINDINGS, BAD_INPUT = 0, 1, 2
SCHEMA_VERSION = 1
SOURCE_SUFFIXES = (".hip",)
BINARY_SUFFIXES = (".hsaco", ".co")
EXAMPLES = """\
examples:
  python -m gfx950 report kernel.hip -D TILE=32       registers, LDS, occupancy, instruction mix
  python -m gfx950 check kernels/ --json              every .hip, .hsaco and .co below a folder
  python -m gfx950 disasm kernel.hsaco --kernel add   machine code with source lines
  python -m gfx950 run kernel.hip --block 64 --arg zeros:f32:64 --arg 3    in the emulator
"""


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        if options.arch != ARCH:
            raise WrongArch(arch=options.arch)
        return _COMMANDS[options.command](options)
    except Gfx950Error as error:
        print(f"gfx950: {error}", file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away (| head): nothing to say, and nothing to say it to
        return CLEAN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gfx950",
        description="Inspect and check gfx950 (MI355X) kernels on a machine without the GPU.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="report|disasm|check|run")
    shared = _shared_options()
    described = commands.add_parser(
        "report", parents=[shared], help="registers, LDS, occupancy, instruction mix, cycle estimate"
    )
    described.add_argument(
        "--workgroup-size",
        type=run_command.at_least(1),
        metavar="N",
        help="work-items a launch uses (default: the kernel's most)",
    )
    described.add_argument(
        "--dynamic-lds", type=run_command.at_least(0), default=0, metavar="BYTES", help="LDS that the launch adds"
    )
    checked = commands.add_parser("check", parents=[shared], help="spills, hazards, undefined registers, LDS, launch bounds")
    checked.add_argument("--notes", action="store_true", help="also print what is no finding but worth knowing")
    for command in (described, checked):
        command.add_argument("--json", action="store_true", help="machine-readable output (documented in gfx950/README.md)")
    commands.add_parser("disasm", parents=[shared], help="disassembly with source lines")
    executed = commands.add_parser("run", parents=[shared], help="run a kernel in the emulator under every schedule")
    executed.add_argument("--json", action="store_true", help="machine-readable output")
    run_command.add_options(executed)
    return parser


def _shared_options() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("path", type=Path, metavar="PATH", help="a .hip source, a code object, or a folder of them")
    shared.add_argument("--kernel", metavar="NAME", help="only this kernel (mangled or C++ name)")
    shared.add_argument("-D", dest="defines", action="append", default=[], metavar="NAME[=VALUE]", help="macro for the source")
    shared.add_argument("-I", dest="include_dirs", action="append", default=[], metavar="DIR", help="include folder")
    shared.add_argument("--rocm", type=Path, metavar="DIR", help="compile against the HIP headers in DIR/include")
    shared.add_argument("--arch", default=ARCH, help="the only one is gfx950")
    return shared


# --- inputs ------------------------------------------------------------------------------------------------------------


def _files(path: Path) -> list[Path]:
    """The file itself, or every source and code object below a folder, without sources that others there include."""
    if not path.is_dir():
        if not path.exists():
            raise SourceMissing(path=path)
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix in SOURCE_SUFFIXES + BINARY_SUFFIXES and file.is_file())
    if not found:
        raise NoKernelFiles(path=path, suffixes=", ".join(SOURCE_SUFFIXES + BINARY_SUFFIXES))
    parts = set[Path]().union(*(_included(file) for file in found if file.suffix in SOURCE_SUFFIXES))
    return [file for file in found if file.resolve() not in parts] or found


def _included(source: Path) -> set[Path]:
    """The files that a source includes by a path of its own, itself left out."""
    names = re.findall(r'^\s*#\s*include\s*"([^"\n]+)"', source.read_text(errors="replace"), re.MULTILINE)
    return {(source.parent / name).resolve() for name in names} - {source.resolve()}


def _load(path: Path, options: argparse.Namespace) -> CodeObject:
    if path.suffix in SOURCE_SUFFIXES:
        return compile_hip(path, defines=options.defines, include_dirs=options.include_dirs, rocm_path=options.rocm)
    return CodeObject.load(path)


def _each(options: argparse.Namespace, problems: list[str]) -> Iterator[tuple[Path, CodeObject]]:
    """Loads every input; in a folder a bad one is told, counted, and passed over."""
    files = _files(options.path)
    for path in files:
        try:
            yield path, _load(path, options)
        except Gfx950Error as error:
            if options.path.is_file():
                raise
            print(f"gfx950: {error}", file=sys.stderr)
            problems.append(str(error))


# --- commands ----------------------------------------------------------------------------------------------------------


def _report(options: argparse.Namespace) -> int:
    problems: list[str] = []
    sizes = {"workgroup_size": options.workgroup_size, "dynamic_lds_bytes": options.dynamic_lds}
    entries = [(path, report.report(code, options.kernel, **sizes)) for path, code in _each(options, problems)]
    if options.json:
        files = [{"path": str(path), "kernels": [item.to_json() for item in items]} for path, items in entries]
        print(json.dumps({"schema_version": SCHEMA_VERSION, "files": files, "problems": problems}, indent=2))
    else:
        for path, items in entries:
            print("\n\n".join([f"{path}:{'' if items else ' no kernels'}", *map(report.as_text, items)]))
    return BAD_INPUT if problems else CLEAN


def _check(options: argparse.Namespace) -> int:
    problems: list[str] = []
    entries = [(path, checks.check(code, options.kernel)) for path, code in _each(options, problems)]
    found = [finding for _, findings in entries for finding in findings]
    serious = [finding for finding in found if finding.severity != checks.NOTE]
    if options.json:
        files = [{"path": str(path), "findings": [finding.to_json() for finding in findings]} for path, findings in entries]
        document = {"schema_version": SCHEMA_VERSION, "ok": not serious, "files": files, "problems": problems}
        print(json.dumps(document, indent=2))
    else:
        for finding in found if options.notes else serious:
            print(finding)
        hidden = len(found) - len(serious)
        print(f"{len(entries)} file(s): {len(serious)} finding(s), {hidden} note(s){'' if options.notes else ' (--notes)'}")
    return BAD_INPUT if problems else FINDINGS if serious else CLEAN


def _disasm(options: argparse.Namespace) -> int:
    problems: list[str] = []
    for _, code in _each(options, problems):
        for kernel in [code.kernel(options.kernel)] if options.kernel else code.kernels:
            print(f"{kernel.address:012x} <{kernel.display_name}>:")
            _print_code(code, kernel)
    return BAD_INPUT if problems else CLEAN


def _print_code(code: CodeObject, kernel: Kernel) -> None:
    shown = None
    for line in code.kernel_code(kernel):
        frame = code.source_line(line.address)
        if frame != shown and frame is not None:
            print(f"; {frame}")
        shown = frame
        words = " ".join(f"{word:08x}" for word in line.words)
        target = decode_one(line.mnemonic, line.operands, line.address, line.words).target
        print(f"  {line.address:012x}  {words:<26}  {line.text}" + (f"  -> {target:x}" if target is not None else ""))


def _run(options: argparse.Namespace) -> int:
    verdict = run_command.run(_load(options.path, options), options)
    if options.json:
        print(json.dumps({"schema_version": SCHEMA_VERSION, **run_command.as_json(verdict)}, indent=2))
    else:
        print(run_command.as_text(verdict))
    return CLEAN if verdict.ok else FINDINGS


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {"report": _report, "check": _check, "disasm": _disasm, "run": _run}
