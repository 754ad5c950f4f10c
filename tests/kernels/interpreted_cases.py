"""Runs in a process of its own with TRITON_INTERPRET=1: reads cases as JSON from stdin, prints the worst error of each."""

import json
import sys

import torch
from mla_oracle import make_input, oracle, worst_rel_l2

from kernels.layout import shape_of
from kernels.triton_backend import TritonBackend


def run(case):
    data = make_input(case["lengths"], case["q_len"], case["heads"], seed=case.get("seed", 0), dist=case.get("dist", "normal"))
    if case.get("q_factor"):
        data = (data[0] * case["q_factor"], *data[1:])
        data[4]["sm_scale"] /= case["q_factor"]
    backend = TritonBackend()
    device = torch.device("cpu")
    assert backend.available(device) is None
    params = backend.default_params(shape_of(data), device) | case["params"]
    plan = backend.plan(data, params)
    first = plan(data).clone()
    plan.out.fill_(float("nan"))  # what a call leaves of the buffers must not matter to the next
    plan.partial.fill_(float("nan"))
    assert torch.equal(plan(data), first)
    return worst_rel_l2(first, oracle(data, case["params"]["format"]))


print(json.dumps([run(case) for case in json.load(sys.stdin)]))
