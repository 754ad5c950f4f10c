"""From options to what a sweep works with: the table, the machine, a search for every shape."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from harness.cli import choose_cases
from harness.devices import DEVICES_FILE, describe_device, select_device
from harness.problem import Problem, load_problem
from harness.result import Device
from popcorn.cases import Case
from sweep.config import BackendSpace, Preset, SweepConfig, load_config
from sweep.errors import SpaceError, UsageError
from sweep.screen import screen_for
from sweep.search import ShapeSearch
from sweep.space import Space
from sweep.store import Store, digest_of, study_name
from sweep.submission import TABLE, kernels_digest
from sweep.table import DispatchTable
from sweep.variant import Machine, Target, Variant

REMOTE_PRESET, DEFAULT_PRESET = "remote", "quick"


@dataclass(frozen=True)
class Setup:
    """Everything that is known before something is measured. `via`: who measures, whose times compare with each other."""

    root: Path
    config: SweepConfig
    preset: Preset
    problem: Problem
    table: DispatchTable
    machine: Machine
    label: str
    via: str
    targets: tuple[Target, ...]
    backends: tuple[BackendSpace, ...]

    def spaces(self) -> list[Space]:
        """The space of every target. Raises SpaceError."""
        return [Space(self.backends, self.preset, target.shape) for target in self.targets]

    def identity(self, target: Target) -> dict[str, str]:
        """The conditions under which a target's times hold."""
        spaces = {b.name: [b.params, list(map(str, b.constraints))] for b in self.config.backends.values()}
        return {
            "kernels": kernels_digest(self.root, self.problem.name),
            "space": digest_of(spaces),
            "case": target.case.text,
            "device": self.machine.name,
            "driver": str(self.machine.driver),
            "torch": str(self.machine.torch),
        }

    def searches(self, store: Store, restart: bool, is_late: Callable[[], bool]) -> list[ShapeSearch]:
        """A search for every target, resumed where the store has one. Raises OtherStudy, StorageUnreachable, SpaceError."""
        searches = []
        screen = screen_for(self.backends)
        for target, space in zip(self.targets, self.spaces(), strict=True):
            name = f"{study_name(self.problem.name, self.label, target.shape)}/{self.via}"
            study = store.study(name, self.identity(target), restart)
            entry, seeds = self.table.entry(self.label, target.shape), self._seeds()
            searches.append(ShapeSearch(target, space, study, self.preset, entry, seeds, screen, is_late))
        return searches

    def _seeds(self) -> list[Variant]:
        """Settings that serve this device's shapes."""
        names = {backend.name for backend in self.backends}
        return [variant for variant in self.table.variants(self.label) if variant.backend in names]


def set_up(options: argparse.Namespace) -> Setup:
    """Read everything. Raises SweepError, HarnessError, PopcornError."""
    root: Path = options.root
    config, problem = load_config(root / "configs" / "sweep.yml"), load_problem(root / "configs")
    table = DispatchTable(root / TABLE, problem.name)
    remote = options.executor == "popcorn"
    device = leaderboard_device(problem) if remote else describe_device(select_device(options.device))
    machine = Machine(device.name, device.arch, device.kind, device.driver, device.torch)
    preset = _preset(config, options.preset or (REMOTE_PRESET if remote else DEFAULT_PRESET), options.minutes)
    cases = _cases(options, problem, device)
    return Setup(
        root=root,
        config=config,
        preset=preset,
        problem=problem,
        table=table,
        machine=machine,
        label=table.label_for(machine),
        via="popcorn" if remote else "local",
        targets=targets_of(cases, config),
        backends=_backends(config, options.backend, machine),
    )


def leaderboard_device(problem: Problem) -> Device:
    """The GPU that the problem's task.yml names, as configs/devices.yml knows it. Raises UsageError."""
    if not problem.task.gpus:
        raise UsageError(f"{problem.directory}: task.yml names no gpu; --executor popcorn runs on the leaderboard's")
    name = problem.task.gpus[0]
    entries = yaml.safe_load(DEVICES_FILE.read_text(encoding="utf-8"))
    arch = next((entry["arch"] for entry in entries if entry["match"].lower() in name.lower()), None)
    if arch is None:
        raise UsageError(f"{name}: configs/devices.yml does not know this GPU; add an entry that says its architecture")
    return Device(name, "hip" if arch.startswith("gfx") else "cuda", arch)


def targets_of(cases: Sequence[Case], config: SweepConfig) -> tuple[Target, ...]:
    """A target for every shape; of cases that dispatch cannot tell apart the first counts."""
    found: dict[tuple[int, ...], Target] = {}
    for case in cases:
        shape = config.shape_of(case.spec)
        found.setdefault(shape, Target(shape, case))
    return tuple(found.values())


def _cases(options: argparse.Namespace, problem: Problem, device: Device) -> tuple[Case, ...]:
    if options.executor == "popcorn":
        if options.cases not in (None, "official"):
            raise UsageError(f"--cases {options.cases}: a server runs its own cases; leave it out with --executor popcorn")
        return problem.task.cases("benchmark")
    return choose_cases(options.cases, problem, "benchmark", device)[1]


def _preset(config: SweepConfig, name: str, minutes: float | None) -> Preset:
    if minutes is not None and not minutes > 0:
        raise UsageError(f"--minutes {minutes:g}: has to be more than 0")
    if name not in config.presets:
        raise UsageError(f"--preset {name}: no such preset; choose one of {', '.join(config.presets)}")
    preset = config.presets[name]
    return preset if minutes is None else replace(preset, minutes=minutes)


def _backends(config: SweepConfig, wanted: str | None, machine: Machine) -> tuple[BackendSpace, ...]:
    """The backends that exist for the device, or the one that was asked for."""
    forced = os.environ.get("KERNELPROOF_BACKEND", "auto")
    wanted = wanted or (None if forced == "auto" else forced)
    if wanted is not None and wanted not in config.backends:
        raise UsageError(f"--backend {wanted}: configs/sweep.yml has no space for it; it has {', '.join(config.backends)}")
    chosen = [b for b in config.backends.values() if wanted in (None, b.name) and b.serves(machine.kind, machine.arch)]
    if not chosen:
        where = f"{machine.name} ({machine.kind}, {machine.arch})"
        raise SpaceError(f"nothing to search: by `devices` in configs/sweep.yml {wanted or 'no backend'} is not for {where}")
    return tuple(chosen)
