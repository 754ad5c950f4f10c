"""What the kernels that fill a device do, instruction by instruction: when they report, what they read, when they end."""

import pytest
from ptx_machine import Machine

from harness import blocker

HOST, LATE, BUFFER = 0x1000, 0x1008, 0x100000
HOLD_NS, LINGER_NS = 20_000, 6_000
BLOCKS, THREADS = 3, 2
WORDS_READ = 31  # of 16 bytes: not a multiple of the threads
STRANGER = """
.visible .entry stranger(
    .param .u64 busy_ns
)
{
    mov.u64 start, %globaltimer;
    ld.param.u64 busy, [busy_ns];
work:
    mov.u64 now, %globaltimer;
    sub.u64 gap, now, start;
    setp.lt.u64 yes, gap, busy;
    @yes bra work;
    ret;
}
"""


class Device(Machine):
    def __init__(self, seed: int, step_ns: int = 5):
        super().__init__(blocker.PTX.decode() + STRANGER, seed, step_ns)
        self.memory |= {BUFFER + 4 * i: 0x3F800000 for i in range(4 * WORDS_READ)}
        self.launches = 0

    def hold(
        self, *behind, capacity: int = BLOCKS, nbytes: int = 16 * WORDS_READ, hold_ns: int = HOLD_NS
    ) -> list[tuple[int, str, str]]:
        """`behind`: what waits for places meanwhile, first come first served."""
        self.launches += 1
        self.log.clear()
        given = {"hold_ns": hold_ns, "words": HOST, "buffer": BUFFER, "nbytes": nbytes, "launch": self.launches}
        self.began_ns, self.memory[LATE] = self.now_ns, 0
        self.run(self.grid("occupy", BLOCKS, THREADS, given), *behind, capacity=capacity)
        return self.log

    def lingering(self, linger_ns: int = LINGER_NS, late: int = LATE, blocks: int = BLOCKS, threads: int = THREADS):
        return self.grid("linger", blocks, threads, {"late": late, "linger_ns": linger_ns})

    def stranger(self, busy_ns: int):
        return self.grid("stranger", 1, 1, {"busy_ns": busy_ns})

    def times(self, what: str, kernel: str = "occupy", exactly: bool = False) -> list[int]:
        events = [(ns, event) for ns, name, event in self.log if name == kernel]
        return [ns for ns, event in events if event == what or (event.startswith(what) and not exactly)]


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


def test_places_are_kept_until_the_callers_queue_needs_them(device):
    """Launch after launch: every block takes a place as soon as the first kernel leaves it, and a kernel that waits gets none
    before the time is up."""
    for _ in range(3):
        device.hold(device.lingering(), device.stranger(100))
        assert max(device.times("read")) < device.memory["released"] < min(device.times("end"))
        until_ns = device.memory["released"] + LINGER_NS
        assert min(device.times("end")) < min(device.times("begin", "linger"))
        assert max(device.times("begin", "linger")) < until_ns
        assert len(device.times("end", "linger")) == BLOCKS * THREADS
        assert until_ns <= min(device.times("begin", "stranger")) < until_ns + 2_000
        assert device.memory[LATE] == 0


@pytest.mark.parametrize("busy_ns", [8_000, 30_000])
def test_a_kernel_that_gets_in_between_is_found_out(device, busy_ns):
    """Of one place. The block that had to wait for it begins when the others end; what it reports is more than was gained."""
    device.hold(device.stranger(busy_ns), device.lingering())
    gained_ns = device.memory["released"] + LINGER_NS - device.times("begin", "stranger")[0]
    assert gained_ns < LINGER_NS <= device.memory[LATE] < LINGER_NS + 1_000
    assert max(device.times("end", "linger")) < device.memory["released"] + LINGER_NS + 2_000
    device.hold(device.lingering())
    assert device.memory[LATE] == 0


def test_one_that_ends_in_time_was_not_worth_it(device):
    device.hold(device.stranger(1_000), device.lingering())
    assert device.memory[LATE] == 0


def test_one_that_takes_all_places_delays_them_all(device):
    device.hold(*(device.stranger(30_000) for _ in range(BLOCKS)), device.lingering())
    assert device.memory[LATE] >= 30_000


def test_it_never_waits_for_a_time_that_has_passed(device):
    """Launched too late by the host, or before any hold: each block ends at once, and is late."""
    for hold in (False, True):
        if hold:
            device.hold()
            device.now_ns += 100_000
        device.log.clear()
        launched_ns = device.now_ns
        device.run(device.lingering(), capacity=BLOCKS)
        assert max(device.times("end", "linger")) - launched_ns < 2_000
        assert device.memory[LATE] >= 100_000


def test_a_hold_that_was_given_up_keeps_nobody(device):
    device.step_ns = 2000
    device.hold(device.lingering(), capacity=BLOCKS - 1)
    assert max(device.times("end", "linger")) - max(device.times("end")) < 1_000_000
    device.step_ns = 5
    device.hold(device.lingering())
    assert device.memory[HOST] == 2
    assert device.memory[LATE] == 0


def test_with_no_time_to_stay_all_say_when_they_began(device):
    """What measures for how long places may be kept: `linger`, and one thread of it where the call's first kernel would be."""
    device.hold(device.lingering(0), device.lingering(0, LATE + 4, blocks=1, threads=1))
    *began_ns, stamped_ns = (ns - device.memory["released"] for ns in device.times("begin", "linger"))
    assert min(began_ns) <= device.memory[LATE] < max(began_ns) + 1_000  # one of them was the last to say so
    assert 0 <= device.memory[LATE + 4] - stamped_ns < 1_000
