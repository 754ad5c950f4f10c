"""The HIP backend's host side: traits, parameters, plans against a fake module, and the launcher's syntax and types."""


import compile_only
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mla_oracle import make_input

from kernels import hip_backend, hip_module
from kernels.assets import HIP_ARGUMENTS, HIP_BINDING
from kernels.hip_backend import HIP_MAX_SPLITS, HipBackend, HipPlan, Traits, cost_ns, module_source, traits_of, tuned_traits
from kernels.layout import Shape

CPU = torch.device("cpu")
SHAPES = st.builds(Shape, st.integers(1, 2048), st.integers(1, 4), st.integers(0, 1 << 17), st.sampled_from([16, 32]))


@given(shape=SHAPES)
def test_defaults_are_in_range_and_belong_to_the_shared_module(shape):
    params = HipBackend().default_params(shape, CPU)
    assert 1 <= params["num_kv_splits"] <= HIP_MAX_SPLITS
    assert traits_of(params) in tuned_traits()


def test_the_cost_model_splits_where_workgroups_are_few():
    few, many = (HipBackend().default_params(Shape(batch, 1, 8192, 16), CPU)["num_kv_splits"] for batch in (4, 256))
    assert few >= 32
    assert many <= 4


def test_cost_grows_with_the_work():
    costs = [cost_ns(Shape(64, 1, kv_len, 16), Traits(), 4) for kv_len in (1024, 4096, 16384)]
    assert costs == sorted(set(costs))


def test_initializers_name_every_field():
    assert Traits("mxfp4", 2, 1, 64, 1, last_arriver=True).initializer().count(",") == len(Traits._fields) - 1
    assert Traits().initializer() == "kFp8, 1, 2, 32, 3, false, false, false, false, false, false"


def test_traits_stand_in_the_order_of_the_struct():
    text = hip_backend.HIP_KERNEL_SOURCES["traits.hip"]
    struct = text[text.index("struct Traits {") : text.index("};", text.index("struct Traits {"))]
    fields = [line.split("//")[0].strip().rstrip(";").split()[-1] for line in struct.splitlines()[1:]]
    assert fields == ["kv", *Traits._fields[1:]]


def test_why_it_is_not_available(monkeypatch):
    assert "ROCm" in str(HipBackend().available(CPU))
    properties = type("Properties", (), {"gcnArchName": "gfx942:sramecc+:xnack-"})
    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert HipBackend().available(torch.device("cuda")) == "the HIP kernels are written for gfx950 and this GPU is gfx942"
    properties.gcnArchName = "gfx950:sramecc+:xnack-"
    monkeypatch.setattr(hip_module.shutil, "which", lambda name: None)
    assert "hipcc and ninja must be on PATH" in str(HipBackend().available(torch.device("cuda")))


class FakeModule:
    def __init__(self):
        self.calls = []

    def decode(self, *arguments):
        self.calls.append(arguments)


@pytest.fixture
def module(monkeypatch):
    fake = FakeModule()
    monkeypatch.setattr(hip_backend, "hip_module", lambda traits: fake)
    monkeypatch.setattr(torch.cuda, "device", lambda device: __import__("contextlib").nullcontext())
    return fake


def test_a_steady_call_reuses_its_buffers_and_passes_what_the_binding_takes(module):
    data = make_input([64, 33])
    plan = HipPlan(data, {"format": "mxfp4", "num_kv_splits": 4})
    assert plan(data) is plan(data) is plan.out
    first, second = module.calls
    assert len(first) == HIP_BINDING.split("void decode(")[1].split("{")[0].count(",") + 1
    pointers = [[value.data_ptr() for value in call if isinstance(value, torch.Tensor)] for call in (first, second)]
    assert pointers[0] == pointers[1]
    assert first[3].dim() == 2  # the scale tensor, whose row stride the binding takes


@pytest.mark.parametrize(
    ("params", "problem"), [({"num_kv_splits": 65}, "num_kv_splits=65"), ({"num_kv_splits": 1, "paged": True}, "paged")]
)
def test_impossible_parameters_are_refused(module, params, problem):
    with pytest.raises(ValueError, match=problem):
        HipPlan(make_input([8]), params)


def test_tuned_kernels_share_a_module(monkeypatch):
    asked = []
    monkeypatch.setattr(hip_backend, "hip_module", lambda traits: asked.append(traits))
    assert hip_backend.kernel_of(tuned_traits()[1])[1] == 1
    hip_backend.kernel_of(Traits(direct_cvt=True))
    assert asked == [tuned_traits(), (Traits(direct_cvt=True),)]


@pytest.mark.parametrize("side", compile_only.SIDES)
def test_launcher_and_kernels_compile_against_rocms_headers(side, tmp_path):
    compile_only.compile_module(module_source(tuned_traits()), side, tmp_path)


def test_binding_compiles_against_torchs_headers(tmp_path):
    compile_only.compile_binding(HIP_ARGUMENTS + HIP_BINDING, tmp_path)
