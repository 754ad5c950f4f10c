"""Helpers that popcorn evaluators and reference implementations import by these names."""

import os
import random

import numpy as np
import torch


def set_seed(seed: int = 42) -> None:
    """Seeds Python, numpy and torch (all devices)."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def get_device(use_cuda: bool = True) -> torch.device:
    """The accelerator if there is one and it is wanted, else the CPU."""
    if use_cuda and torch.cuda.is_available():
        return torch.device("cuda")
    if use_cuda and torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def _first_mismatches(received: torch.Tensor, expected: torch.Tensor, mismatched: torch.Tensor, max_print: int) -> list[str]:
    """The lines that public evaluators print: the count, then the first `max_print` places."""
    count = int(mismatched.count_nonzero())
    lines = [f"Number of mismatched elements: {count}"]
    for index in mismatched.nonzero()[:max_print]:
        place = tuple(index.tolist())
        lines.append(f"ERROR at {place}: {received[place]} {expected[place]}")
    if count > max_print:
        lines.append(f"... and {count - max_print} more mismatched elements.")
    return lines


@torch.no_grad()
def verbose_allclose(
    received: torch.Tensor, expected: torch.Tensor, rtol: float = 1e-05, atol: float = 1e-08, max_print: int = 5
) -> tuple[bool, list[str]]:
    """Whether |received - expected| <= atol + rtol * |expected| everywhere, and lines saying where not.

    NaN matches NaN and an infinity itself.
    """
    if received.shape != expected.shape:
        return False, ["SIZE MISMATCH"]
    difference = (received.float() - expected.float()).abs()
    mismatched = difference > atol + rtol * expected.abs()
    for is_special in (torch.isnan, torch.isposinf, torch.isneginf):
        mismatched |= is_special(received) ^ is_special(expected)
    if mismatched.any():
        return False, _first_mismatches(received, expected, mismatched, max_print)
    return True, [f"Maximum error: {difference.max()}" if difference.numel() else "Maximum error: 0.0"]


@torch.no_grad()
def verbose_allequal(received: torch.Tensor, expected: torch.Tensor, max_print: int = 5) -> tuple[bool, list[str]]:
    """Whether two tensors of one shape are equal element by element, and lines saying where not."""
    if received.shape != expected.shape:
        return False, ["SIZE MISMATCH"]
    mismatched = received != expected
    if mismatched.any():
        return False, _first_mismatches(received, expected, mismatched, max_print)
    return True, []


def match_reference(data, output: torch.Tensor, reference, rtol: float = 1e-05, atol: float = 1e-08) -> tuple[bool, str]:
    """Compares `output` with `reference(data)`: the usual body of a problem's `check_implementation`."""
    good, reasons = verbose_allclose(output, reference(data), rtol=rtol, atol=atol)
    return good, "\\n".join(reasons)  # a literal \n: the message travels on one line of the result pipe


def make_match_reference(reference, **tolerances):
    """A `check_implementation(data, output)` around `match_reference`."""

    def check(data, output):
        return match_reference(data, output, reference=reference, **tolerances)

    return check


class DeterministicContext:
    """Deterministic algorithms and no TF32 inside the `with` block; the former settings come back afterwards."""

    def __enter__(self):
        self._cublas = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
        self._cudnn = (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic)
        self._algorithms = torch.are_deterministic_algorithms_enabled()
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # cuBLAS is deterministic only with a fixed workspace
        torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = False, True
        torch.use_deterministic_algorithms(True)
        return self

    def __exit__(self, exc_type, exc_value, traceback):
        torch.use_deterministic_algorithms(self._algorithms)
        torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = self._cudnn
        if self._cublas is None:
            del os.environ["CUBLAS_WORKSPACE_CONFIG"]
        else:
            os.environ["CUBLAS_WORKSPACE_CONFIG"] = self._cublas


def clear_l2_cache() -> None:
    """Evicts the L2 cache by writing 256 MiB."""
    torch.full((32, 1024, 1024), 42, dtype=torch.int64, device="cuda")


def clear_l2_cache_large() -> None:
    """Evicts every cache of an MI355X (256 MB Infinity Cache included) the official way: 62.5 GiB of fresh normal numbers."""
    torch.randn((16000, 1024, 1024), device="cuda")
