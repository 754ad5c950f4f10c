"""Runs in a process of its own with TRITON_INTERPRET=1: the Triton backend on cases from stdin, what each does."""

import contextlib
import json
import sys

import torch
from nvfp4_cases import REFERENCE, make_input

from kernels.nvfp4_msa.layout import shape_of
from kernels.nvfp4_msa.triton_backend import TritonBackend

BACKEND = TritonBackend()


class Stopped(Exception):
    """A launch that was cut short."""


def stopped(plan, data):
    """A call whose launch ends after one split of every pair has handed in."""
    decode = plan.decode

    def hand_in_once(*args):
        plan.tickets.fill_(1)
        raise Stopped

    plan.decode = hand_in_once
    with contextlib.suppress(Stopped):
        plan(data)
    plan.decode = decode


def run(case):
    data = make_input(**case["spec"])
    if case.get("q_factor"):
        data = (data[0] * case["q_factor"], *data[1:])
        data[-1]["sm_scale"] /= case["q_factor"]
    params = BACKEND.default_params(shape_of(data), torch.device("cpu")) | case["params"]
    plan = BACKEND.plan(data, params)
    first = plan(data).clone()
    left = bool(plan.tickets.any())
    stopped(plan, data)
    for left_behind in (plan.out, plan.partial, plan.lse):  # must not matter to the next call
        left_behind.fill_(float("nan"))
    verdicts = REFERENCE.judge(data, first)
    return {
        "faults": [verdict["message"] for verdict in verdicts.values() if not verdict["ok"]],
        "seeing": bool(first.any()),
        "tickets_left": left,
        "repeats": torch.equal(plan(data), first) and not plan.tickets.any().item(),
    }


torch.set_num_threads(1)
print(json.dumps([run(case) for case in json.load(sys.stdin)]))
