"""The Triton tuner, as far as it needs no GPU: its search space, its checks, and writing results into dispatch.yml."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kernels.layout import Shape
from scripts import tune_triton

ROOT = Path(tune_triton.ROOT)


@given(
    batch=st.integers(1, 512),
    kv_len=st.integers(1, 1 << 15),
    multiprocessors=st.integers(1, 300),
    block_n=st.sampled_from([16, 128]),
)
def test_split_counts_are_positive_sorted_and_leave_no_split_without_a_tile(batch, kv_len, multiprocessors, block_n):
    counts = tune_triton.split_counts(Shape(batch, 1, kv_len, 16), block_n, multiprocessors)
    assert counts == sorted(set(counts))
    assert counts[0] >= 1
    assert counts[-1] <= -(-kv_len // block_n)


def test_a_wrong_or_nan_output_is_seen():
    expected = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))
    assert tune_triton.worst_rel_l2(expected.clone(), expected) == 0
    wrong = expected.clone()
    wrong[1, 2] *= 1.3
    assert tune_triton.worst_rel_l2(wrong, expected) == pytest.approx(0.3, rel=1e-3)
    wrong[0, 0, 0] = float("nan")
    assert tune_triton.worst_rel_l2(wrong, expected) == float("inf")


TABLE = """\
# a comment at the top
amd-mixed-mla:
  gfx950:  # a comment beside
    - {shape: [1, 1, 1, 16], backend: triton, params: {num_kv_splits: 9}}
  H200:
    - {shape: [4, 1, 1024, 16], backend: cuda, params: {x: 1}}
    - {shape: [4, 1, 1024, 16], backend: triton, params: {num_kv_splits: 1}}
"""


def result(median_ns, **params):
    return {"shape": [4, 1, 1024, 16], "params": params, "median_ns": median_ns, "samples_ns": [median_ns]}


def test_apply_keeps_comments_other_devices_and_other_backends(tmp_path, monkeypatch):
    pytest.importorskip("ruamel.yaml")
    (tmp_path / "configs").mkdir()
    table = tmp_path / "configs" / "dispatch.yml"
    table.write_text(TABLE)
    finals = {"fp8": [result(12_000.4, format="fp8", num_kv_splits=32)], "bf16": [result(13_000.0, format="bf16")]}
    report = {"device": "NVIDIA H200", "date": "2026-11-30T03:30:00+00:00", "results": {"4 1 1024 16": finals}}
    (tmp_path / "tuned.json").write_text(json.dumps(report))
    monkeypatch.setattr(tune_triton, "ROOT", tmp_path)

    tune_triton.apply(tmp_path / "tuned.json", "H200")

    text = table.read_text()
    assert "# a comment at the top" in text
    assert "# a comment beside" in text
    entries = yaml.safe_load(text)["amd-mixed-mla"]
    assert entries["gfx950"] == [{"shape": [1, 1, 1, 16], "backend": "triton", "params": {"num_kv_splits": 9}}]
    assert [entry["backend"] for entry in entries["H200"]] == ["cuda", "triton"]
    assert entries["H200"][1]["params"] == {"format": "fp8", "num_kv_splits": 32}
    assert entries["H200"][1]["evidence"] == {"device": "NVIDIA H200", "date": "2026-11-30", "median_ns": 12000}


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_it_says_so():
    run = subprocess.run([sys.executable, str(ROOT / "scripts/tune_triton.py")], capture_output=True, text=True)
    assert run.returncode == 2
    assert "no GPU on this machine; --dry-run" in run.stderr


@pytest.mark.slow
def test_dry_run(tmp_path):
    pytest.importorskip("triton")
    script, out = str(ROOT / "scripts/tune_triton.py"), str(tmp_path / "tuned.json")
    command = [sys.executable, "-W", "ignore", script, "--dry-run", "--out", out]
    run = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "0 of them for wrong results" in run.stdout
    assert json.loads((tmp_path / "tuned.json").read_text())["results"]["2 1 70 16"]["fp8"]
