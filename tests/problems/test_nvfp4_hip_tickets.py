"""The last-arriver combine of the NVFP4 HIP kernel: workgroups in all orders that the emulator makes, and aborted launches."""

import contextlib

import pytest
import torch
from nvfp4_cases import REFERENCE, make_input

pytest.importorskip("gfx950")

from gfx950.emulator import Schedule, launch
from gfx950.errors import EmulationFault
from kernels.nvfp4_msa import hip_backend
from kernels.nvfp4_msa.hip_backend import HIP_TRAITS_OF_MODULE, HipPlan
from scripts.nvfp4_emulation import THREADS, compile_traits, emulate, launch_arguments

TRAITS = HIP_TRAITS_OF_MODULE[0]
PARAMS = {"buffers": TRAITS.buffers, "waves_per_simd": TRAITS.waves_per_simd, "num_kv_splits": 2, "num_xcds": 1}
ORDERS = [Schedule.round_robin(1), Schedule.round_robin(64), Schedule.reverse(1), Schedule.to_barrier()]
ORDERS += [Schedule.random(seed=3)]
FIVE_BLOCKS = {"kvseqlen": 1900, "topk": 5, "seed": 2}


@pytest.mark.parametrize("in_flight", [1, 3, 64])
def test_workgroups_arrive_in_any_order(in_flight):
    data = make_input(**FIVE_BLOCKS, qseqlen=2, groupsize=4, slots="messy")
    result = emulate(data, TRAITS, 5, schedules=ORDERS, lds_fills=("nan",), workgroups_in_flight=in_flight)
    assert result.verdict.ok, str(result.verdict)


@pytest.mark.slow
@pytest.mark.parametrize("in_flight", [2, 5, 16, 256])
def test_workgroups_arrive_in_many_random_orders(in_flight):
    data = make_input(batchsize=3, topk=16, kvseqlen=2500, numkvheads=2, groupsize=8, slots="messy", kvmin=0)
    schedules = [schedule for seed in range(12) for schedule in (Schedule.random(seed, 4), Schedule.random(seed, 200).prompt())]
    result = emulate(data, TRAITS, 16, schedules=schedules, lds_fills=("nan",), workgroups_in_flight=in_flight)
    assert result.verdict.ok, str(result.verdict)


class EmulatedModule:
    """Stands in for the compiled module: `decode` runs the gfx950 machine code on the plan's CPU tensors."""

    budget = 5_000_000  # instructions of a wave; a launch with too few is cut short

    def decode(self, kernel, *arguments):
        tensors, numbers = arguments[:11], arguments[11:]
        grid, args = launch_arguments(tensors[:7], tensors[7:], *numbers)
        code = compile_traits(HIP_TRAITS_OF_MODULE[kernel])
        launch(code, grid=grid, block=THREADS, args=args, schedule=Schedule.reverse(1), budget=self.budget)


@pytest.fixture
def module(monkeypatch):
    emulated = EmulatedModule()
    monkeypatch.setattr(hip_backend, "hip_module", lambda: emulated)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    return emulated


def right(data, output):
    return REFERENCE.judge(data, output)["strict"]["ok"]


def abort(plan, module, data):
    """Stop a launch as soon as the first workgroup has drawn its ticket."""
    for budget in range(600, 5000, 50):
        module.budget = budget
        with contextlib.suppress(EmulationFault):
            plan(data)
        if plan.tickets.any():
            break
    module.budget = EmulatedModule.budget
    assert plan.tickets.any()
    assert plan.launching


def test_counters_are_zero_after_every_call(module):
    data, other = make_input(**FIVE_BLOCKS), make_input(**FIVE_BLOCKS | {"seed": 9})
    plan = HipPlan(data, PARAMS)
    for each in (data, other, data):
        assert right(each, plan(each))
        assert not plan.tickets.any()


def test_the_call_after_an_aborted_one_is_right(module):
    data = make_input(**FIVE_BLOCKS)
    plan = HipPlan(data, PARAMS)
    abort(plan, module, data)
    assert right(data, plan(data))
    assert not plan.tickets.any()


def test_recover_repairs_what_was_aborted_behind_the_plans_back(module):
    """Without it the stale counter has rows combined before their splits are complete, in this call and all others."""
    data = make_input(**FIVE_BLOCKS)
    plan = HipPlan(data, PARAMS)
    abort(plan, module, data)
    plan.launching = False  # as after a launch that failed when its call had returned
    plan.partial.fill_(float("nan"))
    assert not right(data, plan(data))
    assert plan.tickets.any()
    plan.recover()
    assert right(data, plan(data))
    assert not plan.tickets.any()
