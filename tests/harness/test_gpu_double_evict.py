"""Emptying a GPU's caches, with the CPU in the GPU's place: what is taken, when, and whose names are used."""

import ctypes
from types import SimpleNamespace

import torch

from harness import timing
from harness.timing import Cold, evictor, persistence_reset, randomizer

CPU = torch.device("cpu")
GPU = torch.device("cuda", 0)


def test_random_numbers_are_new_every_time_in_the_same_memory(monkeypatch):
    made = []
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *a, **k: made.append(empty(*a, **k)) or made[-1])
    fill = randomizer(CPU, (10, 100))
    assert made == []  # a run that times nothing takes no memory
    seen = []
    for _ in range(3):
        fill()
        seen.append(made[0].clone())
    assert len(made) == 1
    assert not torch.equal(seen[0], seen[1])
    assert abs(float(torch.stack(seen).mean())) < 0.1
    assert made[0].dtype == torch.float32


def test_the_official_clear_is_as_large_as_the_official_one():
    assert 4 * torch.Size(timing.RANDN_SHAPE).numel() == timing.RANDN_BYTES


def test_what_a_submission_patches_later_is_not_used(monkeypatch):
    fill = randomizer(CPU, (10,))

    def forged(*_, **__):
        raise AssertionError("a patched function was called")

    monkeypatch.setattr(torch, "randn", forged)
    monkeypatch.setattr(torch, "empty", forged)
    fill()


class Driver:
    def __init__(self):
        self.calls = []

    def cuCtxSetLimit(self, limit, size):
        self.calls.append((limit, size.value))
        return 0

    def cuCtxResetPersistingL2Cache(self):
        self.calls.append("reset")
        return 0


def test_persisting_lines_are_given_up_before_the_read(monkeypatch):
    driver = Driver()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    monkeypatch.setattr(timing, "reader", lambda device, nbytes: lambda: driver.calls.append(f"read {nbytes}"))
    evictor(GPU, Cold("read", 1 << 20))()
    assert driver.calls == [(6, 0), "reset", "read 1048576"]


def test_drivers_without_persisting_lines(monkeypatch):
    """HIP has no libcuda, and drivers before CUDA 11 lack the functions."""
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    persistence_reset(GPU)()

    def missing(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    persistence_reset(GPU)()
    persistence_reset(CPU)()
