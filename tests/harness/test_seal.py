"""Whatever a submission changes in the worker's clock or channel and leaves changed is found; what others change is not."""

import builtins
import ctypes
import json
import socket
import time
import types

import pytest
import torch

from harness import seal, timing
from harness.protocol import Channel
from harness.seal import Seal
from harness.session import WORKER_CHECKS
from harness.timing import Cold, CpuTimer
from harness.worker import Worker


@pytest.fixture
def timer():
    return CpuTimer(Cold("none"))


def forged(self, call, keep=None):
    return None, call()


def test_an_untouched_clock_is_sealed(timer):
    sealed = Seal(timer, CpuTimer, timing, Seal)
    timer.time(lambda: torch.zeros(3))
    assert sealed.broken() is None


def test_a_replaced_attribute_is_found(timer):
    sealed = Seal(timer, CpuTimer)
    object.__setattr__(timer, "_now", lambda: 0)
    assert sealed.broken() == "_now"


def test_a_replaced_method_is_found(timer, monkeypatch):
    sealed = Seal(timer, CpuTimer)
    monkeypatch.setattr(CpuTimer, "run", forged)
    assert sealed.broken() == "run"


def test_a_shadowed_method_is_found(timer, monkeypatch):
    sealed = Seal(timer, CpuTimer)
    timer.run = forged
    assert sealed.broken() == "run"


@pytest.mark.parametrize("name", ["__code__", "__defaults__"])
def test_swapped_code_and_defaults_are_found(timer, monkeypatch, name):
    sealed = Seal(timer, CpuTimer)
    monkeypatch.setattr(CpuTimer.run, name, getattr(forged, name))
    assert sealed.broken() == "run"


def test_a_detoured_libc_clock_is_found(timer, monkeypatch):
    sealed = Seal(timer)
    monkeypatch.setattr(sealed, "_read", lambda address, size: b"\x90" * size)
    assert sealed.broken() == "clock_gettime"


@pytest.mark.parametrize("operator", ["clone", "copy_", "empty_strided"])
def test_another_kernel_of_an_operator_that_copies_is_found(timer, operator):
    """torch.library can put one there, and outputs would be computed while they are copied."""
    sealed = Seal(timer)
    library = torch.library.Library("aten", "IMPL")
    library.impl(operator, lambda *values, **options: None, "CUDA")
    try:
        assert sealed.broken() == f"aten::{operator}"
    finally:
        library._destroy()
    assert sealed.broken() is None


def test_the_classes_of_a_module_are_sealed_with_it(timer, monkeypatch):
    sealed = Seal(timer, timing)
    monkeypatch.setattr(timing.Sample, "__init__", forged)
    assert sealed.broken() == "__init__"


@pytest.fixture
def worker():
    """One with a clock and no submission."""
    ours, theirs = socket.socketpair()
    made = Worker(Channel(ours))
    made._start([], "cpu", {"method": "none", "nbytes": 0}, dict.fromkeys(WORKER_CHECKS, True))
    yield made
    ours.close()
    theirs.close()


@pytest.mark.parametrize(("owner", "name"), [
    (json, "dumps"), (json.encoder, "c_make_encoder"), (json.JSONEncoder, "encode"), (socket.socket, "send"),
    (ctypes, "addressof"), (ctypes.c_void_p, "from_param"), (timing.Sample, "__init__"), (seal, "zip"),
    (torch.cuda.streams, "super"), (torch.cuda.Event, "elapsed_time"),
], ids=str)  # fmt: skip
def test_what_a_launch_takes_and_a_frame_goes_through_is_sealed(worker, monkeypatch, owner, name):
    """A time could be changed on its way out, a launch be given other arguments."""
    assert worker._idle([]) == ("idle", {})
    monkeypatch.setattr(owner, name, lambda *values, **options: None, raising=False)
    kind, fields = worker._idle([])
    monkeypatch.undo()
    assert (kind, fields["category"]) == ("failed", "tampered")
    assert fields["message"].endswith(f"was changed: {name}")


def test_patched_libraries_are_nobodys_business(timer, monkeypatch):
    """The clock has taken what it calls: tools that wrap torch or time are honest."""
    sealed = Seal(timer, CpuTimer, timing)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 0)
    monkeypatch.setattr(torch, "sum", lambda *_: None)
    assert sealed.broken() is None
    assert timer.time(lambda: torch.zeros(3))[0].elapsed_ns > 0


def test_every_function_of_a_module_is_sealed():
    module = types.ModuleType("sealed")
    exec("def f(): pass\ndef g(): pass", vars(module))
    sealed = Seal(module)
    module.g.__code__ = module.f.__code__
    assert sealed.broken() == "g"
    assert seal.CLOCK_BYTES >= 12  # a jump through a register


@pytest.mark.parametrize("name", ["round", "max", "min", "sum", "vars", "len"])
def test_a_name_that_hides_a_builtin_from_a_module_is_found(timer, monkeypatch, name):
    sealed = Seal(timer, timing)
    monkeypatch.setattr(timing, name, lambda *values: 7, raising=False)
    assert sealed.broken() == name


@pytest.mark.parametrize("name", ["round", "max", "len", "getattr"])
def test_a_replaced_builtin_is_found(timer, monkeypatch, name):
    sealed, genuine = Seal(timer, timing), getattr(builtins, name)
    monkeypatch.setattr(builtins, name, lambda *values: genuine(*values))
    found = sealed.broken()
    monkeypatch.undo()
    assert found == name


def test_a_submission_may_print_in_its_own_way_and_warn(timer, monkeypatch):
    sealed = Seal(timer, timing)
    monkeypatch.setattr(builtins, "print", lambda *values: None)
    monkeypatch.setattr(builtins, "_", 3, raising=False)
    monkeypatch.setattr(timing, "__warningregistry__", {}, raising=False)
    assert sealed.broken() is None
