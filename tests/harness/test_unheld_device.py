"""A device that cannot be filled before a call: the Result says so; one that was not free for the clock has no time."""

from pathlib import Path

import pytest

from harness import worker
from harness.blocker import KernelFault, NotHeld
from harness.cli import main
from harness.result import Result, read_result
from harness.session import Session

FOLDER = Path(__file__).parent / "doubling"


def evaluated(tmp_path: Path) -> Result:
    path = tmp_path / "result.json"
    options = ["--problem", str(FOLDER), "--device", "cpu", "--mode", "test", "--cases", "size: 8; seed: 1"]
    assert main([*options, "--json", str(path)]) == 0
    return read_result(path)


def said(result: Result) -> list[str]:
    return [warning for warning in result.warnings if "cannot be filled" in warning]


def test_a_worker_that_cannot_fill_its_device_is_no_secret(tmp_path, monkeypatch):
    start = Session.start

    def start_unheld(self: Session, cold) -> None:
        start(self, cold)
        self.unheld = "no NVIDIA driver: libcuda.so.1"

    monkeypatch.setattr(Session, "start", start_unheld)
    (warning,) = said(evaluated(tmp_path))
    assert "(no NVIDIA driver: libcuda.so.1)" in warning
    assert "another queue" in warning


def test_a_cpu_has_nothing_to_fill(tmp_path):
    assert not said(evaluated(tmp_path))


@pytest.mark.parametrize("error", [NotHeld("the device was not free"), NotHeld("CUDA error 1")])
def test_a_clock_that_could_not_be_prepared_is_not_believed(error):
    kind, fields = worker.failure(error)
    assert (kind, fields["category"]) == ("failed", "tampered")


@pytest.mark.parametrize("found_by", [
    KernelFault("CUDA error 700: an illegal memory access was encountered"),
    RuntimeError("CUDA error: an illegal memory access was encountered"),
], ids=["clock", "torch"])  # fmt: skip
def test_a_kernels_fault_is_the_devices_whoever_meets_it_first(found_by):
    kind, fields = worker.failure(found_by)
    assert (kind, fields["category"]) == ("failed", "device")
