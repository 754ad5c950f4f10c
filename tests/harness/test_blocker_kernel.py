"""What the kernel that fills a device does, instruction by instruction: when it reports, what it reads, when it ends."""

import pytest
from ptx_machine import Machine

from harness import blocker

HOST, BUFFER = 0x1000, 0x100000
HOLD_NS = 20_000
BLOCKS, THREADS = 3, 2
WORDS_READ = 31  # of 16 bytes: not a multiple of the threads


class Device(Machine):
    def __init__(self, seed: int, step_ns: int = 5):
        super().__init__(blocker.PTX.decode(), seed, step_ns)
        self.memory |= {BUFFER + 4 * i: 0x3F800000 for i in range(4 * WORDS_READ)}
        self.launches = 0

    def hold(
        self, capacity: int = BLOCKS, nbytes: int = 16 * WORDS_READ, hold_ns: int = HOLD_NS
    ) -> list[tuple[int, int, str]]:
        self.launches += 1
        self.log.clear()
        given = {"hold_ns": hold_ns, "words": HOST, "buffer": BUFFER, "nbytes": nbytes, "launch": self.launches}
        self.began_ns = self.now_ns
        self.launch(BLOCKS, THREADS, given, capacity)
        return self.log

    def times(self, what: str, exactly: bool = False) -> list[int]:
        return [ns for ns, _, event in self.log if event == what or (event.startswith(what) and not exactly)]


@pytest.fixture(params=range(10))
def device(request) -> Device:
    return Device(request.param)


def test_launch_after_launch(device):
    """It reports once, and ends everywhere only when all have waited and read; the counter goes on from launch to launch."""
    for number in (1, 2, 3):
        device.hold()
        (reported_ns,) = device.times(f"store {HOST}", exactly=True)
        reads, ends = device.times("read"), device.times("end")
        assert device.memory[HOST] == number
        assert reported_ns - device.began_ns < HOLD_NS <= min(reads) - device.began_ns
        assert max(reads) < min(ends)
        assert len(ends) == BLOCKS * THREADS
        assert device.memory[HOST + 4] == 0
        assert "sink" not in device.memory


def test_every_word_is_read_once(device):
    read = [event for _, _, event in device.hold() if event.startswith("read")]
    assert sorted(read) == sorted(f"read {BUFFER + 16 * i}" for i in range(WORDS_READ))


def test_without_a_buffer_nothing_is_read(device):
    device.hold(nbytes=0)
    assert device.times("read") == []
    assert min(device.times("end")) - device.began_ns >= HOLD_NS


def test_blocks_that_are_through_before_others_begin(device):
    """Nothing to wait for and nothing to read: the first blocks are done before the last one has begun. They end together."""
    for number in range(1, 6):
        device.hold(hold_ns=0, nbytes=0)
        assert device.memory[HOST] == number
        (reported_ns,) = device.times(f"store {HOST}", exactly=True)
        assert reported_ns < min(device.times("end"))


def test_it_reports_only_when_every_block_runs(device):
    """Where a block finds no place it says nothing, gives up waiting for the others' end, and leaves the counter right."""
    device.step_ns = 2000
    device.hold(capacity=BLOCKS - 1)
    assert device.memory.get(HOST, 0) == 0
    assert len(device.times("end")) == BLOCKS * THREADS
    device.step_ns = 5
    device.hold()
    assert device.memory[HOST] == 2


def test_what_another_context_takes_is_added_up(device):
    device.pauses = {5_000: 40_000, 60_000: 50_000}  # the second one comes after the end of the hold
    device.hold()
    assert 40_000 <= device.memory[HOST + 4] < 45_000
    device.pauses = {2_000: 8_000}
    device.hold()
    assert device.memory[HOST + 4] == 0  # too short for a context's turn
