"""The measured floor, on whatever machine the tests run."""

import torch

from harness.floors import MAX_BUFFER_BYTES, ReadFloor, floor_of
from harness.result import Device, Peaks
from harness.timing import Cold, CpuTimer, reader


class CountingFloor(ReadFloor):
    def __init__(self):
        self.sizes = []
        super().__init__(torch.device("cpu"), Cold("none"))

    def _measure(self, nbytes: int) -> float:
        self.sizes.append(nbytes)
        return float(nbytes)


def test_each_size_is_measured_once():
    floor = CountingFloor()
    assert [floor.ns(100), floor.ns(200), floor.ns(100)] == [100.0, 200.0, 100.0]
    assert floor.sizes == [100, 200]


def test_beyond_the_largest_buffer_the_time_is_scaled(monkeypatch):
    monkeypatch.setitem(MAX_BUFFER_BYTES, "cpu", 1 << 16)
    floor = ReadFloor(torch.device("cpu"), Cold("none"))
    assert floor.ns(1 << 20) > 0


def test_the_three_floors_are_kept_apart():
    device = Device("a GPU", "cuda", "sm_90", peaks=Peaks(1e9))
    floor = floor_of(read_bytes=200, cheapest_bytes=100, device=device, measured=CountingFloor())
    assert (floor.roofline_ns, floor.measured_ns, floor.refusal_ns) == (200.0, 200.0, 100.0)


def test_a_reader_reads_real_memory():
    """fp32 ones, so that no page is the shared page of zeros."""
    assert float(reader(torch.device("cpu"), 4000)()) == 1000.0


def test_cpu_timer_runs_the_call_once_after_emptying_the_cache():
    log = []
    timer = CpuTimer(Cold("none"))
    timer._evict = lambda: log.append("evict")
    sample, output = timer.time(lambda: log.append("call") or 7)
    assert (log, output) == (["evict", "call"], 7)
    assert sample.elapsed_ns > 0
    assert sample.exposed is False
