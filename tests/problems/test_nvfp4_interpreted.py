"""The Triton kernel under Triton's interpreter, on small inputs, against the fp64 oracle."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from nvfp4_cases import HEADS, heads_spec

pytest.importorskip("triton")
HERE = Path(__file__).resolve().parent


def case(splits=2, num_warps=2, keys=32, q_factor=None, **spec):
    params = {"num_kv_splits": splits, "num_warps": num_warps, "keys": keys}
    return {"params": params, "spec": {"batchsize": 2, "kvseqlen": 260, "topk": 3} | spec, "q_factor": q_factor}


CASES = {
    **{f"{heads}": case(**heads_spec(*heads), kvmin=100, topk=6, slots="messy", padrows=1) for heads in HEADS},
    "one split": case(splits=1),
    "more splits than blocks": case(splits=7, kvmin=1, batchsize=3),
    "one token": case(kvseqlen=1, topk=1),
    "64 slots": case(topk=64, kvseqlen=300, slots="messy", splits=3, batchsize=1),
    "linear V scales": case(vscales="linear"),
    "a tile a page": case(num_warps=4, keys=32),
    "four tiles a page": case(num_warps=2, keys=16, batchsize=1),
    "one warp": case(num_warps=1, keys=64, batchsize=1),
    "all codes and scales": case(dist="bytes", batchsize=1),
    "large scores": case(dist="large"),
    "outliers": case(dist="outlier"),
    "zeros": case(dist="zeros"),
    "one key has all the weight": case(dist="onehot"),
    "q beyond the range of f16": case(q_factor=1e6, batchsize=1),
    "q below the range of f16": case(q_factor=1e-9, batchsize=1),
}


def faults(result):
    """What is wrong with a case's result, in words."""
    return [
        *result["faults"],
        *(["no row saw anything"] if not result["seeing"] else []),
        *(["tickets were left"] if result["tickets_left"] else []),
        *(["a call after one that was cut short differs"] if not result["repeats"] else []),
    ]


def test_every_case_passes_both_verdicts_leaves_no_ticket_and_recovers():
    """In one process, so one test: its start costs as much as its cases.

    The interpreter truncates fp32 to bf16 where GPUs round, so errors are about twice as large as there.
    """
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": f"{HERE.parents[1]}:{HERE}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", str(HERE / "nvfp4_interpreted.py")]
    cases = json.dumps(list(CASES.values()))
    run = subprocess.run(command, input=cases, env=environment, capture_output=True, text=True, timeout=1800)
    assert run.returncode == 0, run.stderr
    results = dict(zip(CASES, json.loads(run.stdout), strict=True))
    assert {name: faults(result) for name, result in results.items() if faults(result)} == {}
