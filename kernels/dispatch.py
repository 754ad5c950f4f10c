"""Which backend and which parameters serve a call, and the cache of the plans that result."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch

from kernels.aiter_backend import AiterBackend
from kernels.assets import DISPATCH_TABLE
from kernels.cuda_backend import CudaBackend
from kernels.hip_backend import HipBackend
from kernels.layout import Shape, plan_key, shape_of
from kernels.torch_backend import TorchBackend
from kernels.triton_backend import TritonBackend
from task import input_t

BACKEND_VARIABLE = "KERNELPROOF_BACKEND"
MAX_PLANS = 64  # a plan holds its workspace and output
# A tuned entry is used for a shape at most this far away (in factors of two); beyond it the backend computes defaults.
MAX_DISTANCE = 1.0


class BackendError(RuntimeError):
    """The backend that KERNELPROOF_BACKEND names cannot be used."""


class Backend(Protocol):
    name: str

    def available(self, device: torch.device) -> str | None:
        """None, or why tensors on `device` cannot be served."""
        ...

    def default_params(self, shape: Shape, device: torch.device) -> dict[str, Any]:
        """Parameters for a shape without a tuned entry."""
        ...

    def plan(self, data: input_t, params: dict[str, Any]) -> Callable[[input_t], torch.Tensor]:
        """A callable for every input whose plan_key equals that of `data`; it returns bf16 [total_q, heads, 512]."""
        ...


# In order of preference; the first that is available serves a shape without a tuned entry.
BACKENDS: tuple[Backend, ...] = (HipBackend(), AiterBackend(), TritonBackend(), CudaBackend(), TorchBackend())


class Choice(NamedTuple):
    backend: Backend
    params: dict[str, Any]


def usable_backends(device: torch.device, wanted: str) -> list[Backend]:
    """Available backends in order of preference; only `wanted` unless that is "auto"."""
    if wanted == "auto":
        return [backend for backend in BACKENDS if backend.available(device) is None]
    for backend in BACKENDS:
        if backend.name == wanted:
            reason = backend.available(device)
            if reason:
                raise BackendError(f"{BACKEND_VARIABLE}={wanted}: {reason}; use auto, which takes what this machine has")
            return [backend]
    names = ", ".join(["auto", *(backend.name for backend in BACKENDS)])
    raise BackendError(f"{BACKEND_VARIABLE}={wanted}: no such backend; choose one of {names}")


def device_labels(device: torch.device) -> list[str]:
    """What dispatch.yml may call this device, most specific first: words of its name, then its architecture."""
    if device.type != "cuda":
        return [device.type]
    properties = torch.cuda.get_device_properties(device)
    # On ROCm gcnArchName reads like "gfx950:sramecc+:xnack-".
    arch = getattr(properties, "gcnArchName", "").split(":")[0] or f"sm_{properties.major}{properties.minor}"
    return [*properties.name.split(), arch]


def tuned_entry(shape: Shape, labels: list[str], names: list[str]) -> dict[str, Any] | None:
    """The nearest tuned entry for one of the backends `names`, from the first label that has one near enough."""
    for label in labels:
        near = []
        for entry in DISPATCH_TABLE.get(label, ()):
            distance = shape.distance(Shape(*entry["shape"]))
            if entry["backend"] in names and distance <= MAX_DISTANCE:
                near.append((distance, entry))
        if near:
            return min(near, key=lambda pair: pair[0])[1]
    return None


def choose(shape: Shape, device: torch.device, wanted: str) -> Choice:
    """Never fails for a shape: tuned entry, else the defaults of the first usable backend.

    Raises BackendError if `wanted` names no backend, or one that is not available here.
    """
    backends = {backend.name: backend for backend in usable_backends(device, wanted)}
    entry = tuned_entry(shape, device_labels(device), list(backends))
    if entry is None:
        backend = next(iter(backends.values()))
        return Choice(backend, backend.default_params(shape, device))
    backend = backends[entry["backend"]]
    return Choice(backend, {**backend.default_params(shape, device), **entry["params"]})


PLANS: dict[tuple, Callable[[input_t], torch.Tensor]] = {}


def plan_for(data: input_t) -> Callable[[input_t], torch.Tensor]:
    wanted = os.environ.get(BACKEND_VARIABLE, "auto")
    key = (wanted, *plan_key(data))
    plan = PLANS.get(key)
    if plan is None:
        backend, params = choose(shape_of(data), data[0].device, wanted)
        while len(PLANS) >= MAX_PLANS:
            del PLANS[next(iter(PLANS))]
        plan = PLANS[key] = backend.plan(data, params)
    return plan
