"""Nothing begins before the clock: the kernel that fills a device, on the device. Needs an NVIDIA GPU.

pytest -q -s -m gpu tests/harness/test_gpu_blocker.py    prints what the two ways to hide a launch measure
"""

import statistics
import time
from collections.abc import Callable

import pytest
import torch

from exploits.corpus import FOLDER, load_entry
from exploits.trials import Bench, Rules
from harness.blocker import Blocker
from harness.devices import describe_device, select_device
from harness.policies import cold_read
from harness.timing import Cold, GpuTimer
from scripts.integrity import investigated, options

pytestmark = pytest.mark.gpu
HOLD_NS = 20_000_000
SAMPLES = 31


@pytest.fixture(scope="module")
def device() -> torch.device:
    if not torch.cuda.is_available() or torch.version.hip:
        pytest.skip("no NVIDIA GPU")
    return select_device("cuda")


def launch_on(queue: torch.cuda.Stream) -> Callable[[torch.Tensor], None]:
    def launch(number: torch.Tensor) -> None:
        with torch.cuda.stream(queue):
            number.add_(1)

    return launch


def replay_on(queue: torch.cuda.Stream, number: torch.Tensor) -> Callable[[torch.Tensor], None]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        number.add_(1)

    def launch(number: torch.Tensor) -> None:
        with torch.cuda.stream(queue):
            graph.replay()

    return launch


@pytest.mark.parametrize("way", ["another queue", "a hurried queue", "a graph"])
def test_nothing_of_another_queue_begins_before_the_end(device, way):
    """A lower bound of the device's own time, however slow the host is: what ends sooner was not kept out."""
    number, done = torch.zeros(1, device=device), torch.cuda.Event()
    number.add_(1)  # loads the kernel
    queue = torch.cuda.Stream(device, priority=-5 if way == "a hurried queue" else 0)
    launch, blocker = replay_on(queue, number) if way == "a graph" else launch_on(queue), Blocker(device)
    for _ in range(3):
        torch.cuda.synchronize()
        asked_ns = time.perf_counter_ns()
        blocker.hold(HOLD_NS)
        launch(number)
        done.record(queue)
        done.synchronize()
        assert time.perf_counter_ns() - asked_ns >= HOLD_NS
    torch.cuda.synchronize()
    assert number.item() >= 4


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


def test_the_launch_stays_hidden(device):
    timer, tensor = GpuTimer(device, Cold("read", 64 << 20)), torch.ones(1 << 10, device=device)
    timer.time(tensor.sum, 0)
    assert not any(timer.time(tensor.sum, 2_000_000)[0].exposed for _ in range(5))


def test_honest_times_by_either_way(device, capsys):
    """A report: what the same calls take behind a full device and behind a sleep, in turn, and what a copy engine can do."""
    cold = cold_read(describe_device(device))
    timers = {"occupied": GpuTimer(device, cold), "sleep": GpuTimer(device, cold, occupied=False)}
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
        samples = {way: [] for way in timers}
        for _ in range(SAMPLES):
            for way, timer in timers.items():
                samples[way].append(timer.time(call, 3_000_000)[0])
        medians = [statistics.median(sample.elapsed_ns for sample in samples[way]) / 1e3 for way in timers]
        exposed = sum(sample.exposed for sample in samples["occupied"])
        rows.append(f"{name:<36} {medians[0]:>9.2f} {medians[1]:>9.2f}   exposed {exposed}")
        assert min(medians) > 0
    with capsys.disabled():
        print(f"\n{'median us, ' + torch.cuda.get_device_name():<36} {'occupied':>9} {'sleep':>9}", *rows, sep="\n")


def test_the_head_start_of_another_queue(device, capsys):
    """A report: how much sooner than the clock's first kernel one of another queue begins, and what a call gains by it."""
    triton = pytest.importorskip("triton")
    from triton_stamp import stamp

    del triton
    side, stamps, blocker = torch.cuda.Stream(device), torch.zeros(2, dtype=torch.int64, device=device), Blocker(device)
    event, sooner_ns = torch.cuda.Event(enable_timing=True), []
    for _ in range(SAMPLES):
        torch.cuda.synchronize()
        blocker.hold(1_000_000)
        event.record()
        with torch.cuda.stream(side):
            stamp[(1,)](stamps[0:])
        stamp[(1,)](stamps[1:])
        torch.cuda.synchronize()
        there, here = stamps.tolist()
        sooner_ns.append(here - there)
    timer, large = GpuTimer(device, cold_read(describe_device(device))), torch.ones(4 << 20, device=device)

    def ahead() -> None:
        with torch.cuda.stream(side):
            large.sum()
        torch.cuda.current_stream().wait_stream(side)

    samples = [[timer.time(call, 3_000_000)[0].elapsed_ns for call in (large.sum, ahead)] for _ in range(SAMPLES)]
    honest_ns, ahead_ns = (statistics.median(column) for column in zip(*samples, strict=True))
    with capsys.disabled():
        print(f"\na kernel of another queue begins {statistics.median(sooner_ns[1:])} ns before the first one of the clock's")
        print(f"sum of 16 MiB: {honest_ns / 1e3:.2f} us, on another queue {ahead_ns / 1e3:.2f} us")


def test_the_corpus(device):
    """Side by side: what is timed is timed one at a time, so about as long as two evaluations."""
    entries = [load_entry(FOLDER / f"{name}.py") for name in ("cheats/sleep_ahead", "controls/side_queue_joined")]
    found = list(investigated(Bench(Rules(device="cuda", budget_s=0.5)), entries, options(["--gpu", "--prove"]), jobs=4))
    assert len(found) == len(entries)
    for finding in found:
        assert not finding.failed, (finding.outcome, finding.proof, finding.trial)
        assert finding.proof in ("succeeds", "")
