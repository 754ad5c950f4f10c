"""The Triton backend under Triton's interpreter, on small shapes, against the fp64 oracle."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mla_oracle import INTERPRETED_REL_L2

pytest.importorskip("triton")
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def case(lengths, q_len=1, heads=16, **more):
    params = {"format": more.pop("format"), "num_kv_splits": more.pop("splits"), "block_n": 16}
    return {"lengths": lengths, "q_len": q_len, "heads": heads, "params": params, **more}


CASES = {
    f"{name}, {kv_format}": case(format=kv_format, **spec)
    for kv_format in ("bf16", "fp8")
    for name, spec in {
        "ragged with empty sequences, one split": {"lengths": [37, 0, 1, 16], "splits": 1},
        "ragged with empty sequences and splits": {"lengths": [37, 0, 1, 16], "splits": 3},
        "only empty sequences": {"lengths": [0, 0], "splits": 2},
        "three query tokens of 32 heads": {"lengths": [20, 33], "q_len": 3, "heads": 32, "splits": 2},
        "128 heads": {"lengths": [18], "heads": 128, "splits": 1},
        "five heads": {"lengths": [40], "heads": 5, "splits": 2},
        "large scores": {"lengths": [40], "splits": 2, "dist": "large"},
        "outliers": {"lengths": [40], "splits": 2, "dist": "outlier"},
        "q beyond the range of f16": {"lengths": [20], "splits": 1, "q_factor": 1e6},
        "q below the range of f16": {"lengths": [20], "splits": 1, "q_factor": 1e-9},
    }.items()
}


@pytest.fixture(scope="module")
def errors():
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": f"{ROOT}:{HERE}"}
    command = [sys.executable, "-W", "ignore", str(HERE / "interpreted_cases.py")]
    cases = json.dumps(list(CASES.values()))
    run = subprocess.run(command, input=cases, env=environment, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    return dict(zip(CASES, json.loads(run.stdout), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_the_oracle(errors, name):
    assert errors[name] < INTERPRETED_REL_L2
