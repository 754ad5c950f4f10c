"""Nothing begins before the clock: the kernels that fill a device, on the device. Needs an NVIDIA GPU.

pytest -q -s -m gpu tests/harness/test_gpu_blocker.py    prints what the ways to hide a launch measure
"""

import statistics
import time
from collections.abc import Callable

import pytest
import torch

import reference
from exploits.corpus import FOLDER, load_entry
from exploits.trials import Bench, Rules
from harness.blocker import Blocker
from harness.devices import describe_device, select_device
from harness.policies import cold_read
from harness.timing import Cold, GpuTimer, Occupier
from scripts.integrity import investigated, options

pytestmark = pytest.mark.gpu
HOLD_NS = 20_000_000
SAMPLES = 31
HEAD_START_NS = 2000  # for which a kernel of another queue may begin sooner than the clock's first one
HURRIED = -5  # the greatest priority
WAYS = ("another queue", "a hurried queue", "a graph")


@pytest.fixture(scope="module")
def device() -> torch.device:
    if not torch.cuda.is_available() or torch.version.hip:
        pytest.skip("no NVIDIA GPU")
    return select_device("cuda")


def blocker_of(timer: GpuTimer) -> Blocker:
    assert isinstance(timer._holder, Occupier), timer.unheld
    return timer._holder._blocker


def launcher(device: torch.device, way: str, work: Callable[[], object]) -> tuple[torch.cuda.Stream, Callable[[], None]]:
    """A queue, and a call that queues `work` there, which has run before: it may have to be compiled and loaded."""
    queue = torch.cuda.Stream(device, priority=HURRIED if way == "a hurried queue" else 0)
    work()
    torch.cuda.synchronize()
    if way == "a graph":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        work = graph.replay

    def launch() -> None:
        with torch.cuda.stream(queue):
            work()

    return queue, launch


@pytest.mark.parametrize("way", WAYS)
def test_nothing_of_another_queue_begins_before_the_end(device, way):
    """A lower bound of the device's own time, however slow the host is: what ends sooner was not kept out."""
    number, done, blocker = torch.zeros(1, device=device), torch.cuda.Event(), Blocker(device)
    queue, launch = launcher(device, way, lambda: number.add_(1))
    for _ in range(3):
        torch.cuda.synchronize()
        asked_ns = time.perf_counter_ns()
        blocker.hold(HOLD_NS)
        launch()
        done.record(queue)
        done.synchronize()
        assert time.perf_counter_ns() - asked_ns >= HOLD_NS
    torch.cuda.synchronize()
    assert number.item() >= 4


def test_a_launch_of_clusters_is_placed_as_ever(device, capsys):
    """An honest call that needs whole groups of multiprocessors: it must not come while the blocks of `linger` leave."""
    backend = pytest.importorskip("kernels.cuda_backend").CudaBackend()
    if backend.available(device):
        pytest.skip("no Hopper GPU, or no nvcc")
    data = reference.generate_input(batchsize=64, qseqlen=1, kvseqlen=1024, numheads=16, seed=1, device="cuda")
    plan = backend.plan(data, {"kernel": "fp8_wide", "cluster": 2, "groups": 1})
    plan(data)
    timer = GpuTimer(device, cold_read(describe_device(device)))
    blocker, times_us = blocker_of(timer), {0: [], blocker_of(timer).linger_ns: []}
    for _ in range(SAMPLES):
        for blocker.linger_ns, found_us in times_us.items():
            found_us.append(timer.time(lambda: plan(data), 1_000_000)[0].elapsed_ns / 1e3)
    quartiles = [statistics.quantiles(found_us, n=4) for found_us in times_us.values()]
    (without, *_), (*_, late) = quartiles
    with capsys.disabled():
        print("\nMLA in clusters of two, quartiles in us:", *quartiles)
    assert late < 1.15 * without


def test_work_ahead_of_the_clock_is_timed(device):
    side = torch.cuda.Stream(device)

    def ahead():
        with torch.cuda.stream(side):
            torch.cuda._sleep(2_000_000)
        torch.cuda.current_stream().wait_stream(side)

    occupied, asleep = (GpuTimer(device, Cold("none"), occupied=occupied) for occupied in (True, False))
    assert occupied.unheld == ""
    times = [[timer.time(ahead, 5_000_000)[0].elapsed_ns for _ in range(5)] for timer in (occupied, asleep)]
    assert statistics.median(times[0]) > 10 * statistics.median(times[1]), times


def test_events_that_are_recorded_anew_gain_nothing(device):
    square = torch.ones(2048, 2048, device=device).bfloat16()
    timers = [GpuTimer(device, Cold("none"), stamped=stamped) for stamped in (True, False)]

    def times_ns(timer: GpuTimer, call: Callable[[], object]) -> list[int]:
        return [timer.time(call, 2_000_000)[0].elapsed_ns for _ in range(SAMPLES)]

    def recording(timer: GpuTimer) -> Callable[[], object]:
        return lambda: (square @ square, timer._start.record())

    honest_ns, plain_ns = (times_ns(timer, lambda: square @ square) for timer in timers)
    found_ns, believed_ns = (times_ns(timer, recording(timer)) for timer in timers)
    assert statistics.median(honest_ns) < statistics.median(plain_ns) + 300, "an honest call is not charged"
    assert statistics.median(found_ns) > statistics.median(honest_ns) - 1500
    assert statistics.median(believed_ns) < statistics.median(honest_ns) / 2, "the trick works where nobody looks"


def test_the_launch_stays_hidden(device):
    timer, tensor = GpuTimer(device, Cold("read", 64 << 20)), torch.ones(1 << 10, device=device)
    timer.time(tensor.sum, 0)
    assert not any(timer.time(tensor.sum, 2_000_000)[0].exposed for _ in range(5))


def test_honest_times_by_either_way(device, capsys):
    """A report: what the same calls take behind a full device, behind one that is let go at once, and behind a sleep, in turn;
    what a copy engine can do; and in how many samples something seemed to have got in between."""
    cold = cold_read(describe_device(device))
    timers = {way: GpuTimer(device, cold, occupied=way != "sleep") for way in ("occupied", "at once", "sleep")}
    blocker_of(timers["at once"]).linger_ns = 0
    small, large = torch.ones(1 << 10, device=device), torch.ones(4 << 20, device=device)
    square, copy, side = torch.ones(4096, 4096, device=device).bfloat16(), torch.empty_like(large), torch.cuda.Stream(device)

    def nothing() -> None:
        pass

    def copied_ahead() -> torch.Tensor:
        with torch.cuda.stream(side):
            copy.copy_(large)
        return large.sum()

    calls = {
        "nothing": nothing, "add_ of 4 KiB": lambda: small.add_(1), "sum of 16 MiB": large.sum,
        "the same, copied on another queue": copied_ahead, "matmul 4096^3 bf16": lambda: square @ square,
        "100 add_ of 4 KiB": lambda: [small.add_(1) for _ in range(100)],
    }  # fmt: skip
    rows = []
    for name, call in calls.items():
        samples, lost = {way: [] for way in timers}, 0
        for _ in range(SAMPLES):
            for way, timer in timers.items():
                samples[way].append(timer.time(call, 3_000_000)[0])
                lost += way == "occupied" and timer._holder.lost_ns > 0
        medians = [statistics.median(sample.elapsed_ns for sample in samples[way]) / 1e3 for way in timers]
        exposed = sum(sample.exposed for sample in samples["occupied"])
        columns = " ".join(f"{median:>9.2f}" for median in medians)
        rows.append(f"{name:<36} {columns}   exposed {exposed}, lost {lost}")
        assert min(medians) > 0
    with capsys.disabled():
        print(f"\n{'median us, ' + torch.cuda.get_device_name():<36}", *(f"{way:>9}" for way in timers))
        print(*rows, sep="\n")


def head_starts(device: torch.device, blocker: Blocker, way: str, in_between: bool = False) -> list[tuple[int, int]]:
    """How much sooner than the clock's first kernel one of another queue began, in ns, and what the blocker counts as lost;
    SAMPLES times. `in_between`: it is queued when the device is full and `linger` is not there yet."""
    pytest.importorskip("triton")
    from triton_stamp import stamp

    stamps, event = torch.zeros(2, dtype=torch.int64, device=device), torch.cuda.Event(enable_timing=True)
    _, launch = launcher(device, way, lambda: stamp[(1,)](stamps[:1]))
    stamp[(1,)](stamps[1:])  # its alignment is another one: compiled apart
    found_ns = []
    for _ in range(SAMPLES):
        torch.cuda.synchronize()
        blocker._fill(1_000_000)
        if in_between:
            launch()
        blocker._stay(blocker.linger_ns)
        event.record()
        if not in_between:
            launch()
        stamp[(1,)](stamps[1:])
        torch.cuda.synchronize()
        there, here = stamps.tolist()
        found_ns.append((here - there, blocker.lost_ns))
    return found_ns


@pytest.mark.parametrize("way", WAYS[:2])
def test_another_queue_has_no_head_start(device, way):
    assert statistics.median(ns for ns, _ in head_starts(device, Blocker(device), way)) <= HEAD_START_NS


@pytest.mark.parametrize("way", WAYS[:2])
def test_what_gets_in_between_counts(device, way):
    """A kernel that is queued before `linger` is either charged for or no sooner than any other."""
    gains_ns = [ns - lost_ns for ns, lost_ns in head_starts(device, Blocker(device), way, in_between=True)]
    assert statistics.median(gains_ns) <= HEAD_START_NS, gains_ns


def test_the_head_start_of_another_queue(device, capsys):
    """A report: how much sooner than the clock's first kernel one of another queue begins, and what a call gains by it."""
    cold, large = cold_read(describe_device(device)), torch.ones(4 << 20, device=device)
    timer, blocker = GpuTimer(device, cold), Blocker(device)

    def ahead(way: str) -> Callable[[], object]:
        side, launch = launcher(device, way, large.sum)
        return lambda: (launch(), torch.cuda.current_stream().wait_stream(side))

    calls = {"its own queue": large.sum, **{way: ahead(way) for way in WAYS}}
    samples = [[timer.time(call, 3_000_000)[0].elapsed_ns for call in calls.values()] for _ in range(SAMPLES)]
    sums_us = [statistics.median(column) / 1e3 for column in zip(*samples, strict=True)]
    with capsys.disabled():
        for name, one in (("cold", blocker_of(timer)), ("warm", blocker)):
            print(f"\n{name}: lingers for {one.linger_ns} ns, begins at {one.begins_ns}, needed {one.needed_ns}", end="")
        print("\nsum of 16 MiB, us:", *(f"{name} {us:.2f}" for name, us in zip(calls, sums_us, strict=True)), sep="  ")
        for way in WAYS:
            low, *_, high = ordered = sorted(ns for ns, _ in head_starts(device, blocker, way))
            print(f"a kernel of {way} begins {statistics.median(ordered)} ns ({low} to {high}) before the clock's first one")


def test_the_corpus(device):
    """Side by side: what is timed is timed one at a time, so about as long as two evaluations."""
    names = ("cheats/sleep_ahead", "cheats/start_recorded_again", "controls/side_queue_joined")
    entries = [load_entry(FOLDER / f"{name}.py") for name in names]
    found = list(investigated(Bench(Rules(device="cuda", budget_s=0.5)), entries, options(["--gpu", "--prove"]), jobs=4))
    assert len(found) == len(entries)
    for finding in found:
        assert not finding.failed, (finding.outcome, finding.proof, finding.trial)
        assert finding.proof in ("succeeds", "")
