"""The generated submission in an empty folder, beside task.py alone, in a process of its own."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

PREPARE = """
import torch
from submission import custom_kernel, describe

def make(lengths):
    torch.manual_seed(0)
    total = sum(lengths)
    q = torch.randn(len(lengths), 16, 576).bfloat16()
    kv = torch.randn(total, 1, 576).bfloat16()
    kv_data = {"bf16": kv, "fp8": (kv.to(torch.float8_e4m3fn), torch.ones(1))}
    kv_data["mxfp4"] = (torch.zeros(total, 1, 288, dtype=torch.uint8), torch.zeros(total, 18, dtype=torch.uint8))
    boundaries = torch.tensor([0] + lengths).cumsum(0).int()
    config = {"q_seq_len": 1, "kv_seq_len": max(lengths), "sm_scale": 1 / 24}
    return q, kv_data, torch.arange(len(lengths) + 1, dtype=torch.int32), boundaries, config
"""


@pytest.fixture
def alone(tmp_path):
    """Run a script beside the submission; nothing of the repository can be imported."""
    for name in ("submission.py", "task.py"):
        shutil.copy(ROOT / name, tmp_path)

    def alone(script, **environment):
        clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "KERNELPROOF_BACKEND")}
        (tmp_path / "main.py").write_text(PREPARE + textwrap.dedent(script))
        command = [sys.executable, "-W", "ignore", "main.py"]
        return subprocess.run(command, cwd=tmp_path, env=clean | environment, capture_output=True, text=True, timeout=600)

    return alone


COMPUTE = """
    data = make([30, 5])
    out = custom_kernel(data)
    k = data[1]["bf16"][:30, 0].double()
    expected = torch.softmax(data[0][0].double() @ k.T / 24, dim=-1) @ k[:, :512]
    error = (out[0].double() - expected).norm() / expected.norm()
    assert error < 0.06, error  # fp8 of the interpreted Triton backend included
    print(describe(data)["backend"])
"""


def test_imports_alone_as_the_runner_does(alone, tmp_path):
    alone("")
    run = subprocess.run([sys.executable, "submission.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_computes_alone(alone, backend):
    run = alone(COMPUTE, KERNELPROOF_BACKEND=backend)
    assert run.returncode == 0, run.stderr


def test_triton_reads_its_source_from_the_generated_file(alone):
    pytest.importorskip("triton")
    run = alone(COMPUTE, KERNELPROOF_BACKEND="triton", TRITON_INTERPRET="1")
    assert (run.returncode, run.stdout) == (0, "triton\n"), run.stderr


def test_runs_where_triton_is_missing(alone, tmp_path):
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("raise ImportError('hidden by this test')")
    run = alone(COMPUTE)
    assert (run.returncode, run.stdout) == (0, "torch\n"), run.stderr
    forced = alone(COMPUTE, KERNELPROOF_BACKEND="triton")
    assert "KERNELPROOF_BACKEND=triton: Triton is not installed" in forced.stderr


def test_a_traceback_names_the_sources(alone):
    run = alone('data = make([8]); data[4]["sm_scale"] = "x"; custom_kernel(data)', KERNELPROOF_BACKEND="torch")
    assert run.returncode == 1
    assert "from kernels/torch_backend.py:" in run.stderr
    assert "in attend_group" in run.stderr
    number = int(run.stderr.split("from kernels/torch_backend.py:")[1].split()[0])
    assert "attend_group(" in (ROOT / "kernels/torch_backend.py").read_text().splitlines()[number - 1]
