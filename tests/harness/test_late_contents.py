"""Contents of a GPU's inputs are complete only while the device is held: who saw them earlier would compute ahead."""

import contextlib
import itertools
import socket
import threading
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_session import CALLED

from harness import inputs, memory
from harness.containment import ALL_ON
from harness.defences import Defences
from harness.inputs import LATE_BYTES, LEAST_LATE_BYTES, InputBuffers
from harness.process import Limits, WorkerProcess
from harness.protocol import Channel, ChannelClosed
from harness.session import REVEAL_NS, Session
from harness.timing import Cold

LARGE, SMALL, TINY = LATE_BYTES // 2, LEAST_LATE_BYTES, 64  # floats


@pytest.fixture
def as_on_device(monkeypatch):
    """Buffers of this host that are treated like a GPU's memory, as far as the order of copies is concerned."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)

    def prepared(number: float, *sizes: int) -> InputBuffers:
        buffers = InputBuffers(device_ipc=False)
        buffers.prepare(lambda: tuple(torch.full((size,), number) for size in sizes))
        for buffer in buffers._buffers:
            buffer.on_device = True
        return buffers

    return prepared


def complete(buffers: InputBuffers) -> list[bool]:
    """Of each storage whether workers see all of its contents."""
    pairs = zip(buffers.storages, buffers._originals, strict=True)
    return [torch.equal(memory.byte_view(lent), memory.byte_view(own)) for lent, own in pairs]


@given(st.lists(st.integers(0, 4 * LATE_BYTES) | st.integers(0, 2 * LEAST_LATE_BYTES), max_size=12))
def test_small_storages_are_late_as_a_whole_before_the_ends_of_large_ones(sizes):
    late = inputs._late_bytes(sizes)
    assert sum(late) <= LATE_BYTES + len(sizes) * LEAST_LATE_BYTES
    for size, nbytes in zip(sizes, late, strict=True):
        assert nbytes == 0 if size < LEAST_LATE_BYTES else LEAST_LATE_BYTES <= nbytes <= size
        if nbytes > LEAST_LATE_BYTES:
            smaller = [pair for pair in zip(sizes, late, strict=True) if LEAST_LATE_BYTES <= pair[0] < size]
            assert all(nbytes == size for size, nbytes in smaller)


@pytest.mark.parametrize("sizes", [(LARGE, SMALL), (SMALL, LARGE, SMALL), (LARGE,), (0, SMALL, TINY)])
def test_sets_become_complete_together(as_on_device, monkeypatch, sizes):
    """A thread that saw one complete set early, or one complete storage, could work on it before the clock runs."""
    sets, seen = [as_on_device(number, *sizes) for number in (1.0, 2.0, 3.0)], []
    foreach = torch.ops.aten._foreach_copy_

    def at_once(to, of):
        seen.extend(done for buffers in sets for done, size in zip(complete(buffers), sizes, strict=True) if size >= SMALL)
        foreach(to, of)

    monkeypatch.setattr(torch.ops.aten, "_foreach_copy_", at_once)
    for buffers in sets:
        buffers.pour()
    inputs.reveal(sets)
    assert len(seen) == 3 * sum(size >= SMALL for size in sizes)
    assert not any(seen)  # until then
    for number, buffers in enumerate(sets, 1):
        assert all(complete(buffers))
        assert all(bool((part == number).all()) for part in buffers.value)
        buffers.close()


@pytest.mark.parametrize("early", [True, False])
def test_staged_contents_are_revealed_by_copies_from_pinned_host_memory(as_on_device, monkeypatch, early):
    """The device's own copies would wait until it is let go. Staged early: before a worker can see any of the contents."""
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: threading.Event())
    monkeypatch.setattr(threading.Event, "synchronize", threading.Event.set, raising=False)
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    empty = torch.empty
    seen = []

    def pinning(*shape, pin_memory=False, **options):
        if pin_memory:
            seen.append([bool(memory.byte_view(storage).any()) for storage in buffers.storages])
        return empty(*shape, **options)

    buffers = as_on_device(5.0, LARGE, SMALL, TINY)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", pinning)
        if early:
            buffers.pour(stage=True)
        else:
            buffers.pour()
        reveal = buffers.staged()
    assert seen == [[False, False, False] if early else [True, False, True]] * 2
    assert complete(buffers) == [False, False, True]
    assert bool((buffers.value[0] == 5).all())  # the referee's own
    reveal()
    assert all(complete(buffers))
    buffers.staged()()  # nothing is left; another side of a comparison asks too
    inputs.reveal([buffers])
    buffers.close()


def test_no_pinned_memory_left(as_on_device, monkeypatch):
    """A submission may take it: that is running out of memory, and not the end of the run."""

    def refuse(*shape, pin_memory=False, **options):
        raise RuntimeError("CUDA error: out of memory")

    buffers = as_on_device(5.0, SMALL)
    monkeypatch.setattr(torch, "empty", refuse)
    monkeypatch.setattr(memory, "byte_view", lambda storage: torch.zeros(storage.nbytes(), dtype=torch.uint8))
    with pytest.raises(MemoryError, match="no pinned host memory"):
        buffers.pour(stage=True)
    buffers.close()


def test_contents_that_were_never_revealed_are_dropped(as_on_device):
    buffers = as_on_device(5.0, SMALL)
    buffers.pour()
    buffers.forget()
    inputs.reveal([buffers])
    assert not memory.byte_view(buffers.storages[0]).any()
    buffers.close()


class Late:
    """Inputs that note when they are completed."""

    def __init__(self, log: list[str]):
        self._log = log

    def take_late(self):
        self._log.append("at once")
        return []

    def staged(self):
        self._log.append("staged")
        return lambda: self._log.append("completed")


class Talking:
    """A worker's process that writes down what it is sent."""

    pid = root_pid = 1 << 27  # no process: the kernel keeps no accounts of it

    def __init__(self, log: list[str]):
        ours, theirs = socket.socketpair()
        self.channel, self._theirs, self._log = Channel(ours), Channel(theirs), log
        self.fields: dict = {}
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self):
        with contextlib.suppress(ChannelClosed):  # nothing was asked
            self.fields = self._theirs.receive().fields
            if self.fields["held"]:
                self._log.append("held")
                self._theirs.send("held", {})
                self._log.append(self._theirs.receive().kind)
            self._theirs.send("called", CALLED)

    def close(self):
        self.channel.close()


@pytest.fixture
def on_gpu(tmp_path):
    """A session with a worker on a GPU that it holds, and what happens in it."""
    log, submission = [], tmp_path / "submission.py"
    submission.write_text("")
    session = Session(Talking(log), submission, torch.device("cpu"), 60.0)  # type: ignore[arg-type]
    session.device_ipc = session._empties_last = True
    yield session, log
    session.close()


def test_inputs_are_completed_while_the_device_is_held(on_gpu):
    session, log = on_gpu
    session.call("case", timed=True, sleep_ns=70_000, late=Late(log))
    assert log == ["staged", "held", "completed", "GO"]
    assert session._process.fields["sleep_ns"] == 70_000 + REVEAL_NS


@pytest.mark.parametrize("took_ms", [0, 1, 50])
def test_the_time_that_the_referee_takes_itself_is_not_the_workers(on_gpu, monkeypatch, took_ms):
    session, log = on_gpu
    ticks = itertools.count()
    monkeypatch.setattr("time.perf_counter_ns", lambda: next(ticks) + took_ms * 10**6 * log.count("completed"))
    assert session.call("case", timed=True, sleep_ns=70_000, late=Late(log)).wall_ns < 1000


@pytest.mark.parametrize("why", ["no sleep", "copies", "read before", "nothing late"])
def test_elsewhere_inputs_are_complete_before_the_call(on_gpu, why):
    """Where nothing holds the device, or its caches are emptied before it is held, so that late contents would lie in them."""
    session, log = on_gpu
    session.device_ipc, session._empties_last = why != "copies", why != "read before"
    sleep_ns = 0 if why == "no sleep" else 70_000
    session.call("case", timed=True, sleep_ns=sleep_ns, late=None if why == "nothing late" else Late(log))
    assert log == ([] if why == "nothing late" else ["at once"])
    assert session._process.fields["sleep_ns"] == sleep_ns


SUM = "def custom_kernel(data): return data.sum()"


def test_a_worker_waits_for_the_contents(tmp_path):
    """A real one, with a clock that calls at once whom it is told to when the device is held."""
    folder = tmp_path / "worker"
    folder.mkdir()
    submission, buffers = folder / "submission.py", InputBuffers(device_ipc=False)
    submission.write_text(SUM)
    buffers.staged = lambda: lambda: memory.byte_view(buffers.storages[0]).fill_(1)
    with Session(WorkerProcess(folder, "auto", Limits()), Path(submission), torch.device("cpu"), 300.0) as session:
        session.start(Cold("none"))
        session.load()
        session.device_ipc = session._empties_last = True
        buffers.fill(lambda: torch.zeros(1000, dtype=torch.uint8))
        session.map("case", buffers)
        assert session.take(session.call("case", timed=True)).item() == 0
        assert session.take(session.call("case", timed=True, sleep_ns=1, late=buffers)).item() == 1000
    buffers.close()


@pytest.mark.parametrize("occupied", [True, False])
@pytest.mark.parametrize("cold", [Cold("read", 1 << 20), Cold("randn")])
@pytest.mark.parametrize("unheld", ["", "no driver"])
def test_only_a_device_that_is_read_empty_last_gets_late_contents(tmp_path, monkeypatch, occupied, cold, unheld):
    submission = tmp_path / "submission.py"
    submission.write_text("")
    defences = Defences(**{**vars(ALL_ON), "occupied_device": occupied})
    session = Session(Talking([]), submission, torch.device("cuda", 0), 60.0, defences)  # type: ignore[arg-type]
    monkeypatch.setattr("harness.session.free_device_bytes", lambda device: 1 << 30)
    monkeypatch.setattr(session, "_receive", lambda expected, timeout_s: {})
    monkeypatch.setattr(session, "_ask", lambda kind, fields, expected: {"unheld": unheld})
    session.start(cold)
    assert session._empties_last is (occupied and cold.method == "read" and not unheld)
    session.close()
