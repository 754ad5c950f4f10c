"""The choice of backend and parameters: total over shapes, nearest tuned entry, forced backends, clear refusals."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mla_oracle import make_input

from kernels import dispatch
from kernels.dispatch import BACKENDS, BackendError, choose, tuned_entry
from kernels.layout import Shape

CPU = torch.device("cpu")
SHAPES = st.builds(
    Shape,
    batch=st.integers(1, 4096),
    q_len=st.integers(1, 16),
    kv_len=st.integers(0, 1 << 20),
    heads=st.sampled_from([1, 5, 16, 32, 128]),
)


def entry(*shape, backend="torch", **params):
    return {"shape": list(shape), "backend": backend, "params": params}


@given(shape=SHAPES)
def test_every_shape_gets_a_backend_and_all_of_its_parameters(shape):
    backend, params = choose(shape, CPU, "auto")
    assert backend in BACKENDS
    assert set(backend.default_params(shape, CPU)) <= set(params)


@given(shape=SHAPES, tuned=st.lists(st.tuples(SHAPES, st.sampled_from(["torch", "hip"])), max_size=6))
def test_any_table_serves_any_shape(shape, tuned):
    entries = [entry(*known, backend=name, chunk_tokens=99) for known, name in tuned]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch, "DISPATCH_TABLE", {"cpu": entries})
        backend, params = choose(shape, CPU, "auto")
        assert backend.name == "torch"
        near = any(name == "torch" and shape.distance(known) <= dispatch.MAX_DISTANCE for known, name in tuned)
        assert (params["chunk_tokens"] == 99) == near


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
@given(shape=SHAPES)
def test_defaults_of_every_backend_are_positive_for_every_shape(backend, shape):
    params = backend.default_params(shape, CPU)
    assert all(value >= 0 for value in params.values() if isinstance(value, int))
    assert params.get("num_kv_splits", 1) >= 1


def test_the_nearest_entry_wins_and_far_ones_are_ignored(monkeypatch):
    table = [entry(4, 1, 1024, 16, name=1), entry(4, 1, 1536, 16, name=2), entry(64, 1, 1024, 16, name=3)]
    monkeypatch.setattr(dispatch, "DISPATCH_TABLE", {"H200": table})
    names = ["torch"]
    assert tuned_entry(Shape(4, 1, 1400, 16), ["H200"], names)["params"]["name"] == 2
    assert tuned_entry(Shape(4, 1, 1024, 16), ["H200"], names)["params"]["name"] == 1
    assert tuned_entry(Shape(16, 1, 1024, 16), ["H200"], names) is None
    assert tuned_entry(Shape(4, 1, 1024, 16), ["cpu"], names) is None
    assert tuned_entry(Shape(4, 1, 1024, 16), ["H200"], ["triton"]) is None


def test_the_device_name_goes_before_its_architecture(monkeypatch):
    table = {"sm_90": [entry(1, 1, 1, 1, of="arch")], "H200": [entry(1, 1, 1, 1, of="device")]}
    monkeypatch.setattr(dispatch, "DISPATCH_TABLE", table)
    assert tuned_entry(Shape(1, 1, 1, 1), ["NVIDIA", "H200", "sm_90"], ["torch"])["params"]["of"] == "device"
    assert tuned_entry(Shape(1, 1, 1, 1), ["NVIDIA", "H100", "sm_90"], ["torch"])["params"]["of"] == "arch"


def test_device_labels(monkeypatch):
    class Properties:
        name, major, minor, gcnArchName = "AMD Instinct MI355X", 9, 5, "gfx950:sramecc+:xnack-"

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    assert dispatch.device_labels(torch.device("cuda")) == ["AMD", "Instinct", "MI355X", "gfx950"]
    monkeypatch.setattr(Properties, "gcnArchName", "")
    assert dispatch.device_labels(torch.device("cuda"))[-1] == "sm_95"
    assert dispatch.device_labels(CPU) == ["cpu"]


def test_an_unknown_backend_is_refused_with_the_choices():
    with pytest.raises(BackendError, match=r"KERNELPROOF_BACKEND=hopper: no such backend; choose one of auto, .*torch$"):
        choose(Shape(1, 1, 8, 16), CPU, "hopper")


def test_an_unavailable_backend_is_refused_with_the_reason():
    with pytest.raises(BackendError, match=r"^KERNELPROOF_BACKEND=triton: .*; use auto"):
        choose(Shape(1, 1, 8, 16), CPU, "triton")


def test_the_environment_forces_a_backend(monkeypatch):
    data = make_input([8])
    monkeypatch.setenv("KERNELPROOF_BACKEND", "torch")
    assert dispatch.plan_for(data)(data).shape == (1, 16, 512)
    monkeypatch.setenv("KERNELPROOF_BACKEND", "nothing")
    with pytest.raises(BackendError):
        dispatch.plan_for(data)


def test_the_committed_table_names_known_backends_and_parameters():
    known = {backend.name: set(backend.default_params(Shape(1, 1, 8, 16), CPU)) | {"maxnreg"} for backend in BACKENDS}
    for entries in dispatch.DISPATCH_TABLE.values():
        for tuned in entries:
            assert set(tuned["params"]) <= known[tuned["backend"]]
            assert len(tuned["shape"]) == len(Shape._fields)
