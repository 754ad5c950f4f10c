"""Which of a problem's backends serves a call, with which parameters, and the cache of the plans that result."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch

BACKEND_VARIABLE = "KERNELPROOF_BACKEND"
MAX_PLANS = 64  # a plan holds its workspace and output
# A tuned entry is used for a shape at most this far away (in factors of two); beyond it the backend computes defaults.
MAX_DISTANCE = 1.0


class BackendError(RuntimeError):
    """The backend that KERNELPROOF_BACKEND names cannot be used."""


class Backend(Protocol):
    """`data` is what custom_kernel is given, or what the problem makes of it; `shape` what its `shape_of` says of it."""

    name: str

    def available(self, device: torch.device, /) -> str | None:
        """None, or why tensors on `device` cannot be served."""
        ...

    def default_params(self, shape: Any, device: torch.device, /) -> dict[str, Any]:
        """Parameters for a shape without a tuned entry."""
        ...

    def plan(self, data: Any, params: dict[str, Any], /) -> Callable[[Any], Any]:
        """A callable that computes the output for every input whose plan_key equals that of `data`."""
        ...


class Choice(NamedTuple):
    backend: Backend
    params: dict[str, Any]


class Selection:
    """The backends of one problem.

    backends: in order of preference; the first that is available serves a shape without a tuned entry.
    table: {device label: [{"shape": [...], "backend": name, "params": {...}}]}, tuned.
    shape_of: data -> a tuple of sizes and names, in the order of the table's shapes.
    plan_key: data -> a hashable, equal where a plan may be shared.
    check: raises what is wrong with data, once for each plan.
    unserved: why a backend that is available cannot serve data; None if it can.
    """

    def __init__(
        self,
        backends: Sequence[Backend],
        table: dict[str, list[dict[str, Any]]],
        shape_of: Callable[[Any], Any],
        plan_key: Callable[[Any], tuple],
        check: Callable[[Any], None] = lambda data: None,
        unserved: Callable[[Backend, Any], str | None] = lambda backend, data: None,
    ) -> None:
        self.backends, self.table = tuple(backends), table
        self.shape_of, self.plan_key, self.check, self.unserved = shape_of, plan_key, check, unserved
        self.plans: dict[tuple, Callable[[Any], Any]] = {}

    def usable(self, device: torch.device, wanted: str) -> dict[str, Backend]:
        """Available backends by name in order of preference; only `wanted` unless that is "auto". Raises BackendError.

        With a name no other backend is asked: AITER answers by importing itself.
        """
        if wanted == "auto":
            return {backend.name: backend for backend in self.backends if backend.available(device) is None}
        named = {backend.name: backend for backend in self.backends}
        if wanted not in named:
            names = ", ".join(["auto", *named])
            raise BackendError(f"{BACKEND_VARIABLE}={wanted}: no such backend; choose one of {names}")
        reason = named[wanted].available(device)
        if reason:
            raise BackendError(f"{BACKEND_VARIABLE}={wanted}: {reason}; use auto, which takes what this machine has")
        return {wanted: named[wanted]}

    def serving(self, data: Any) -> dict[str, Backend]:
        """Those of the usable backends that can serve `data`. Raises BackendError if it is the wanted one that cannot."""
        wanted = os.environ.get(BACKEND_VARIABLE, "auto")
        backends = self.usable(data[0].device, wanted)
        reasons = {name: self.unserved(backend, data) for name, backend in backends.items()}
        if reason := reasons.get(wanted):
            raise BackendError(f"{BACKEND_VARIABLE}={wanted}: {reason}; use auto, which takes another backend here")
        return {name: backend for name, backend in backends.items() if reasons[name] is None}

    def tuned_entry(self, shape: Sequence[int | str], labels: list[str], names: Sequence[str]) -> dict[str, Any] | None:
        """The nearest tuned entry for one of the backends `names`, from the first label that has one near enough."""
        for label in labels:
            entries = [entry for entry in self.table.get(label, ()) if entry["backend"] in names]
            distances = [distance(shape, entry["shape"]) for entry in entries]
            if distances and min(distances) <= MAX_DISTANCE:
                return entries[distances.index(min(distances))]
        return None

    def entry_for(self, data: Any, names: Sequence[str]) -> dict[str, Any] | None:
        """What the table has for `data` on its device and one of the backends `names`."""
        return self.tuned_entry(self.shape_of(data), device_labels(data[0].device), names)

    def choose(self, data: Any) -> Choice:
        """Tuned entry, else the defaults of the first usable backend. Raises BackendError."""
        shape, device = self.shape_of(data), data[0].device
        backends = self.serving(data)
        entry = self.entry_for(data, list(backends))
        backend = backends[entry["backend"]] if entry else next(iter(backends.values()))
        return Choice(backend, {**backend.default_params(shape, device), **(entry["params"] if entry else {})})

    def plan_for(self, data: Any, plans: dict[tuple, Callable[[Any], Any]] | None = None) -> Callable[[Any], Any]:
        """The plan that serves `data`, kept in `plans` or, without, here. Raises BackendError and what `check` raises."""
        if plans is None:
            plans = self.plans
        key = (os.environ.get(BACKEND_VARIABLE, "auto"), *self.plan_key(data))
        plan = plans.get(key)
        if plan is None:
            self.check(data)
            backend, params = self.choose(data)
            while len(plans) >= MAX_PLANS:
                del plans[next(iter(plans))]
            plan = plans[key] = backend.plan(data, params)
        return plan


def distance(shape: Sequence[int | str], other: Sequence[int | str]) -> float:
    """Sum of |log2| ratios: 1.0 is one factor of two in one size. Shapes that differ in a name are infinitely far."""
    total = 0.0
    for mine, theirs in zip(shape, other, strict=True):
        if isinstance(mine, str) or isinstance(theirs, str):
            total += 0.0 if mine == theirs else math.inf
        else:
            total += abs(math.log2(max(mine, 1) / max(theirs, 1)))
    return total


def device_labels(device: torch.device) -> list[str]:
    """What a table may call this device, most specific first: words of its name, then its architecture."""
    if device.type != "cuda":
        return [device.type]
    properties = torch.cuda.get_device_properties(device)
    # On ROCm gcnArchName reads like "gfx950:sramecc+:xnack-".
    arch = getattr(properties, "gcnArchName", "").split(":")[0] or f"sm_{properties.major}{properties.minor}"
    return [*properties.name.split(), arch]


def tensor_key(tensor: torch.Tensor) -> tuple:
    """Everything but the contents and the exact address: compiled kernels may assume 16-byte alignment."""
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.data_ptr() & 15
