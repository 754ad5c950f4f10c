"""What can go wrong, one class per failure: each message says what was wrong, the limit, and the remedy."""

from __future__ import annotations


class Gfx950Error(Exception):
    """Base of every error a user of this package can cause; its text is one message without a traceback."""

    template = "{reason}"

    def __init__(self, **facts: object) -> None:
        self.facts = facts
        super().__init__(self.template.format(**facts))


class ToolchainMissing(Gfx950Error):
    """A program of the LLVM toolchain is not installed."""

    template = (
        "{tool} is not installed (LLVM 20 or newer is needed, it has the gfx950 target); {purpose}. "
        "Run `make toolchain`, or set GFX950_LLVM to the folder that holds LLVM's programs"
    )


class ToolchainTooOld(Gfx950Error):
    """The program found predates the gfx950 target."""

    template = "{tool} is LLVM {version}, but gfx950 needs LLVM 20 or newer. Run `make toolchain`, or set GFX950_LLVM"


class SourceMissing(Gfx950Error):
    """The source file or code object named does not exist."""

    template = "{path}: no such file"


class CompileFailed(Gfx950Error):
    """clang refused the source; `diagnostics` holds its output."""

    template = "{source} does not compile for gfx950:\n{diagnostics}"


class BadDefine(Gfx950Error):
    """A macro definition is not of the form NAME or NAME=VALUE."""

    template = "-D {text}: not a macro definition; write NAME or NAME=VALUE"


class NotACodeObject(Gfx950Error):
    """The bytes are neither an AMDGPU ELF file nor an offload bundle."""

    template = "{path}: not a gfx950 code object ({reason}); give a .hip source, a linked .hsaco/.co or an offload bundle"


class Truncated(Gfx950Error):
    """The file ends before its headers say it does."""

    template = "{path}: truncated, {what} ends at byte {end} but the file has {size} bytes; copy or build it again"


class WrongTarget(Gfx950Error):
    """The code object is for another processor."""

    template = "{path}: made for {found}, but only gfx950 is supported; compile it with --offload-arch=gfx950"


class NoSuchKernel(Gfx950Error):
    """No kernel, or more than one, has the name asked for."""

    template = "{path}: {problem} {name!r}; kernels here: {kernels}"


class NoKernelFiles(Gfx950Error):
    """A folder holds nothing that could be inspected."""

    template = "{path}: no kernels below this folder; it should hold files ending in {suffixes}"


class WrongArch(Gfx950Error):
    """The command line asked for another processor."""

    template = "--arch {arch}: only gfx950 (MI350X, MI355X) is supported"


class BadArgumentText(Gfx950Error):
    """A kernel argument on the command line that cannot be read."""

    template = "--arg {text}: {problem}"


class SaveFailed(Gfx950Error):
    """The file for the arrays after a run cannot be written."""

    template = "--save {path}: {reason}; name a file in a folder that exists and can be written"


class CacheUnusable(Gfx950Error):
    """The folder for compiled code cannot be made."""

    template = "{path}: the cache folder cannot be made ({reason}); set XDG_CACHE_HOME to a folder that can be written"


class BuildFailed(Gfx950Error):
    """The C++ compiler refused the emulator's own sources."""

    template = "building the emulator failed: {command}\n{diagnostics}"


class BadArguments(Gfx950Error):
    """Kernel arguments of the wrong count, size or type."""

    template = "kernel {kernel}: {problem}"


class BadLaunch(Gfx950Error):
    """A grid, block, LDS size or schedule that no launch can have."""

    template = "kernel {kernel}: {problem}"


def too_large(items: int, limit: int) -> str:
    """What BadLaunch says of a workgroup of more work-items than the kernel admits."""
    return f"{items} work-items in a workgroup, compiled for at most {limit}; change its __launch_bounds__"


class EmulationFault(Gfx950Error):
    """The first finding of a strict launch; `finding` holds it."""

    template = "{text}"


class UnimplementedOpcode(EmulationFault):
    """The kernel executed an instruction that the emulator does not know."""
