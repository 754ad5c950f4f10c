"""The order of events around a timed call on a GPU, with a stand-in for torch.cuda that writes it down."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness import memory, timing
from harness.seal import Seal
from harness.timing import Cold, GpuTimer, Sample


class FakeCuda:
    """Device time advances by sleeps and calls; an event keeps the device time at which it was recorded."""

    def __init__(self):
        self.log, self.device_ns, self.start_reached, self.copy_ns, self.host_ns = [], 0, False, 100, 0
        self.copying = SimpleNamespace(stamp_ns=0, expected_ns=lambda value: self.copy_ns)
        cuda = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                cuda.log.append("record")
                self.time_ns = cuda.device_ns

            def synchronize(self):
                cuda.log.append("wait")

            def query(self):
                return cuda.start_reached

            def elapsed_time(self, end):
                return (end.time_ns - self.time_ns) / 1e6

        self.Event = Event

    def sleep(self, cycles):
        self.log.append(f"sleep {cycles}")
        self.device_ns += cycles // 2  # two cycles a nanosecond

    def synchronize(self, device):
        self.log.append("synchronize")

    def call(self):
        self.log.append("call")
        self.device_ns += 1000
        return "output"

    def keep(self, output):
        self.log.append("copy")
        self.device_ns += self.copy_ns
        return f"a copy of {output}"


@pytest.fixture
def cuda(monkeypatch) -> FakeCuda:
    fake = FakeCuda()
    monkeypatch.setattr(torch.cuda, "Event", fake.Event)
    monkeypatch.setattr(torch.cuda, "_sleep", fake.sleep)
    monkeypatch.setattr(torch.cuda, "synchronize", fake.synchronize)
    monkeypatch.setattr("time.perf_counter_ns", lambda: fake.host_ns)
    monkeypatch.setattr(timing, "evictor", lambda device, cold: lambda: fake.log.append("evict"))
    monkeypatch.setattr(timing, "copying", lambda holder, device: fake.copying)
    return fake


@pytest.fixture
def timer(cuda) -> GpuTimer:
    made = GpuTimer(torch.device("cpu"), Cold("none"))
    cuda.log.clear()
    return made


def test_a_timed_call(cuda, timer):
    sample, output = timer.time(cuda.call, sleep_ns=50_000, keep=cuda.keep)
    copies = ["record", "copy", "record", "copy", "record"]  # behind the end event, before anybody waits
    assert cuda.log == ["synchronize", "evict", "sleep 100000", "record", "call", *copies, "wait", "synchronize"]
    assert (sample.elapsed_ns, sample.exposed, output) == (1000, False, "a copy of output")


def test_work_that_slips_in_before_the_copy_counts(cuda, timer):
    def slow_once(output):
        cuda.device_ns += 0 if "copy" in cuda.log else 40_000
        return cuda.keep(output)

    sample, _ = timer.time(cuda.call, sleep_ns=50_000, keep=slow_once)
    assert sample.elapsed_ns == 1000 + 40_000 + 100 - 1.5 * 100 - timing.COPY_JITTER_NS


@pytest.mark.parametrize("start_reached", [False, True])
def test_an_output_that_computes_itself_when_it_is_copied_takes_that_long(cuda, timer, start_reached):
    """Whether or not it makes the host wait for the device meanwhile, which then has reached the start event."""
    cuda.start_reached = start_reached

    def lazy(output):
        cuda.host_ns += 30_000 if "copy" in cuda.log else 4_000_000
        return cuda.keep(output)

    sample, _ = timer.time(cuda.call, sleep_ns=50_000, keep=lazy)
    assert sample.elapsed_ns == 1000 + 4_000_000 - 2 * 30_000 - timing.QUEUE_JITTER_NS


@pytest.mark.parametrize("first_us", [30, 80, 150, 500])
def test_a_first_copy_that_is_slower_to_queue_costs_nothing(cuda, timer, first_us):
    """As on an H200, where every other sample of a leaderboard run had some 10 us added by it."""

    def keep(output):
        cuda.host_ns += 15_000 if "copy" in cuda.log else first_us * 1000
        return cuda.keep(output)

    assert timer.time(cuda.call, sleep_ns=50_000, keep=keep)[0].elapsed_ns == 1000


def test_large_outputs_take_long_to_copy_and_cost_nothing(cuda, timer):
    cuda.copy_ns = 5_000_000
    assert timer.time(cuda.call, sleep_ns=50_000, keep=cuda.keep)[0].elapsed_ns == 1000


def test_a_device_that_raises_its_clock_is_calibrated_once_it_has(cuda, monkeypatch):
    """An idle H200 runs at 345 MHz, a busy one at 1980."""
    clocks_ghz, asked = iter([0.345] * 20 + [0.9, 1.5]), []

    def sleep(cycles):
        asked.append(cycles)
        cuda.device_ns += round(cycles / next(clocks_ghz, 1.98))

    monkeypatch.setattr(torch.cuda, "_sleep", sleep)
    timer = GpuTimer(torch.device("cpu"), Cold("none"))
    timer.time(cuda.call, sleep_ns=1_000_000)
    assert asked[-1] == pytest.approx(1_980_000, rel=0.001)


@pytest.fixture
def held(cuda, monkeypatch):
    """A device that can be filled. -> a function that builds its timer, with an empty log."""

    class FakeBlocker:
        lost_ns = waits_ns = 0

        def __init__(self, device, buffer):
            self.buffer, self.noted = buffer, {}

        def stamp(self):
            cuda.log.append("stamp")
            self.noted["since"] = cuda.device_ns - self.noted["released"]

        @property
        def since_ns(self):
            return self.noted["since"]

        def hold(self, hold_ns, behind):
            cuda.log.append(f"hold {hold_ns}")
            cuda.device_ns += hold_ns
            self.noted["released"] = cuda.device_ns
            behind()  # happens on the device once it is let go
            cuda.host_ns += self.waits_ns

    def make(cold: Cold) -> GpuTimer:
        made = GpuTimer(torch.device("cpu"), cold)
        cuda.log.clear()
        return made

    monkeypatch.setattr(timing, "Blocker", FakeBlocker)
    monkeypatch.setattr(timing, "persistence_reset", lambda device: lambda: cuda.log.append("reset"))
    return make


HELD_CALL = ["record", "call", "record", "stamp", "copy", "record", "copy", "record", "wait", "synchronize"]


def test_a_held_device_is_cleared_by_what_holds_it(cuda, held):
    """The read comes last, so that nothing which a copy engine fetches meanwhile stays in the cache."""
    timer = held(Cold("read", 4096))
    sample, _ = timer.time(cuda.call, sleep_ns=50_000, keep=cuda.keep)
    assert cuda.log == ["synchronize", "reset", "hold 50000", *HELD_CALL]
    assert (sample.elapsed_ns, sample.exposed, timer.unheld) == (1000, False, "")
    assert timer._holder._blocker.buffer.nbytes == 4096


@pytest.mark.parametrize("fills", [True, False])
def test_what_is_put_on_the_callers_queue_while_the_device_is_held_counts(cuda, held, timer, fills):
    """By a thread, a hook or a signal handler of the submission, on contents that are complete by the time that it runs."""

    def sneak():
        cuda.device_ns += 150_000

    sample, _ = (held(Cold("none")) if fills else timer).time(cuda.call, sleep_ns=50_000, keep=cuda.keep, held=sneak)
    assert sample.elapsed_ns == 151_000


@pytest.mark.parametrize("again", [["_start"], ["_start", "_end"]])
def test_events_that_are_recorded_anew_gain_nothing(cuda, held, again):
    """They lie in the frames above a call; a thread can wait until the second one has been recorded."""
    timer = held(Cold("none"))

    def record_anew():
        for name in again:
            getattr(timer, name).record()

    def call():
        cuda.device_ns += 150_000
        record_anew()
        return "output"

    stamp = timer._holder.stamp
    timer._holder.stamp = lambda: (record_anew(), stamp())
    sample, _ = timer.time(call, sleep_ns=50_000, keep=cuda.keep)
    assert sample.elapsed_ns == 150_000 - timing.START_JITTER_NS


def test_work_between_the_hold_and_the_start_event_counts(cuda, held):
    """By a thread that launches between the driver's two calls."""
    timer = held(Cold("none"))
    begin = timer._begin
    timer._begin = lambda: (setattr(cuda, "device_ns", cuda.device_ns + 150_000), begin())
    sample, _ = timer.time(cuda.call, sleep_ns=50_000, keep=cuda.keep)
    assert sample.elapsed_ns == 151_000 - timing.START_JITTER_NS


def test_work_between_the_end_event_and_the_stamp_counts(cuda, held):
    """By the stamp, and once more by the copy that it delays."""
    timer = held(Cold("none"))
    stamp = timer._holder.stamp
    timer._holder.stamp = lambda: (setattr(cuda, "device_ns", cuda.device_ns + 9_000), stamp())
    sample, _ = timer.time(cuda.call, sleep_ns=50_000, keep=cuda.keep)
    late_ns = 9_000 + 100 - 150 - timing.COPY_JITTER_NS
    assert sample.elapsed_ns == 1000 + 9_000 - timing.START_JITTER_NS + late_ns


def test_a_copy_that_works_both_times_is_compared_with_copies_of_before(cuda, held):
    timer, cuda.copy_ns = held(Cold("none")), 150_000
    cuda.copying.expected_ns = lambda value: 4_000
    sample, _ = timer.time(cuda.call, sleep_ns=50_000, keep=cuda.keep)
    assert sample.elapsed_ns == 1000 + 150_000 - 6_000 - timing.COPY_JITTER_NS


@pytest.mark.parametrize(("host_ns", "later_ns", "counted_ns"), [
    (9_000, 9_000, 0), (9_000, 40_000, 29_000), (3_000_000, 3_000_000, 2_978_000),
])  # fmt: skip
def test_an_exposed_stamp_waits_for_the_host(cuda, held, host_ns, later_ns, counted_ns):
    """As long as that takes, and no longer than a host that is not disturbed."""
    timer, cuda.start_reached = held(Cold("none")), True

    def stamp():
        cuda.host_ns += host_ns
        timer._holder._blocker.noted.update(since=1000 + later_ns)

    timer._holder._blocker.stamp = stamp
    assert timer.time(cuda.call, sleep_ns=50_000, keep=cuda.keep)[0].elapsed_ns == 1000 + counted_ns


def test_what_copies_are_compared_with_is_sealed(cuda, held):
    timer = held(Cold("none"))
    timer._copying = timing.Copying(0, 3_000, 0.001)
    seal = Seal(*timer.parts)
    assert seal.broken() is None
    object.__setattr__(timer._copying, "tensor_ns", 10**12)
    assert seal.broken() == "tensor_ns"


def test_nobody_says_how_large_an_output_is_but_torch(monkeypatch):
    costs = timing.Copying(0, 3_000, 0.001)
    monkeypatch.setattr(torch.Tensor, "nbytes", property(lambda tensor: 1 << 60))
    monkeypatch.setattr(torch.Tensor, "numel", lambda tensor: 1 << 60)
    assert costs.expected_ns([torch.zeros(1000), torch.zeros(0), None]) == 2 * 3_000 + 4


@pytest.mark.parametrize("output", [
    torch.zeros(4, 6).t(), [torch.zeros(3), torch.zeros(4, 6)[:, ::2]], torch.zeros(3, dtype=torch.complex64).conj(),
    torch.zeros(3).to_sparse(),
], ids=["transposed", "strided", "conj", "sparse"])  # fmt: skip
def test_outputs_that_are_rearranged_are_compared_with_their_second_copy_alone(output):
    assert timing.Copying(0, 3_000, 0.001).expected_ns(output) == float("inf")


def test_a_device_that_cannot_be_held_for_a_copy_sleeps_and_says_why(cuda, held, monkeypatch):
    def refused(holder, device):
        if isinstance(holder, timing.Occupier):
            raise timing.NotHeld("somebody else has it")
        return cuda.copying

    monkeypatch.setattr(timing, "copying", refused)
    timer = held(Cold("none"))
    assert (type(timer._holder), timer.unheld) == (timing.Sleeper, "somebody else has it")


def test_what_copies_take_is_measured_behind_a_held_device(cuda, monkeypatch):
    class Holder:
        def hold(self, hold_ns, behind):
            cuda.log.append("hold")
            behind()

        def stamp(self):
            cuda.device_ns += 2_000

    def zeros(nbytes, dtype, device):
        def clone():
            cuda.device_ns += 3_000 + nbytes // 2000

        return SimpleNamespace(clone=clone)

    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "Event", cuda.Event)
    monkeypatch.setattr(torch.cuda, "synchronize", cuda.synchronize)
    monkeypatch.setattr(torch, "zeros", zeros)
    holder: Any = Holder()
    costs = timing.copying(holder, torch.device("cpu"))
    monkeypatch.undo()
    assert (costs.stamp_ns, costs.tensor_ns) == (2_000, 3_000)
    expected_ns = costs.expected_ns([torch.zeros(1_000_000), {"a": torch.zeros(500_000)}])
    assert expected_ns == pytest.approx(2 * 3_000 + 6_000_000 / 2000, rel=0.001)


@pytest.mark.parametrize("method", ["randn", "none"])
def test_other_clears_come_before_the_device_is_held(cuda, held, method):
    timer = held(Cold(method))
    timer.time(cuda.call, sleep_ns=50_000, keep=cuda.keep)
    assert cuda.log == ["synchronize", "evict", "record", "wait", "hold 50000", *HELD_CALL]
    assert timer._holder._blocker.buffer is None


def test_the_device_is_filled_without_a_sleep_too(cuda, held):
    """The caches are emptied by what fills it; and the first call, which nothing hides, may be no easier to cheat."""
    held(Cold("read", 4096)).time(cuda.call, sleep_ns=0)
    assert cuda.log[:4] == ["synchronize", "reset", "hold 0", "record"]


def test_time_that_another_context_took_from_the_hold_counts(cuda, held):
    timer = held(Cold("none"))
    timer._holder._blocker.lost_ns = 70_000
    assert timer.time(cuda.call, sleep_ns=50_000, keep=cuda.keep)[0].elapsed_ns == 1000 + 70_000


@pytest.mark.parametrize(("busy_ns", "waits_ns", "counted_ns"), [
    (0, 0, 0), (400_000, 600_000, 0), (3_000_000, 0, 2_000_000), (0, 5_000_000, 4_000_000), (700_000, 800_000, 500_000),
])  # fmt: skip
@pytest.mark.parametrize("cold", [Cold("none"), Cold("read", 4096)])
def test_what_runs_before_the_device_is_held_counts(cuda, held, cold, busy_ns, waits_ns, counted_ns):
    """A thread that finds new contents before the call is timed gains nothing by working on them at once, whether it
    launches before the device was found idle or after."""
    timer, left = held(cold), [busy_ns]

    def synchronize(device):
        cuda.host_ns += left.pop() if left else 0

    timer._holder._synchronize, timer._holder._blocker.waits_ns = synchronize, waits_ns
    assert timer.time(cuda.call, sleep_ns=50_000, keep=cuda.keep)[0].elapsed_ns == 1000 + counted_ns
    timer._holder._blocker.waits_ns = 0
    assert timer.time(cuda.call, sleep_ns=50_000, keep=cuda.keep)[0].elapsed_ns == 1000  # of each call its own


def test_the_time_that_a_clear_takes_does_not_count(cuda, held, monkeypatch):
    monkeypatch.setattr(cuda.Event, "synchronize", lambda event: setattr(cuda, "host_ns", cuda.host_ns + 30_000_000))
    assert held(Cold("randn")).time(cuda.call, sleep_ns=50_000, keep=cuda.keep)[0].elapsed_ns == 1000


def test_a_sleeping_queue_waits_for_others_at_their_cost_too(cuda, monkeypatch):
    timer = GpuTimer(torch.device("cpu"), Cold("none"), occupied=False)
    monkeypatch.setattr(timer._holder, "_synchronize", lambda device: setattr(cuda, "host_ns", cuda.host_ns + 7_000_000))
    assert timer.time(cuda.call, sleep_ns=50_000, keep=cuda.keep)[0].elapsed_ns == 1000 + 6_000_000


def test_a_device_that_cannot_be_held_sleeps_and_says_why(cuda, timer):
    assert "is not an NVIDIA device" in timer.unheld
    assert "sleep 100000" in (timer.time(cuda.call, sleep_ns=50_000) and cuda.log)


def test_the_sleep_can_be_asked_for(cuda, held):
    timer = GpuTimer(torch.device("cpu"), Cold("none"), occupied=False)
    cuda.log.clear()
    timer.time(cuda.call, sleep_ns=50_000)
    assert cuda.log[:4] == ["synchronize", "evict", "sleep 100000", "record"]
    assert timer.unheld == ""  # nobody is to be warned of what was asked for


def test_the_seal_covers_what_holds_the_device(cuda, held):
    timer = held(Cold("none"))
    seal = Seal(*timer.parts)
    timer.time(cuda.call, sleep_ns=50_000, keep=cuda.keep)
    assert seal.broken() is None  # nothing that a call changes is sealed
    timer._holder._blocker.hold = lambda hold_ns, behind: behind()
    assert seal.broken() == "hold"


def test_without_a_sleep_nothing_is_hidden(cuda, timer):
    cuda.start_reached = True
    sample, _ = timer.time(cuda.call, sleep_ns=0)
    assert cuda.log == ["synchronize", "evict", "record", "call", *["record"] * 3, "wait", "synchronize"]
    assert sample.exposed


def test_an_untimed_call_waits_for_the_device(cuda, timer):
    _, output = timer.run(cuda.call)
    assert cuda.log == ["synchronize", "call", "synchronize"]
    assert output == "output"


def test_what_a_submission_patches_later_is_not_used(cuda, timer, monkeypatch):
    """Replaced names in torch.cuda do not reach callables that were bound before the submission was imported."""

    def forged(*args, **kwargs):
        raise AssertionError("a patched function was called")

    for name in ("synchronize", "_sleep", "Event"):
        monkeypatch.setattr(torch.cuda, name, forged)
    for name in ("record", "query", "elapsed_time"):
        monkeypatch.setattr(cuda.Event, name, forged)
    monkeypatch.setattr("time.perf_counter_ns", forged)
    assert timer.time(cuda.call, sleep_ns=10)[0].elapsed_ns == 1000


def test_device_handles_travel_as_json(monkeypatch):
    """All but what needs files of /dev/shm: the borrowers' counter, for which the lender counts, and the event."""
    opened, released = [], []
    shared = (3, b"\x00\xff", 100, 0, b"/name", 7, b"event", True)
    monkeypatch.setattr(torch.UntypedStorage, "_share_cuda_", lambda self: shared)
    monkeypatch.setattr(torch.UntypedStorage, "_new_shared_cuda", lambda *fields: opened.append(fields))
    monkeypatch.setattr(torch.UntypedStorage, "_release_ipc_counter_cuda", lambda *fields: released.append(fields))
    loan = memory.DeviceLoan(torch.UntypedStorage(1))
    memory.import_device_storage(json.loads(json.dumps(loan.describe())), torch.device("cuda", 1))
    assert opened == [(1, b"\x00\xff", 100, 0, memory.NO_COUNTER, 7, b"", False)]
    loan.end()
    assert released == [(b"/name", 7)]


def test_a_sample_is_what_the_protocol_says():
    assert vars(Sample(1, 2, True)) == {"elapsed_ns": 1, "host_ns": 2, "exposed": True}
