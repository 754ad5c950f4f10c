"""HIP kernels of our own on gfx950 (MI355X): whether they can run here, compiling them inline, and what a split costs."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch

HIP_ARCH = "gfx950"

# The cost model's MI355X: data sheet, bandwidth that others have reached, and a guess for the latency.
MI355X_CUS = 256
MI355X_BYTES_PER_NS = 7200
TILE_LATENCY_NS = 1000  # from the issue of a tile's loads to their arrival


def hip_unavailable(device: torch.device) -> str | None:
    """Why HIP kernels cannot be compiled and run for tensors on `device`; None if they can."""
    if device.type != "cuda" or torch.version.hip is None:
        return f"the HIP kernels need a ROCm GPU and the tensors are on {device.type}"
    arch = torch.cuda.get_device_properties(device).gcnArchName.split(":")[0]
    if arch != HIP_ARCH:
        return f"the HIP kernels are written for {HIP_ARCH} and this GPU is {arch}"
    missing = [program for program in ("hipcc", "ninja") if shutil.which(program) is None]
    return f"{' and '.join(missing)} must be on PATH to compile the HIP kernels" if missing else None


def cpp_initializer(values: Iterable[Any]) -> str:
    """What stands between the braces of a struct's initializer; strings are taken as they are."""
    return ", ".join(str(value).lower() if isinstance(value, bool) else str(value) for value in values)


def joined_source(files: Mapping[str, str]) -> str:
    """Files as one text; lines are blamed on their files."""
    return "".join(f'#line 1 "{name}"\n{text}' for name, text in files.items())


def instantiations(initializers: Iterable[str]) -> str:
    """The macro that launch_table.hip expects: LAUNCH(number, initializer of Traits) for each instantiation."""
    table = " ".join(f"LAUNCH({number}, {each})" for number, each in enumerate(initializers))
    return f"#define INSTANTIATIONS {table}\n"


def compile_hip_module(name: str, declarations: str, binding: str, source: str) -> Any:
    """A module with the function `decode` of `binding`; torch keeps it on disk under a name that its source decides."""
    from torch.utils.cpp_extension import load_inline

    return load_inline(
        name=f"kernelproof_{name}_" + hashlib.sha256((declarations + binding + source).encode()).hexdigest()[:16],
        cpp_sources=declarations + binding,
        cuda_sources=source,
        functions=["decode"],
        extra_cuda_cflags=["-O3", "-std=c++20", f"--offload-arch={HIP_ARCH}"],
        with_cuda=True,
    )


class SplitWork(NamedTuple):
    """A launch as the cost model sees it: `groups` of query rows, each with `tiles` tiles of KV to be split."""

    groups: int
    tiles: int
    tile_bytes: int
    result_bytes: int  # of all rows, in the format of partial results
    workgroups_per_cu: int
    tiles_in_flight: int


def split_cost_ns(work: SplitWork, num_kv_splits: int) -> float:
    """An estimate to compare splits by: the slower of the memory's time for KV and partial results and of the workgroups' time,
    in as many rounds as the compute units need, each tile waiting for its loads."""
    tiles_per_split = -(-work.tiles // num_kv_splits)
    active = -(-work.tiles // tiles_per_split)
    rounds = -(-work.groups * active // (MI355X_CUS * work.workgroups_per_cu))
    partial_bytes = 2 * active * work.result_bytes if active > 1 else 0
    memory_ns = (work.groups * work.tiles * work.tile_bytes + partial_bytes) / MI355X_BYTES_PER_NS
    waiting_ns = rounds * (2 + tiles_per_split / max(work.tiles_in_flight, 1)) * TILE_LATENCY_NS
    return max(memory_ns, waiting_ns)
