"""Helpers of the kind that official reference.py files import: seeding, and comparing with a reference."""

import random

import torch


def get_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def set_seed(seed: int = 42) -> None:
    random.seed(seed)
    torch.manual_seed(seed)


@torch.no_grad()
def verbose_allclose(received, expected, rtol=1e-5, atol=1e-8, max_print=5) -> list[str]:
    if received.shape != expected.shape:
        return [f"shape {tuple(received.shape)}, expected {tuple(expected.shape)}"]
    wrong = ~torch.isclose(received, expected, rtol=rtol, atol=atol, equal_nan=True)
    shown = [f"at {tuple(i)}: {received[tuple(i)]} is not {expected[tuple(i)]}" for i in wrong.nonzero()[:max_print].tolist()]
    return [f"{int(wrong.sum())} mismatched elements", *shown] if shown else []


def match_reference(data, output, reference, rtol=1e-5, atol=1e-8) -> tuple[bool, str]:
    reasons = verbose_allclose(output, reference(data), rtol=rtol, atol=atol)
    return (False, "mismatch: " + " ".join(reasons)) if reasons else (True, "")


def make_match_reference(reference, **tolerances):
    def check_implementation(data, output):
        return match_reference(data, output, reference, **tolerances)

    return check_implementation
