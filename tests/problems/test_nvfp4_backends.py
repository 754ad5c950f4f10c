"""The torch backend against the oracle, and what the problem's dispatch knows of its backends."""

import pytest
import torch
from nvfp4_cases import HEADS, REFERENCE, heads_spec, make_input

from kernels.nvfp4_msa import triton_backend
from kernels.nvfp4_msa.dispatch import SELECTION
from kernels.nvfp4_msa.entry import custom_kernel, describe
from kernels.nvfp4_msa.layout import Shape, plan_key, shape_of
from kernels.nvfp4_msa.torch_backend import TorchBackend
from kernels.nvfp4_msa.triton_backend import TritonBackend
from kernels.selection import BACKEND_VARIABLE, BackendError

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def torch_backend(monkeypatch):
    monkeypatch.setenv(BACKEND_VARIABLE, "torch")


@pytest.mark.parametrize("vscales", ["swizzled", "linear"])
@pytest.mark.parametrize("heads", HEADS)
def test_torch_passes_both_verdicts(heads, vscales):
    data = make_input(**heads_spec(*heads), batchsize=5, kvmin=0, slots="messy", padrows=2, vscales=vscales)
    verdicts = REFERENCE.judge(data, custom_kernel(data))
    assert verdicts["official"]["ok"], verdicts
    assert verdicts["strict"]["ok"], verdicts


@pytest.mark.parametrize("dist", REFERENCE.DISTRIBUTIONS)
def test_torch_passes_both_verdicts_for_every_distribution(dist):
    data = make_input(dist=dist, topk=64)
    verdicts = REFERENCE.judge(data, custom_kernel(data))
    assert verdicts["official"]["ok"], verdicts
    assert verdicts["strict"]["ok"], verdicts


def test_chunks_do_not_change_the_result():
    data = make_input(batchsize=5, kvmin=0)
    whole, single = (TorchBackend().plan(data, {"chunk_blocks": blocks})(data) for blocks in (4096, 1))
    torch.testing.assert_close(whole, single, rtol=2**-7, atol=1e-6)


def test_describe_names_the_backend_that_serves():
    data = make_input()
    assert describe(data) == {"backend": "torch", "params": {"chunk_blocks": 64}}


@pytest.mark.parametrize(
    ("wanted", "words"),
    [("triton", "needs a GPU"), ("hip", "ROCm GPU"), ("cuda", "needs an NVIDIA GPU"), ("cutlass", "choose one of auto")],
)
def test_a_backend_that_cannot_serve_says_why(wanted, words, monkeypatch):
    monkeypatch.setenv(BACKEND_VARIABLE, wanted)
    with pytest.raises(BackendError, match=words):
        custom_kernel(make_input(kvseqlen=10, topk=1))


def test_equal_shapes_share_a_plan_and_others_do_not():
    one, two = make_input(seed=1, kvmin=100), make_input(seed=1, kvmin=100)
    assert plan_key(one) == plan_key(two)
    changes = ({"topk": 4}, {"vscales": "linear"}, {"batchsize": 3}, {"padrows": 1}, {"kvseqlen": 301})
    assert len({plan_key(make_input(**change)) for change in changes} | {plan_key(one)}) == len(changes) + 1


@pytest.mark.parametrize(
    ("pairs", "topk", "splits"), [(1, 16, 8), (16, 16, 8), (64, 16, 4), (256, 16, 1), (1024, 16, 1), (1, 64, 16), (1, 1, 1)]
)
def test_default_splits_fill_132_sms_once(pairs, topk, splits):
    assert triton_backend.default_splits(Shape(pairs, 1, 32768, topk, 1, 16), 132) == splits


def test_short_sequences_are_not_split_into_less_than_two_blocks():
    assert triton_backend.default_splits(Shape(1, 1, 300, 16, 1, 16), 132) == 1


def test_triton_defaults_are_those_of_the_device():
    shape = shape_of(make_input())
    params = TritonBackend().default_params(shape, CPU)
    assert params["unpack"] == "portable"
    assert params["num_warps"] * params["keys"] <= 128


def test_every_tuned_entry_can_be_read():
    for entries in SELECTION.table.values():
        for entry in entries:
            assert len(entry["shape"]) == len(Shape._fields)
            assert entry["backend"] in {backend.name for backend in SELECTION.backends}
