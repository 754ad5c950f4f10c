"""The Triton backend's parameters, which need no GPU to be computed."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.layout import Shape
from kernels.triton_backend import TritonBackend, default_splits, smaller

CPU = torch.device("cpu")


def test_a_tile_that_does_not_fit_shrinks_to_the_smallest_and_then_says_so():
    params = TritonBackend().default_params(Shape(1, 4, 1024, 128), CPU) | {"num_stages": 3, "block_m": 64, "block_n": 64}
    seen = []
    while (params["num_stages"], params["block_n"], params["block_m"]) != (1, 16, 16):
        params |= smaller(params)
        seen.append((params["num_stages"], params["block_n"], params["block_m"]))
    assert seen == [(2, 64, 64), (1, 64, 64), (1, 32, 64), (1, 16, 64), (1, 16, 32), (1, 16, 16)]
    with pytest.raises(MemoryError, match="use the torch backend"):
        smaller(params)


@given(batch=st.integers(1, 2000), kv_len=st.integers(0, 1 << 20), multiprocessors=st.integers(1, 300))
def test_splits_fill_the_gpu_but_are_not_shorter_than_two_tiles(batch, kv_len, multiprocessors):
    class Properties:
        multi_processor_count = multiprocessors

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
        splits = default_splits(Shape(batch, 1, kv_len, 16), 16, 64, torch.device("cuda"))
    assert splits >= 1
    assert splits == 1 or batch * splits <= 2 * multiprocessors
    assert splits == 1 or splits * 128 <= kv_len + 64
