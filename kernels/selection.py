"""Which of a problem's backends serves a call, with which parameters, and the cache of the plans that result."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

BACKEND_VARIABLE = "KERNELPROOF_BACKEND"
MAX_PLANS = 64  # a plan holds its workspace and output
# A tuned entry is used for a shape at most this far away (in factors of two); beyond it the backend computes defaults.
MAX_DISTANCE = 1.0


class BackendError(RuntimeError):
    """The backend that KERNELPROOF_BACKEND names cannot be used."""


class Choice(NamedTuple):
    backend: Any
    params: dict[str, Any]


class Selection:
    """The backends of one problem.

    backends: in order of preference, each with name, available(device), default_params(shape, device), plan(data, params).
    table: {device label: [{"shape": [...], "backend": name, "params": {...}}]}, tuned.
    shape_of: data -> a named tuple with `distance`; plan_key: data -> a hashable, equal where a plan may be shared.
    check: raises what is wrong with data, once for each plan.
    """

    def __init__(
        self,
        backends: Sequence[Any],
        table: dict[str, list[dict[str, Any]]],
        shape_of: Callable[[tuple], Any],
        plan_key: Callable[[tuple], tuple],
        check: Callable[[tuple], None],
    ) -> None:
        self.backends, self.table = tuple(backends), table
        self.shape_of, self.plan_key, self.check = shape_of, plan_key, check
        self.plans: dict[tuple, Callable[[tuple], torch.Tensor]] = {}

    def usable(self, device: torch.device, wanted: str) -> dict[str, Any]:
        """Available backends by name in order of preference; only `wanted` unless that is "auto". Raises BackendError."""
        reasons = {backend.name: backend.available(device) for backend in self.backends}
        if wanted == "auto":
            return {backend.name: backend for backend in self.backends if reasons[backend.name] is None}
        if wanted not in reasons:
            names = ", ".join(["auto", *reasons])
            raise BackendError(f"{BACKEND_VARIABLE}={wanted}: no such backend; choose one of {names}")
        if reasons[wanted]:
            raise BackendError(f"{BACKEND_VARIABLE}={wanted}: {reasons[wanted]}; use auto, which takes what this machine has")
        return {backend.name: backend for backend in self.backends if backend.name == wanted}

    def tuned_entry(self, shape: Any, labels: list[str], names: Sequence[str]) -> dict[str, Any] | None:
        """The nearest tuned entry for one of the backends `names`, from the first label that has one near enough."""
        for label in labels:
            entries = [entry for entry in self.table.get(label, ()) if entry["backend"] in names]
            distances = [shape.distance(type(shape)(*entry["shape"])) for entry in entries]
            if distances and min(distances) <= MAX_DISTANCE:
                return entries[distances.index(min(distances))]
        return None

    def choose(self, data: tuple) -> Choice:
        """Tuned entry, else the defaults of the first usable backend. Raises BackendError."""
        shape, device = self.shape_of(data), data[0].device
        backends = self.usable(device, os.environ.get(BACKEND_VARIABLE, "auto"))
        entry = self.tuned_entry(shape, device_labels(device), list(backends))
        backend = backends[entry["backend"]] if entry else next(iter(backends.values()))
        return Choice(backend, {**backend.default_params(shape, device), **(entry["params"] if entry else {})})

    def plan_for(self, data: tuple) -> Callable[[tuple], torch.Tensor]:
        """The plan that serves `data`. Raises BackendError and what `check` raises."""
        key = (os.environ.get(BACKEND_VARIABLE, "auto"), *self.plan_key(data))
        plan = self.plans.get(key)
        if plan is None:
            self.check(data)
            backend, params = self.choose(data)
            while len(self.plans) >= MAX_PLANS:
                del self.plans[next(iter(self.plans))]
            plan = self.plans[key] = backend.plan(data, params)
        return plan


def device_labels(device: torch.device) -> list[str]:
    """What a table may call this device, most specific first: words of its name, then its architecture."""
    if device.type != "cuda":
        return [device.type]
    properties = torch.cuda.get_device_properties(device)
    # On ROCm gcnArchName reads like "gfx950:sramecc+:xnack-".
    arch = getattr(properties, "gcnArchName", "").split(":")[0] or f"sm_{properties.major}{properties.minor}"
    return [*properties.name.split(), arch]
