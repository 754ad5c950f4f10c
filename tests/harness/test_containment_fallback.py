"""Layers behind which a worker cannot start, or cannot reach its device, give way to the next; nothing else does."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from harness import referee
from harness.containment import Containment, ways
from harness.errors import SubmissionNotLoaded

KINDS = (("bubblewrap", True), ("namespaces", False), ("none", False))
WAYS = tuple(Containment(wall, processes, 0, False) for wall, processes in KINDS)


class FakeSession(SimpleNamespace):
    def close(self):
        self.closed = True


def workers_on(monkeypatch, device, starts, shares=()):
    """Workers whose processes start behind `starts` and share device memory behind `shares` (indices of WAYS)."""
    monkeypatch.setattr(referee, "ways", lambda defences: iter(WAYS))
    monkeypatch.setattr(referee, "_shares_device_memory", lambda session, device: WAYS.index(session.way) in shares)
    request = SimpleNamespace(device=torch.device(device), defences=None)
    workers = referee.Workers(request, Path("submission.py"), Path("scratch"))

    def begin(containment):
        if WAYS.index(containment) not in starts:
            raise SubmissionNotLoaded("submission.py: the worker did not start")
        return FakeSession(way=containment, closed=False)

    monkeypatch.setattr(workers, "_begin", begin)
    return workers


@pytest.mark.parametrize(("starts", "chosen"), [((0, 1, 2), 0), ((1, 2), 1), ((2,), 2)])
def test_a_cpu_takes_the_strongest_that_starts(monkeypatch, starts, chosen):
    workers = workers_on(monkeypatch, "cpu", starts)
    session = workers._contained()
    assert session.way is WAYS[chosen]
    assert workers.containment is WAYS[chosen]
    assert not session.device_ipc


@pytest.mark.parametrize(
    ("starts", "shares", "chosen", "ipc"),
    [
        ((0, 1, 2), (0, 1, 2), 0, True),
        ((0, 1, 2), (1, 2), 1, True),
        ((1, 2), (2,), 2, True),
        ((0, 1, 2), (), 0, False),
        ((2,), (), 2, False),
    ],
)
def test_a_gpu_takes_the_strongest_that_shares_memory_else_copies(monkeypatch, starts, shares, chosen, ipc):
    workers = workers_on(monkeypatch, "cuda", starts, shares)
    session = workers._contained()
    assert session.way is WAYS[chosen]
    assert session.device_ipc is workers.device_ipc is ipc


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_worker_that_starts_nowhere_is_an_error(monkeypatch, device):
    with pytest.raises(SubmissionNotLoaded):
        workers_on(monkeypatch, device, ())._contained()


def test_the_last_resort_contains_nothing_and_says_so():
    *_, last = ways()
    assert last.layers == ("process", "limits")
    assert "not contained" in last.warning
