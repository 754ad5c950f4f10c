"""The HIP sources of a submission, compiled for gfx950 in a contained process.

The compiler reads whatever a source includes and quotes it in its messages, so it runs where nothing can be read but the
system and itself: behind Landlock and seccomp, with limits on time and memory. Where the kernel has no Landlock nothing is
compiled.
"""

import ast
import functools
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import landlock, seccomp
from harness.containment import Containment
from harness.jail import Plan
from harness.text import printable
from leaderboard.web.gfx950_job import REJECTED, UNABLE

log = logging.getLogger("leaderboard")
ROOT = Path(__file__).resolve().parent.parent.parent
JOB = (sys.executable, "-m", "leaderboard.web.gfx950_job")
MARK = "__global__"
LLVM_VARIABLE = "GFX950_LLVM"  # where gfx950 looks for the compiler first
MOST_SOURCES = 8
TIMEOUT_S = 60.0  # of one source
LIMITS = {"RLIMIT_CPU": 60, "RLIMIT_AS": 4 << 30, "RLIMIT_FSIZE": 256 << 20, "RLIMIT_NPROC": 4096}
MOST_ERROR_CHARACTERS = 4000
DIED = "the compiler broke off; the server's log says why"
BUSY = "the server compiles for somebody else now; reload the page in a few seconds"
UNCONTAINED = (
    "this server's kernel cannot contain the compiler (Landlock); `python -m gfx950 report FILE.hip` does it on your machine"
)

_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Resources:
    """What one kernel takes; sizes in bytes."""

    name: str
    vgprs: int
    agprs: int
    sgprs: int
    spilled: int
    lds_bytes: int
    scratch_bytes: int
    waves_per_simd: int
    limited_by: str
    code_bytes: int
    mfma: int  # instructions


@dataclass(frozen=True)
class Source:
    """One HIP source; `name` says where in the submission it stands."""

    name: str
    text: str


@dataclass(frozen=True)
class Listing:
    """What became of one source: its kernels, or why there are none.

    error: why this server did not compile it; rejected: what the compiler has against it.
    """

    name: str
    lines: int
    kernels: tuple[Resources, ...] = ()
    error: str = ""
    rejected: str = ""


def hip_sources(code: str, file_name: str) -> list[Source]:
    """The file itself if it is no Python; else every string in it that holds a kernel. None where Python cannot parse it."""
    if not file_name.endswith(".py"):
        return [Source(file_name, code)] if MARK in code else []
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [Source(f"String in line {node.lineno}", node.value) for node in _strings(tree) if MARK in node.value][:MOST_SOURCES]


def _strings(tree: ast.AST) -> Iterator[Any]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))


def resources_of(sha256: str, code: str, file_name: str) -> tuple[Listing, ...]:
    """A listing for every source of a submission; what is found is kept under the file's digest."""
    if not _one_at_a_time.acquire(blocking=False):
        return tuple(Listing(source.name, _lines(source), error=BUSY) for source in hip_sources(code, file_name))
    try:
        return _compiled(sha256, code, file_name)
    finally:
        _one_at_a_time.release()


@functools.lru_cache(maxsize=64)
def _compiled(_sha256: str, code: str, file_name: str) -> tuple[Listing, ...]:
    return tuple(map(_listing, hip_sources(code, file_name)))


def _listing(source: Source) -> Listing:
    empty = Listing(source.name, _lines(source))
    if landlock.abi() == 0:
        return replace(empty, error=UNCONTAINED)
    with tempfile.TemporaryDirectory(prefix="kernelproof-gfx950-") as folder:
        Path(folder, "source.hip").write_text(source.text, encoding="utf-8")
        try:
            done = subprocess.run(
                [*JOB, _plan(Path(folder)).to_text(), folder], cwd=ROOT,
                env=_environment(folder), capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return replace(empty, error=f"compiling took longer than {TIMEOUT_S:.0f} s")
    said = printable(done.stderr.replace(f"{folder}/", "").replace(f"{ROOT}/", ""))[:MOST_ERROR_CHARACTERS].strip()
    if done.returncode == 0:
        return replace(empty, kernels=_kernels(json.loads(done.stdout)))
    if done.returncode == REJECTED:
        return replace(empty, rejected=said)
    if done.returncode == UNABLE:
        return replace(empty, error=said)
    log.warning("compiling for gfx950 ended with exit code %d: %s", done.returncode, said)
    return replace(empty, error=DIED)


def _plan(folder: Path) -> Plan:
    """Read the system and gfx950's own files, write `folder`; no network."""
    contained = Containment("none", False, landlock.abi(), seccomp.supported())
    plan = contained.plan([folder], ROOT / "gfx950", folder, [], LIMITS)
    llvm = [os.environ[LLVM_VARIABLE]] if os.environ.get(LLVM_VARIABLE) else []
    return replace(plan, read=(*plan.read, *llvm), supervised=False, own_tmp=False)


def _environment(folder: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", LLVM_VARIABLE) if name in os.environ}
    return {**kept, "HOME": folder, "XDG_CACHE_HOME": folder, "TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}


def _kernels(reports: Sequence[dict[str, Any]]) -> tuple[Resources, ...]:
    return tuple(
        Resources(
            name=each["name"], vgprs=each["vgprs"], agprs=each["agprs"], sgprs=each["sgprs"],
            spilled=each["vgpr_spills"] + each["sgpr_spills"], lds_bytes=each["lds_bytes"], scratch_bytes=each["scratch_bytes"],
            waves_per_simd=each["waves_per_simd"], limited_by=each["occupancy_limited_by"], code_bytes=each["code_bytes"],
            mfma=sum(each["code"]["mfma"].values()) if each["code"] else 0,
        )
        for each in reports
    )  # fmt: skip


def _lines(source: Source) -> int:
    return source.text.count("\n") + 1
