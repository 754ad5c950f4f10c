"""Which device is used, and what configs/devices.yml says about those we know."""

import os

import pytest
import torch
import yaml

from harness.defences import Defences
from harness.devices import DEVICES_FILE, _forbid_expandable_segments, describe_device, lookup_peaks
from harness.floors import roofline_ns
from harness.process import worker_environment
from harness.result import Device, Peaks

ENTRIES = yaml.safe_load(DEVICES_FILE.read_text())


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["match"])
def test_every_entry_is_complete_and_plausible(entry):
    assert set(entry) <= {
        "match", "arch", "bandwidth_bytes_per_s", "last_level_cache_bytes", "bf16_flops", "fp8_flops", "fp4_flops", "source",
    }  # fmt: skip
    assert 0.2e12 < entry["bandwidth_bytes_per_s"] < 20e12
    assert 1 << 20 <= entry["last_level_cache_bytes"] <= 1 << 30
    assert entry.get("fp8_flops", 2 * entry["bf16_flops"]) == pytest.approx(2 * entry["bf16_flops"], rel=0.03)
    assert entry["source"]


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("NVIDIA H200", "H200"), ("NVIDIA H100 80GB HBM3", "H100"), ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"), ("NVIDIA B200", "B200"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"), ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"), ("NVIDIA L40S", "L40S"), ("NVIDIA GeForce RTX 5090", "RTX 5090"),
        ("AMD Instinct MI355X", "MI355X"), ("AMD Instinct MI300X", "MI300X"),
    ],
)  # fmt: skip
def test_names_as_torch_reports_them(name, match):
    entry = next(entry for entry in ENTRIES if entry["match"] == match)
    peaks, cache_bytes = lookup_peaks(name, DEVICES_FILE)
    assert peaks is not None
    assert peaks.bandwidth_bytes_per_s == entry["bandwidth_bytes_per_s"]
    assert cache_bytes == entry["last_level_cache_bytes"]


def test_unknown_devices_have_no_roofline():
    assert lookup_peaks("Some New GPU", DEVICES_FILE) == (None, 0)
    assert roofline_ns(1000, Device("Some New GPU", "cuda", "sm_200")) is None


def test_roofline_of_the_task_page():
    """mixed MLA on MI355X: 256 x 8192 from an fp8 cache is 152 us, from mxfp4 81.3 us."""
    device = Device("MI355X", "hip", "gfx950", peaks=Peaks(8e12))
    q_and_output = 256 * 16 * (576 + 512) * 2
    for row_bytes, expected_us in ((576, 152), (306, 81.3)):
        assert roofline_ns(256 * 8192 * row_bytes + q_and_output, device) == pytest.approx(expected_us * 1e3, rel=0.005)


def test_the_cpu_describes_itself():
    about = describe_device(torch.device("cpu"))
    assert about.kind == "cpu"
    assert about.peaks is None
    assert about.memory_bytes > 1 << 28
    assert about.last_level_cache_bytes >= 1 << 18


def test_expandable_segments_are_turned_off(monkeypatch):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64,expandable_segments:True")
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    _forbid_expandable_segments()
    assert os.environ["PYTORCH_CUDA_ALLOC_CONF"] == "max_split_size_mb:64"
    assert "PYTORCH_ALLOC_CONF" not in os.environ


def test_a_workers_environment(tmp_path):
    environ = {"PATH": "/bin", "POPCORN_FD": "3", "AWS_SECRET_ACCESS_KEY": "x", "hf_token": "y", "PYTHONPATH": "/repo"}
    made = worker_environment(environ, tmp_path, "triton", tmp_path / "home", Defences())
    assert made["PATH"] == "/bin"
    assert made["PYTHONPATH"] == str(tmp_path)
    assert made["KERNELPROOF_BACKEND"] == "triton"
    assert not {"POPCORN_FD", "AWS_SECRET_ACCESS_KEY", "hf_token"} & set(made)
