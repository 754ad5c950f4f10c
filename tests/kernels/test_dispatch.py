"""The choice of backend and parameters for mixed MLA: total over shapes, whatever the table holds; the committed table."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mla_oracle import make_input

from kernels import selection
from kernels.dispatch import SELECTION
from kernels.entry import custom_kernel
from kernels.layout import Shape, shape_of
from kernels.selection import BACKEND_VARIABLE, BackendError

CPU = torch.device("cpu")
SHAPES = st.builds(
    Shape,
    batch=st.integers(1, 4096),
    q_len=st.integers(1, 16),
    kv_len=st.integers(0, 1 << 20),
    heads=st.sampled_from([1, 5, 16, 32, 128]),
)


@pytest.fixture(autouse=True)
def nothing_forced(monkeypatch):
    monkeypatch.delenv(BACKEND_VARIABLE, raising=False)


def input_of(shape):
    """An input of that shape without rows of Q or KV, which the choice does not look at."""
    q, kv_indptr = torch.empty(0, shape.heads, 576), torch.empty(shape.batch + 1, dtype=torch.int32)
    data: Any = (q, {}, kv_indptr, kv_indptr, {"q_seq_len": shape.q_len, "kv_seq_len": shape.kv_len})
    assert shape_of(data) == shape
    return data


@given(shape=SHAPES)
def test_every_shape_gets_a_backend_and_all_of_its_parameters(shape):
    backend, params = SELECTION.choose(input_of(shape))
    assert backend in SELECTION.backends
    assert set(backend.default_params(shape, CPU)) <= set(params)


@given(shape=SHAPES, tuned=st.lists(st.tuples(SHAPES, st.sampled_from(["torch", "hip"])), max_size=6))
def test_any_table_serves_any_shape(shape, tuned):
    entries = [{"shape": list(known), "backend": name, "params": {"chunk_tokens": 99}} for known, name in tuned]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SELECTION, "table", {"cpu": entries})
        backend, params = SELECTION.choose(input_of(shape))
        assert backend.name == "torch"
        near = (selection.distance(shape, known) <= selection.MAX_DISTANCE for known, name in tuned if name == "torch")
        assert (params["chunk_tokens"] == 99) == any(near)


@pytest.mark.parametrize("backend", SELECTION.backends, ids=lambda backend: backend.name)
@given(shape=SHAPES)
def test_defaults_of_every_backend_are_positive_for_every_shape(backend, shape):
    params = backend.default_params(shape, CPU)
    assert all(value >= 0 for value in params.values() if isinstance(value, int))
    assert params.get("num_kv_splits", 1) >= 1


@pytest.mark.parametrize("wanted", ["hip", "aiter", "triton", "cuda"])
def test_a_backend_that_cannot_serve_a_cpu_says_so(wanted, monkeypatch):
    monkeypatch.setenv(BACKEND_VARIABLE, wanted)
    with pytest.raises(BackendError, match=rf"^KERNELPROOF_BACKEND={wanted}: .*GPU.*; use auto"):
        custom_kernel(make_input([8]))


def test_the_environment_forces_a_backend(monkeypatch):
    data = make_input([8])
    monkeypatch.setenv(BACKEND_VARIABLE, "torch")
    assert custom_kernel(data).shape == (1, 16, 512)
    monkeypatch.setenv(BACKEND_VARIABLE, "nothing")
    with pytest.raises(BackendError, match=r"choose one of auto, .*torch$"):
        custom_kernel(data)


def test_the_committed_table_names_known_backends_and_parameters():
    defaults = {backend.name: backend.default_params(Shape(1, 1, 8, 16), CPU) for backend in SELECTION.backends}
    known = {name: {*params, "maxnreg"} for name, params in defaults.items()}
    for entries in SELECTION.table.values():
        for tuned in entries:
            assert set(tuned["params"]) <= known[tuned["backend"]]
            assert len(tuned["shape"]) == len(Shape._fields)
