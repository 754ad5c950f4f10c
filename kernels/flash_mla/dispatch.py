"""Which backend and which parameters serve a call of flash_mla_with_kvcache."""

from __future__ import annotations

import math
import os
from typing import Any, Protocol

import torch

from kernels.flash_mla.call import Call
from kernels.flash_mla.tables import FLASH_MLA_TABLE
from kernels.flash_mla.torch_backend import TorchBackend
from kernels.flash_mla.triton_backend import TritonBackend

BACKEND_VARIABLE = "KERNELPROOF_BACKEND"
MAX_DISTANCE = 1.0  # an entry serves shapes at most this far away, in factors of two


class BackendError(RuntimeError):
    """The backend that KERNELPROOF_BACKEND names cannot be used."""


class Backend(Protocol):
    name: str

    def available(self, device: torch.device) -> str | None: ...

    def default_params(self, call: Call) -> dict[str, Any]: ...

    def plan(self, call: Call, params: dict[str, Any]) -> Any: ...


BACKENDS: tuple[Backend, ...] = (TritonBackend(), TorchBackend())


def choose(call: Call) -> tuple[Backend, dict[str, Any]]:
    """The backend and all its parameters. Raises BackendError."""
    backend = usable_backend(call.q.device, os.environ.get(BACKEND_VARIABLE, "auto"))
    entry = tuned_entry(call, device_labels(call.q.device)) if backend.name == "triton" else {}
    return backend, {**backend.default_params(call), **entry}


def usable_backend(device: torch.device, wanted: str) -> Backend:
    """The first available backend, or the one that is `wanted`."""
    known = {backend.name: backend for backend in BACKENDS}
    if wanted == "auto":
        return next(backend for backend in BACKENDS if backend.available(device) is None)
    if wanted not in known:
        raise BackendError(f"{BACKEND_VARIABLE}={wanted}: no such backend; choose one of {', '.join(['auto', *known])}")
    reason = known[wanted].available(device)
    if reason:
        raise BackendError(f"{BACKEND_VARIABLE}={wanted}: {reason}; use auto, which takes what this machine has")
    return known[wanted]


def device_labels(device: torch.device) -> list[str]:
    """What the table may call this device, most specific first: words of its name, then its architecture."""
    if device.type != "cuda":
        return [device.type]
    properties = torch.cuda.get_device_properties(device)
    arch = getattr(properties, "gcnArchName", "").split(":")[0] or f"sm_{properties.major}{properties.minor}"
    return [*properties.name.split(), arch]


def workload(call: Call) -> tuple[str, tuple[int, ...]]:
    """What the table knows a call by: its kind, and (batch, q_len, heads, tokens)."""
    kind = "dense" if call.indices is None else call.layout
    return kind, (*call.q.shape[:3], call.tokens)


def tuned_entry(call: Call, labels: list[str]) -> dict[str, Any]:
    """Parameters of the nearest entry of the call's kind, from the first label that has one near enough; else nothing."""
    kind, shape = workload(call)
    for label in labels:
        entries = [entry for entry in FLASH_MLA_TABLE.get(label, ()) if entry["kind"] == kind]
        near = min(entries, key=lambda entry: distance(entry["shape"], shape), default=None)
        if near is not None and distance(near["shape"], shape) <= MAX_DISTANCE:
            return near["params"]
    return {}


def distance(known: list[int], shape: tuple[int, ...]) -> float:
    """Sum of |log2| ratios: 1.0 is one factor of two in one dimension."""
    return sum(abs(math.log2(max(a, 1) / max(b, 1))) for a, b in zip(known, shape, strict=True))
