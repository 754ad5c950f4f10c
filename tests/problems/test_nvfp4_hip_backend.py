"""The NVFP4 HIP backend's host side: traits, splits, plans against a fake module, and the launcher's syntax and types."""

import contextlib
import re
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nvfp4_cases import make_input

from kernels.nvfp4_msa import hip_backend
from kernels.nvfp4_msa.assets import HIP_ARGUMENTS, HIP_BINDING
from kernels.nvfp4_msa.hip_backend import HIP_TRAITS_OF_MODULE, HipBackend, HipPlan, Traits, hip_splits, module_source
from kernels.nvfp4_msa.layout import Shape

sys.path.append(str(Path(__file__).resolve().parent.parent / "support"))
import compile_only

CPU = torch.device("cpu")
HEADS = st.sampled_from([(1, 16), (4, 16), (1, 8), (2, 16), (4, 4)])
SHAPES = st.builds(
    lambda heads, *sizes: Shape(*sizes, *heads),
    HEADS, st.integers(1, 256), st.integers(1, 4), st.integers(1, 1 << 17), st.integers(1, 64),
)  # fmt: skip


@given(shape=SHAPES)
def test_defaults_are_kernels_of_the_module_and_no_more_splits_than_slots(shape):
    params = HipBackend().default_params(shape, CPU)
    assert Traits(params["buffers"], params["waves_per_simd"]) in HIP_TRAITS_OF_MODULE
    assert 1 <= params["num_kv_splits"] <= shape.topk


def test_few_rows_are_split_and_many_are_not():
    few, many = (hip_splits(Shape(batch, 1, 32768, 16, 1, 16), HIP_TRAITS_OF_MODULE[0]) for batch in (1, 1024))
    assert few >= 8
    assert many == 1


def test_traits_stand_in_the_order_of_the_struct():
    text = hip_backend.HIP_KERNEL_SOURCES["traits.hip"]
    struct = text[text.index("struct Traits {") : text.index("};", text.index("struct Traits {"))]
    assert tuple(re.findall(r"^  \w+ (\w+);", struct, re.MULTILINE)) == Traits._fields


def test_why_it_is_not_available():
    assert "ROCm" in str(HipBackend().available(CPU))


class FakeModule:
    def __init__(self):
        self.calls, self.fails = [], False

    def decode(self, *arguments):
        self.calls.append(arguments)
        if self.fails:
            raise RuntimeError("the HIP kernels could not be launched: unspecified launch failure")


@pytest.fixture
def module(monkeypatch):
    fake = FakeModule()
    monkeypatch.setattr(hip_backend, "hip_module", lambda: fake)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    return fake


def plan_of(data, **params):
    return HipPlan(data, {"buffers": 3, "waves_per_simd": 2, "num_kv_splits": 2, "num_xcds": 1} | params)


@pytest.mark.parametrize("vscales", ["swizzled", "linear"])
def test_the_order_of_v_scales_chooses_the_kernel(module, vscales):
    data = make_input(vscales=vscales)
    plan_of(data)(data)
    assert HIP_TRAITS_OF_MODULE[module.calls[0][0]] == Traits(swizzled=vscales == "swizzled")


def test_a_steady_call_allocates_nothing_and_passes_what_the_binding_takes(module, monkeypatch):
    data = make_input(padrows=3)
    plan = plan_of(data)
    first = plan(data)
    for name in ("empty", "zeros", "empty_like", "zeros_like", "full", "tensor"):
        monkeypatch.setattr(torch, name, None)
    assert plan(data) is first is plan.out
    pointers = [[value.data_ptr() for value in call if isinstance(value, torch.Tensor)] for call in module.calls]
    assert pointers[0] == pointers[1]
    assert len(module.calls[0]) == HIP_BINDING.split("void decode(")[1].split("{")[0].count(",") + 1


def test_workspace_sizes(module):
    plan = plan_of(make_input(numkvheads=4, groupsize=4, qseqlen=3, padrows=2), num_kv_splits=3)
    assert plan.out.shape == (8, 16, 128)
    assert plan.partial.shape == (8 * 16, 3, 128)
    assert plan.lse.shape == (8 * 16, 3)
    assert plan.tickets.shape == (8, 4)
    assert not plan.tickets.any()


def test_counters_are_zeroed_after_a_call_that_failed_and_only_then(module):
    data = make_input()
    plan = plan_of(data)
    plan(data)
    plan.tickets.fill_(7)  # nobody looks as long as all is well: that would wait for the device
    plan(data)
    assert plan.tickets.eq(7).all()
    module.fails = True
    with pytest.raises(RuntimeError, match="unspecified launch failure"):
        plan(data)
    module.fails = False
    plan(data)
    assert not plan.tickets.any()


@pytest.mark.parametrize(
    ("params", "problem"),
    [({"num_kv_splits": 65}, "num_kv_splits=65"), ({"num_kv_splits": 0}, "1 to 64 splits"), ({"num_xcds": 0}, "num_xcds=0"),
     ({"buffers": 9}, "buffers=9.* is not compiled")],
)  # fmt: skip
def test_impossible_parameters_are_refused(module, params, problem):
    with pytest.raises(ValueError, match=problem):
        plan_of(make_input(), **params)


@pytest.mark.parametrize("side", compile_only.SIDES)
def test_launcher_and_kernels_compile_against_rocms_headers(side, tmp_path):
    compile_only.compile_module(module_source(), side, tmp_path)


def test_binding_compiles_against_torchs_headers(tmp_path):
    compile_only.compile_binding(HIP_ARGUMENTS + HIP_BINDING, tmp_path)
