"""Triton as far as it is installed, and launches without its analysis of arguments at every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

try:
    import triton
    import triton.language as tl
    from triton import OutOfResources
except ImportError:  # triton_unavailable says so
    triton = tl = None  # type: ignore[assignment]
    OutOfResources = MemoryError


def undecorated(function: Any = None, **options: Any) -> Any:
    """What stands for triton.jit where there is no Triton."""
    return undecorated if function is None else function


jit: Any = triton.jit if triton else undecorated


def interpreted(kernel: Any) -> bool:
    """Whether TRITON_INTERPRET was set when `kernel` was defined."""
    return not hasattr(kernel, "cache_key")


def triton_unavailable(kernel: Any, device: torch.device) -> str | None:
    """Why `kernel` cannot serve tensors on `device`; None if it can."""
    if not hasattr(kernel, "warmup"):
        return "Triton is not installed"
    if device.type != "cuda" and not interpreted(kernel):
        return f"Triton needs a GPU and the tensors are on {device.type}"
    return None


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


def multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def planned_on(device: torch.device, make: Callable[[], Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """The plan that `make` makes; where there are several GPUs, made and called with `device` as the current one.

    Triton launches on the current device.
    """
    if device.type != "cuda" or torch.cuda.device_count() == 1:
        return make()
    with torch.cuda.device(device):
        plan = make()

    def run_on_device(data: Any) -> Any:
        with torch.cuda.device(device):
            return plan(data)

    return run_on_device


def launcher(
    kernel: Any, grid: tuple[int, int, int], args: tuple, constants: dict[str, Any], options: dict[str, Any]
) -> Callable[..., None]:
    """A callable that launches `kernel` on other `args` of the same types and alignments as these, without Triton's
    analysis of arguments at every call. `constants`: the constexpr parameters, which follow `args` in this order.

    Raises triton.OutOfResources if the kernel needs more shared memory than there is.
    """
    if interpreted(kernel):
        return lambda *args: kernel[grid](*args, **constants)
    launch = kernel.warmup(*args, grid=grid, **constants, **options)[grid]
    tail = tuple(constants.values())
    return lambda *args: launch(*args, *tail)
