"""Bad input: one clear error each, before anything is computed."""

import pytest
import torch
from nvfp4_cases import make_input

from kernels.nvfp4_msa import layout
from kernels.nvfp4_msa.dispatch import SELECTION
from kernels.nvfp4_msa.entry import custom_kernel
from kernels.nvfp4_msa.layout import (
    ContiguityError,
    HeadsError,
    Inputs,
    PageBytesError,
    RequestsError,
    ScaleError,
    StrideError,
    TopkError,
)

GOOD = Inputs(*make_input())


def gaps(tensor):
    """The same numbers with strides of their own."""
    return torch.stack([tensor, tensor], dim=-1)[..., 0]


def config(**changes):
    return {"config": GOOD.config | changes}


FAULTS = [
    ("pages of too few bytes a token", {"cache": GOOD.cache[..., :64]}, PageBytesError, "16,384 bytes a page; .* 18,432"),
    ("pages of another number of heads", {"cache": GOOD.cache.repeat(1, 2, 1, 1)}, PageBytesError, "36,864 bytes a page"),
    ("a cache of floats", {"cache": GOOD.cache.float()}, PageBytesError, "73,728 bytes a page"),
    ("no slots", config(topk=0), TopkError, "config topk is 0; the kernels serve 1 to 64 slots"),
    ("too many slots", config(topk=65), TopkError, "config topk is 65; the kernels serve 1 to 64 slots"),
    ("another number of slots", {"topk": GOOD.topk[..., :2].contiguous()}, TopkError, r"\[1, 5, 2\].*\[1, >= 2, 3\]"),
    ("too few top-k rows", {"topk": GOOD.topk[:, :1]}, TopkError, r"\[1, 1, 3\].*\[1, >= 2, 3\]"),
    ("top-k rows of another number of heads", {"topk": GOOD.topk.repeat(2, 1, 1)}, TopkError, r"\[2, 5, 3\]"),
    ("64-bit block ids", {"topk": GOOD.topk.long()}, TopkError, "torch.int64"),
    ("a short block table", {"block_table": GOOD.block_table[:, :2].contiguous()}, StrideError, "of 2 pages; .* 300 needs 3"),
    ("a block table of too few requests", {"block_table": GOOD.block_table[:1]}, RequestsError, "2 requests need"),
    ("64-bit pages", {"block_table": GOOD.block_table.long()}, RequestsError, "torch.int64"),
    ("64-bit lengths", {"seq_lens": GOOD.seq_lens.long()}, RequestsError, "seq_lens is torch.int64"),
    ("too few rows", {"q": GOOD.q[:1]}, RequestsError, "q has 1 rows; 2 requests of 1 query tokens need 2"),
    ("queries of another size", {"q": GOOD.q[..., :64]}, HeadsError, r"\[2, 16, 64\]; 1 KV heads of 16 query heads need"),
    ("queries of another dtype", {"q": GOOD.q.half()}, HeadsError, "torch.float16"),
    ("a group of 17", config(group_size=17), HeadsError, "17 query heads per KV head; the kernels serve 1 to 16"),
    ("an unknown order", config(v_scales="tiled"), ScaleError, "'tiled'; use swizzled or linear"),
    ("a scale for each head", {"k_scale": torch.ones(4)}, ScaleError, r"k_scale .* \[4\]; pass torch.float32 \[1\]"),
    ("a scale of 64 bits", {"v_scale": torch.ones(1).double()}, ScaleError, "v_scale is torch.float64"),
    *((f"{name} with gaps", {name: gaps(getattr(GOOD, name))}, ContiguityError, f"{name} has strides")
      for name in ("q", "cache", "topk", "block_table", "seq_lens")),
]  # fmt: skip


@pytest.mark.parametrize(("change", "error", "words"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_bad_input_is_one_clear_error(change, error, words, monkeypatch):
    monkeypatch.setattr(SELECTION, "plans", {})
    with pytest.raises(error, match=words) as raised:
        custom_kernel(tuple(GOOD._replace(**change)))
    assert type(raised.value) is error
    assert "\n" not in str(raised.value)
    assert not SELECTION.plans


def test_good_input_passes_with_room_to_spare():
    roomy = GOOD._replace(
        topk=torch.cat([GOOD.topk, GOOD.topk], dim=1),
        block_table=torch.cat([GOOD.block_table, torch.full((2, 9), -7, dtype=torch.int32)], dim=1),
        q=torch.cat([GOOD.q, GOOD.q[:1]]),
    )
    layout.check_input(tuple(GOOD))
    layout.check_input(tuple(roomy))
