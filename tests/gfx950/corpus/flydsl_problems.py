"""FlyDSL's kernels as corpus problems: compiled once in a process of its own, arguments packed as its launcher does."""

import hashlib
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

from gfx950.tools import find_tool

from . import wheels
from .case import Expected, Problem, dot_bound

REQUIREMENT = "flydsl==0.5.0"
KERNELS = Path(__file__).with_name("flydsl_kernels.py")
COMPILE_TIMEOUT_S = 300


def rocm_folder(folder: Path) -> Path:
    """A stand-in for a ROCm installation: the linker and the device libraries, which is all that FlyDSL looks for."""
    import triton

    linker = Path(find_tool("clang", "FlyDSL links with its neighbour ld.lld").command[0]).resolve().with_name("ld.lld")
    if not linker.exists():
        raise wheels.Unreachable(f"FlyDSL needs the linker {linker}, which is not installed")
    bitcode = Path(triton.__file__).parent / "backends" / "amd" / "lib"
    for link, target in [("llvm/bin/ld.lld", linker), ("amdgcn/bitcode", bitcode)]:
        path = folder / link
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
    return folder


@cache
def code_objects() -> dict[str, bytes]:
    """kernel name -> code object. Raises wheels.Unreachable when the wheel cannot be fetched or does not run here."""
    wheel = wheels.fetch(REQUIREMENT)
    digest = hashlib.sha256(KERNELS.read_bytes() + wheel.name.encode()).hexdigest()[:16]
    folder = wheels.made_once(wheels.cache_folder() / f"flydsl-objects-{digest}", lambda empty: compile_all(wheel, empty))
    return {path.stem: path.read_bytes() for path in sorted(folder.glob("*.hsaco"))}


def compile_all(wheel: Path, folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(wheels.unpacked(wheel)), "ROCM_PATH": str(rocm_folder(folder / "rocm"))}
    command = [sys.executable, str(KERNELS), str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S)
    if done.returncode:
        raise wheels.Unreachable(f"{REQUIREMENT} does not compile here: {done.stderr.strip().splitlines()[-1]}")


def layout_bytes(tensor: torch.Tensor) -> bytes:
    """The struct behind each pointer: shape as i32, then the strides other than the innermost as i64, packed."""
    strides = tensor.stride()[:-1]
    return struct.pack(f"<{tensor.dim()}i{len(strides)}q", *tensor.shape, *strides)


Make = Callable[[torch.Generator], Problem]


def problem(inputs: dict[str, torch.Tensor], output: str, blank: torch.Tensor, expected: Expected, blocks: int = 1) -> Problem:
    return Problem({**inputs, output: blank}, {output: expected}, (blocks, 1, 1))


def integers(n: int, rng: torch.Generator, low: int = -(2**20), high: int = 2**20) -> torch.Tensor:
    return torch.randint(low, high, (n,), generator=rng, dtype=torch.int32)


def vector_add(rng: torch.Generator) -> Problem:
    a, b = torch.randn(2, 1024, generator=rng).unbind()
    return problem({"a": a, "b": b}, "c", torch.full((1024,), -7.0), Expected(a + b), blocks=4)


def softmax_rows(rng: torch.Generator) -> Problem:
    x = 3 * torch.randn(3, 256, generator=rng)
    value = x.double().softmax(1)
    bound = (128 + 256) * 2.0**-24 * value  # exp2 of a rounded difference below 128, and 256 additions
    return problem({"x": x.flatten()}, "y", torch.full((768,), -7.0), Expected(value.flatten(), bound.flatten()), blocks=3)


def raking_sum(rng: torch.Generator) -> Problem:
    x = integers(256, rng)
    return problem({"x": x}, "y", torch.zeros_like(x), Expected(x.sum(dtype=torch.int32).expand(256)))


def inclusive_sum(rng: torch.Generator) -> Problem:
    x = integers(256, rng)
    return problem({"x": x}, "y", torch.zeros_like(x), Expected(x.cumsum(0, dtype=torch.int32)))


def radix_sort(rng: torch.Generator) -> Problem:
    x = integers(128, rng)
    return problem({"x": x}, "y", torch.zeros_like(x), Expected(x.sort().values))


def merge_sort(rng: torch.Generator) -> Problem:
    x = integers(128, rng, -50, 50).float()
    return problem({"x": x}, "y", torch.zeros_like(x), Expected(x.sort(descending=True).values))


def histogram(rng: torch.Generator) -> Problem:
    x = integers(256, rng, 0, 64)
    return problem({"x": x}, "y", torch.zeros(64, dtype=torch.int32), Expected(x.bincount(minlength=64)))


def warp_scan_and_broadcast(rng: torch.Generator) -> Problem:
    x = integers(256, rng, -100, 100).reshape(16, 16)
    value = x.cumsum(1) + 1000 * x[:, 3:4]
    return problem({"x": x.flatten()}, "y", torch.zeros(256, dtype=torch.int32), Expected(value.flatten()))


def product(k: int, dtype: torch.dtype) -> Make:
    def make(rng: torch.Generator) -> Problem:
        a, b = (torch.randn(64, k, generator=rng).to(dtype) for _ in range(2))
        expected = Expected(a.double() @ b.double().T, dot_bound(a, b.T, k))
        return problem({"a": a, "b": b}, "c", torch.full((64, 64), -7.0), expected)

    return make


# kernel name: (its problem, work-items of a workgroup)
PROBLEMS: dict[str, tuple[Make, int]] = {
    "vector_add": (vector_add, 256),
    "softmax_rows": (softmax_rows, 256),
    "raking_sum": (raking_sum, 256),
    "inclusive_sum": (inclusive_sum, 256),
    "radix_sort": (radix_sort, 64),
    "merge_sort": (merge_sort, 64),
    "histogram": (histogram, 256),
    "warp_scan_and_broadcast": (warp_scan_and_broadcast, 256),
    "product_fp32": (product(4, torch.float32), 256),
    "product_bf16": (product(32, torch.bfloat16), 256),
    "product_bf16_32x32": (product(16, torch.bfloat16), 256),
    "product_fp16": (product(16, torch.float16), 256),
}
