"""The device path: IPC or copies, events, floors. Needs a GPU (CUDA or ROCm)."""

import shutil
from pathlib import Path

import pytest
import torch

from harness import containment, memory, referee
from harness.cli import main
from harness.devices import describe_device, select_device
from harness.floors import ReadFloor
from harness.inputs import InputBuffers
from harness.policies import cold_read
from harness.result import Status, read_result
from harness.session import Session
from harness.timing import Cold, GpuTimer

FOLDER = Path(__file__).parent / "doubling"
pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _needs_gpu():
    # Not at import: asking fixes the visible devices of this process, and CPU tests hide them.
    if not torch.cuda.is_available():
        pytest.skip("no GPU")


def run(tmp_path: Path, *options: str):
    json = tmp_path / "result.json"
    code = main(["--problem", str(FOLDER), "--device", "cuda", "--timeout-s", "60", "--json", str(json), *options])
    return code, read_result(json)


@pytest.mark.parametrize("mode", ["test", "benchmark", "leaderboard", "profile"])
def test_honest_submission(tmp_path, mode):
    code, result = run(tmp_path, "--mode", mode, "--cases", "size: 1048576; seed: 1; act: honest", "--budget-s", "1")
    assert code == 0
    assert result.device.kind in ("cuda", "hip")
    assert not any("shared between processes" in warning for warning in result.warnings)


def test_the_strongest_layers_are_in_nobodys_way(tmp_path):
    """The worker starts its device and shares memory behind the best that this kernel has; a warning names what is not used."""
    _, result = run(tmp_path, "--mode", "test", "--cases", "size: 1048576; seed: 1; act: honest")
    assert not [warning for warning in result.warnings if warning.startswith("not behind")], result.warnings
    assert result.containment == containment.choose().layers


def test_large_inputs_are_complete_when_the_worker_reads_them(tmp_path):
    """Fresh contents of a gigabyte are still being copied when the referee goes on, unless it waits for its device."""
    case = "size: 268435456; seed: 1; act: honest"
    code, result = run(tmp_path, "--mode", "leaderboard", "--cases", case, "--budget-s", "1")
    assert code == 0, result.cases[0].message


@pytest.mark.parametrize("mode", ["benchmark", "leaderboard"])
def test_copies_where_memory_cannot_be_shared(tmp_path, monkeypatch, mode):
    monkeypatch.setattr(referee, "why_not_shared", lambda session, device: "as this test wants")
    code, result = run(tmp_path, "--mode", mode, "--cases", "size: 1048576; seed: 1; act: honest", "--budget-s", "0.5")
    assert code == 0
    assert any("inputs are copied" in warning for warning in result.warnings)


@pytest.mark.parametrize(
    ("act", "status"),
    [
        ("scribbles", Status.PASS),  # on its own copy, or on contents that are renewed before the next call
        ("segfault", Status.CRASHED),
        ("nan", Status.WRONG),
        ("shape", Status.WRONG),
        ("oom", Status.OOM),
    ],
)
def test_bad_calls(tmp_path, act, status):
    _, result = run(tmp_path, "--mode", "benchmark", "--cases", f"size: 4096; seed: 1; act: {act}", "--budget-s", "0.5")
    assert result.cases[0].status is status


def test_run_goes_on_after_a_crash(tmp_path):
    cases = tmp_path / "cases.txt"
    cases.write_text("\n".join(f"size: 4096; seed: 1; act: {act}" for act in ("honest", "segfault", "honest")))
    _, result = run(tmp_path, "--mode", "test", "--cases", str(cases))
    assert [case.status for case in result.cases] == [Status.PASS, Status.CRASHED, Status.PASS]


def test_written_device_inputs_are_found():
    """The referee compares the memory that it lent with its own copy."""
    buffers = InputBuffers()
    buffers.fill(lambda: (torch.zeros(1000, device="cuda"), torch.ones(1 << 25, device="cuda"), 3))
    assert buffers.changed_on_device() == []
    memory.byte_view(buffers.storages[1])[-1] = 7
    assert buffers.positions(buffers.changed_on_device()) == [1]
    assert bool((buffers.value[1] == 1).all())
    buffers.close()


@pytest.fixture
def read_only(tmp_path) -> str:
    """The folder of a problem whose inputs must not be written."""
    problem = tmp_path / "problem"
    shutil.copytree(FOLDER, problem)
    (problem / "task.yml").write_text((FOLDER / "task.yml").read_text().replace("../../../eval.py", "eval.py"))
    shutil.copy(FOLDER.parents[2] / "eval.py", problem)
    with (problem / "reference.py").open("a") as reference:
        reference.write("\nmutable_inputs = ()\n")
    return str(problem)


@pytest.mark.parametrize("size", [4096, 1 << 26])
def test_a_burst_has_contents_of_its_own_and_outputs_in_device_memory(tmp_path, read_only, monkeypatch, size):
    """No call can return what another one made, and none is made when its output is taken."""
    burst, delivered, names, lent_bytes = Session.burst, Session._delivered, [], []
    monkeypatch.setattr(Session, "burst", lambda session, inputs, late: names.append(inputs) or burst(session, inputs, late))

    def deliver(session, asked, lent):
        lent_bytes.append(lent.nbytes)
        return delivered(session, asked, lent)

    monkeypatch.setattr(Session, "_delivered", deliver)
    case = f"size: {size}; seed: 1; act: honest"
    code, result = run(tmp_path, "--problem", read_only, "--mode", "leaderboard", "--cases", case, "--budget-s", "1")
    assert code == 0, result.cases[0].message
    assert len(set(names[0])) == len(names[0]) > 1
    assert lent_bytes[0] >= len(names[0]) * 4 * size


def test_inputs_that_must_not_be_written(tmp_path, read_only):
    case = "size: 4096; seed: 1; act: scribbles"
    code, result = run(tmp_path, "--problem", read_only, "--mode", "test", "--cases", case)
    assert code == 112
    assert "input 0 was changed" in result.cases[0].strict.message


def test_the_referees_clock_bounds_the_time(tmp_path):
    _, result = run(tmp_path, "--mode", "benchmark", "--cases", "size: 1048576; seed: 1; act: honest", "--budget-s", "1")
    case = result.cases[0]
    assert case.bound_ns >= case.timing.median_ns


def test_another_queue_is_waited_for_and_counts():
    device, side = select_device("cuda"), torch.cuda.Stream()
    cycles = 50_000_000

    def call():
        with torch.cuda.stream(side):
            torch.cuda._sleep(cycles)

    waits, leaves = (GpuTimer(device, Cold("none"), synchronized) for synchronized in (True, False))
    assert waits.time(call)[0].elapsed_ns > 10 * leaves.time(call)[0].elapsed_ns
    torch.cuda.synchronize()


def test_timer_orders_work_by_cost():
    device = select_device("cuda")
    timer = GpuTimer(device, Cold("read", 64 << 20))
    small, large = (torch.ones(size, device=device) for size in (1 << 10, 1 << 26))
    times = [sorted(timer.time(tensor.sum, 200_000)[0].elapsed_ns for _ in range(9))[4] for tensor in (small, large)]
    assert times[0] < times[1]


def test_sleep_hides_the_launch():
    device = select_device("cuda")
    timer = GpuTimer(device, Cold("none"))
    tensor = torch.ones(1 << 10, device=device)
    timer.time(tensor.sum, 0)
    samples = [timer.time(tensor.sum, 2_000_000)[0] for _ in range(5)]
    assert not any(sample.exposed for sample in samples)


def test_read_floor_is_below_the_datasheet_bandwidth():
    device = select_device("cuda")
    about = describe_device(device)
    floor = ReadFloor(device, cold_read(about))
    nbytes = 1 << 30
    if about.peaks is not None:
        assert floor.ns(nbytes) > nbytes / about.peaks.bandwidth_bytes_per_s * 1e9
    assert floor.ns(1 << 20) < floor.ns(nbytes)
