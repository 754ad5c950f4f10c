"""LLVM's programs and the HIP compiler: from a .hip source to a gfx950 code object, cached by content."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from .codeobject import CodeObject
from .errors import BadDefine, CompileFailed, SourceMissing
from .tools import Tool, cache_dir, find_tool, write_atomically

ARCH = "gfx950"
PACKAGE_DIR = Path(__file__).parent
PRELUDE = PACKAGE_DIR / "prelude.h"
INCLUDE_DIR = PACKAGE_DIR / "include"

Defines = Mapping[str, object] | Sequence[str]


def compile_hip(
    source: str | Path,
    *,
    defines: Defines = (),
    flags: Sequence[str] = (),
    include_dirs: Sequence[str | Path] = (),
    rocm_path: str | Path | None = None,
) -> CodeObject:
    """Compile HIP to a gfx950 code object with line tables; results are cached by content.

    source: path of a .hip file, or HIP text (a string with a newline in it).
    defines: {"TILE": 32, "FAST": None} or ["TILE=32", "FAST"].
    flags: further clang flags, after the standard ones (so "-O1" wins over -O3).
    rocm_path: folder holding include/hip (/opt/rocm, or backends/amd of the triton wheel): compile against those headers,
    and link the device libraries found there, instead of this package's prelude.
    Raises SourceMissing, BadDefine, CompileFailed, ToolchainMissing, ToolchainTooOld.
    """
    clang = find_tool("clang", "it compiles HIP for gfx950")
    path = _source_path(source)
    options = [*_standard_flags(clang, rocm_path), *_define_flags(defines), *flags]
    options += [f"-I{Path(folder).resolve()}" for folder in include_dirs]
    preprocessed = _run_clang(clang, [*options, "-E", str(path)], path)
    key = _digest(clang.version, *options, preprocessed)
    binary = cache_dir() / f"{path.stem}-{key}.hsaco"
    if not binary.exists():
        _build(clang, [*options, str(path)], path, binary)
    return CodeObject.load(binary, name=str(path))


def _source_path(source: str | Path) -> Path:
    """The file to compile; HIP text is written into the cache, so that its line numbers name something readable."""
    if isinstance(source, str) and "\n" in source:
        path = cache_dir() / f"source-{_digest(source)}.hip"
        if not path.exists():
            write_atomically(path, source.encode())
        return path
    path = Path(source).resolve()
    if not path.is_file():
        raise SourceMissing(path=source)
    return path


def _standard_flags(clang: Tool, rocm_path: str | Path | None) -> list[str]:
    flags = ["-x", "hip", "--cuda-device-only", f"--offload-arch={ARCH}", "-nogpulib", "-O3", "-std=c++20"]
    flags += ["-gline-tables-only", "-fuse-cuid=none", "--no-gpu-bundle-output"]
    if rocm_path is None:
        return [*flags, "-nogpuinc", f"-I{INCLUDE_DIR}", "-include", str(PRELUDE)]
    return [*flags, *_rocm_flags(clang, Path(rocm_path).resolve())]


def _rocm_flags(clang: Tool, rocm: Path) -> list[str]:
    """ROCm's headers and its ocml/ockl bitcode, wherever of the two usual places that lies."""
    if not (rocm / "include" / "hip" / "hip_runtime.h").is_file():
        raise SourceMissing(path=rocm / "include" / "hip" / "hip_runtime.h")
    # Named one by one, as clang itself would after finding a ROCm installation; a bare folder of headers is not one.
    clang_headers = _run_clang(clang, ["-print-resource-dir"], rocm).strip() + "/include"
    flags = ["-nogpuinc", "-isystem", f"{clang_headers}/cuda_wrappers", f"-I{rocm / 'include'}"]
    for header in ("__clang_hip_runtime_wrapper.h", "hip/hip_runtime.h", str(INCLUDE_DIR / "device_library_options.h")):
        flags += ["-include", header]
    for name in ("ocml.bc", "ockl.bc"):
        for folder in (rocm / "amdgcn" / "bitcode", rocm / "lib"):
            if (folder / name).is_file():
                flags += ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(folder / name)]
                break
    return flags


def _define_flags(defines: Defines) -> list[str]:
    if isinstance(defines, Mapping):
        defines = [name if value is None else f"{name}={value}" for name, value in defines.items()]
    for text in defines:
        if not re.match(r"[A-Za-z_]\w*(\([\w, .]*\))?(=|$)", text):
            raise BadDefine(text=text)
    return [f"-D{text}" for text in defines]


def _build(clang: Tool, arguments: list[str], path: Path, binary: Path) -> None:
    """Compile and link into a private folder, then move into the cache: readers never see half a file."""
    with tempfile.TemporaryDirectory(dir=binary.parent) as scratch:
        output = Path(scratch) / binary.name
        _run_clang(clang, [*arguments, "-o", str(output)], path)
        output.replace(binary)


def _run_clang(clang: Tool, arguments: list[str], path: Path) -> str:
    command = [*clang.command, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=path.parent, env=clang.environment())
    if done.returncode:
        raise CompileFailed(source=path, diagnostics=done.stderr.strip())
    return done.stdout


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]
