"""Layers behind which a worker cannot start, or cannot reach its device, give way to the next; nothing else does."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from harness import containment, referee
from harness.containment import Containment, ways
from harness.errors import SubmissionNotLoaded

WAYS = (
    Containment("bubblewrap", True, 7, True),
    Containment("namespaces", False, 7, True),
    Containment("none", False, 7, True),
    Containment("none", False, 0, False),
)


class FakeSession(SimpleNamespace):
    def close(self):
        self.closed = True


def workers_on(monkeypatch, device, starts, shares=()):
    """Workers whose processes start behind `starts` and share device memory behind `shares` (indices of WAYS)."""
    monkeypatch.setattr(containment, "ways", lambda defences: iter(WAYS))
    refused = {False: "", True: "IPC handle refused\nand more"}
    monkeypatch.setattr(referee, "why_not_shared", lambda session, device: refused[WAYS.index(session.way) not in shares])
    request = SimpleNamespace(device=torch.device(device), defences=None)
    workers = referee.Workers(request, Path("submission.py"), Path("scratch"))

    def begin(way, device_ipc):
        if WAYS.index(way) not in starts:
            raise SubmissionNotLoaded("submission.py: the worker did not start")
        return FakeSession(way=way, device_ipc=device_ipc, closed=False)

    monkeypatch.setattr(workers, "_begin", begin)
    return workers


@pytest.mark.parametrize("chosen", range(len(WAYS)))
def test_a_cpu_takes_the_strongest_that_starts(monkeypatch, chosen):
    workers = workers_on(monkeypatch, "cpu", range(chosen, len(WAYS)))
    session = workers._contained()
    assert session.way is WAYS[chosen]
    assert workers.containment is WAYS[chosen]
    assert not session.device_ipc
    assert len(workers.given_up) == chosen


@pytest.mark.parametrize(
    ("starts", "shares", "chosen", "ipc"),
    [
        ((0, 1, 2, 3), (0, 1, 2, 3), 0, True),
        ((0, 1, 2, 3), (1, 2, 3), 1, True),
        ((1, 2, 3), (2, 3), 2, True),
        ((0, 1, 2, 3), (), 0, False),
        ((1, 2, 3), (3,), 1, False),  # rather copies than nothing that contains
        ((3,), (3,), 3, True),
        ((3,), (), 3, False),
    ],
)
def test_a_gpu_takes_the_strongest_that_shares_memory_else_copies(monkeypatch, starts, shares, chosen, ipc):
    workers = workers_on(monkeypatch, "cuda", starts, shares)
    session = workers._contained()
    assert session.way is WAYS[chosen]
    assert session.device_ipc is workers.device_ipc is ipc
    assert not session.closed


def test_what_was_given_up_is_said_in_one_line(monkeypatch):
    workers = workers_on(monkeypatch, "cuda", (1, 2, 3), (2,))
    workers._contained()
    first, second = workers.given_up
    assert first.startswith("not behind process, bubblewrap, own processes, no network,")
    assert first.endswith(": no worker starts there: submission.py: the worker did not start")
    assert second.endswith(": device memory cannot be shared: IPC handle refused")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_worker_that_starts_nowhere_is_an_error(monkeypatch, device):
    with pytest.raises(SubmissionNotLoaded):
        workers_on(monkeypatch, device, ())._contained()


def test_no_submission_can_talk_its_successor_out_of_the_layers(monkeypatch):
    """Once one has started, workers start behind the same layers or not at all, whatever has become of the machine."""
    starts = [0, 1, 2, 3]
    workers = workers_on(monkeypatch, "cuda", starts, (0, 1, 2, 3))
    workers._contained()
    starts.remove(0)
    with pytest.raises(SubmissionNotLoaded):
        workers._contained()
    assert workers.containment is WAYS[0]


def test_the_last_resort_contains_nothing_and_says_so():
    *_, last = ways()
    assert last.layers == ("process", "limits")
    assert not last.contains
    assert "not contained" in last.warning
