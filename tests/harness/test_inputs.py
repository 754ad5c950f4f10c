"""Inputs travel to a real worker and back unchanged, and the referee's copy is out of its reach."""

import mmap
import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from test_codec import same, values

from harness import memory, session
from harness.codec import snapshot
from harness.inputs import InputBuffers
from harness.process import Limits, WorkerProcess
from harness.session import Session
from harness.timing import Cold

ECHO = """
def custom_kernel(data):
    if type(data) is tuple:
        data = {"value": data[1], "act": data[2]}
    return data["value"] if data["act"] == "echo" else data["value"].add_(1)
"""


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("echo") / "worker"
    folder.mkdir()
    submission = Path(folder, "submission.py")
    submission.write_text(ECHO)
    process = WorkerProcess(folder, "auto", Limits())
    with Session(process, submission, torch.device("cpu"), 300.0) as session:
        session.start(Cold("none"))
        session.load()
        yield session


@pytest.fixture
def buffers():
    made = InputBuffers(device_ipc=False)
    yield made
    made.close()


def test_a_burst_has_room_for_as_many_sets_as_memory_and_descriptors_allow(worker, buffers):
    buffers.fill(lambda: [torch.zeros(1) for _ in range(100)])
    assert worker.room_for(buffers) == 5
    buffers.fill(lambda: torch.zeros(1 << 20))
    assert 1 <= worker.room_for(buffers) <= session.MAX_BURST_FILES


@pytest.mark.parametrize(("free", "sets"), [(0, 1), (100 << 20, 3), (1 << 40, 512)])
def test_on_a_gpu_the_memory_counts_that_was_free_before_the_submission(worker, buffers, monkeypatch, free, sets):
    monkeypatch.setattr(worker, "_free_bytes", free)
    monkeypatch.setattr(worker, "_device", torch.device("cuda", 0))
    buffers.fill(lambda: torch.zeros(1 << 20))
    assert worker.room_for(buffers) == sets
    monkeypatch.setattr(InputBuffers, "copied", True)
    assert worker.room_for(buffers) == 1  # the worker would have to copy each set before it is called


def test_an_empty_tensor_of_a_gpu_is_nothing_to_copy(buffers):
    buffers.fill(lambda: (torch.zeros(4), torch.zeros(0)))
    for buffer in buffers._buffers:
        buffer.device = torch.device("cuda", 0)
    assert buffers.copied
    buffers._buffers[0].on_device = True
    assert not buffers.copied



def call(worker: Session, value, act: str = "echo"):
    """What the submission makes of `value`."""
    buffers = InputBuffers(device_ipc=False)
    try:
        buffers.fill(lambda: {"value": value, "act": act})
        worker.map("case", buffers)
        return worker.take(worker.call("case"))
    finally:
        buffers.close()


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values)
def test_round_trip_through_a_process(worker, value):
    worker.grant_time()
    assert same(snapshot(value), call(worker, value))


def test_the_referee_never_sees_what_a_worker_writes(worker, buffers):
    buffers.fill(lambda: {"value": torch.zeros(100_000), "act": "add"})
    worker.map("case", buffers)
    for expected in (1.0, 2.0):  # the worker's own copy does change
        assert worker.take(worker.call("case")).unique().tolist() == [expected]
    assert buffers.value["value"].unique().tolist() == [0.0]


def test_a_lent_descriptor_cannot_write(buffers):
    """Whoever catches the descriptor of the inputs can neither write nor truncate nor map them writable."""
    buffers.fill(lambda: torch.zeros(10_000))
    _, (fd,) = buffers.lend()
    for attempt in (fd, os.open(f"/proc/self/fd/{fd}", os.O_RDWR)):
        with pytest.raises(PermissionError):
            os.pwrite(attempt, b"x", 0)
        with pytest.raises(PermissionError):
            os.ftruncate(attempt, 0)
        with pytest.raises(PermissionError):
            mmap.mmap(attempt, 4096, mmap.MAP_SHARED)
    os.close(attempt)
    assert buffers.fill(lambda: torch.ones(10_000))  # the referee's own mapping still can
    assert buffers.value.unique().tolist() == [1.0]


def test_an_output_buffer_cannot_be_cut_short():
    fd = memory.create_memfd("output", 10_000)
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 0)
    os.close(fd)


def test_refreshed_contents_replace_what_a_worker_wrote(worker, buffers):
    buffers.fill(lambda: {"value": torch.zeros(100_000), "act": "add"})
    worker.map("case", buffers)
    worker.call("case")
    assert buffers.fill(lambda: {"value": torch.full((100_000,), 7.0), "act": "add"})
    worker.refresh("case")
    assert worker.take(worker.call("case")).unique().tolist() == [8.0]
    assert buffers.value["value"].unique().tolist() == [7.0]


@pytest.mark.parametrize(("act", "changed"), [("echo", []), ("add", [1])])
def test_written_inputs_are_found(worker, buffers, act, changed):
    """By position in the input; a refresh makes them the referee's again."""
    for _ in range(2):
        same_layout = buffers.fill(lambda: (torch.zeros(5), torch.ones(100_000), act))
        worker.refresh("parts") if same_layout else worker.map("parts", buffers)
        worker.call("parts")
        assert worker.changed_inputs("parts", buffers) == changed


def test_contents_are_out_of_sight_until_they_are_poured(worker, buffers):
    buffers.prepare(lambda: {"value": torch.full((100_000,), 7.0), "act": "echo"})
    worker.map("case", buffers)
    assert worker.take(worker.call("case")).unique().tolist() == [0.0]
    buffers.pour()
    assert worker.take(worker.call("case")).unique().tolist() == [7.0]


@pytest.mark.parametrize(("storages", "positions"), [([], []), ([0], [0, 2]), ([1, 2], [1])])
def test_positions_of_storages(buffers, storages, positions):
    shared = torch.zeros(4)
    buffers.fill(lambda: (shared, {"a": torch.ones(2), "b": [torch.ones(3)]}, shared[1:]))
    assert buffers.positions(storages) == positions


def test_a_single_tensor_is_position_0(buffers):
    buffers.fill(lambda: torch.zeros(4))
    assert buffers.positions([0]) == [0]


@pytest.mark.parametrize(
    "other",
    [torch.zeros(11), torch.zeros(10).double(), torch.zeros(2, 5), torch.zeros(20)[::2], [torch.zeros(10)], torch.ones(10)],
)
def test_a_refresh_suffices_only_for_the_same_layout(buffers, other):
    buffers.fill(lambda: torch.zeros(10))
    same_layout = buffers.fill(lambda: other)
    assert same_layout is (isinstance(other, torch.Tensor) and torch.equal(other, torch.ones(10)))
    assert same(buffers.value, other)


def test_filling_moves_instead_of_copying(buffers):
    """The generator's own host memory is freed storage by storage, so the inputs exist about once."""
    freed = []

    class Watched(bytearray):
        def __del__(self):
            freed.append(len(self))

    def generate():
        return [torch.frombuffer(Watched(1 << 20), dtype=torch.uint8) for _ in range(3)]

    buffers.fill(generate)
    assert freed == [1 << 20] * 3
    assert buffers.nbytes == 3 << 20
