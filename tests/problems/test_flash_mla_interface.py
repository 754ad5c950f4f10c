"""flash_mla_with_kvcache as a caller sees it, on the CPU: signature, results, and errors that name what is wrong."""

import inspect
from pathlib import Path

import pytest
import torch

from harness.modules import ModuleSpace
from kernels.flash_mla import flash_mla_with_kvcache, get_mla_metadata
from kernels.flash_mla.call import FlashMlaError
from kernels.flash_mla.interface import FlashMLASchedMeta, MetadataMismatch

REFERENCE = ModuleSpace(Path(__file__).resolve().parents[2] / "problems" / "flash_mla").load("reference")
SPARSE = {"batchsize": 2, "qseqlen": 2, "kvseqlen": 60, "topk": 20, "numheads": 4, "layout": "v32", "seed": 5}
DENSE = {"batchsize": 2, "qseqlen": 2, "kvseqlen": 60, "numheads": 4, "seed": 5, "kvmin": 0, "causal": 1}
SPECS = {
    "dense": DENSE,
    "dense, KV heads, 512 dims": DENSE | {"kvheads": 2, "headdim": 512, "page": 16},
    "v32": SPARSE | {"invalid": "some", "lengths": 1, "sink": "mixed"},
    "model1": SPARSE | {"layout": "model1", "invalid": "all", "sink": "mixed", "extratopk": 9, "extrapage": 2},
    "bf16": SPARSE | {"layout": "bf16", "invalid": "lead", "extratopk": 9, "lengths": 1},
}


def make(**spec):
    return REFERENCE.generate_input(**spec, device="cpu")


def run(data, metadata=None, **changes):
    q, cache, options = data
    arguments = {"q": q, "k_cache": cache, **options, **changes}
    return flash_mla_with_kvcache(**arguments, tile_scheduler_metadata=get_mla_metadata()[0] if metadata is None else metadata)


def test_the_signature_is_that_of_flash_mla():
    names = list(inspect.signature(flash_mla_with_kvcache).parameters)
    assert names == [
        "q", "k_cache", "block_table", "cache_seqlens", "head_dim_v", "tile_scheduler_metadata", "num_splits", "softmax_scale",
        "causal", "is_fp8_kvcache", "indices", "attn_sink", "extra_k_cache", "extra_indices_in_kvcache", "topk_length",
        "extra_topk_length",
    ]  # fmt: skip
    metadata, nothing = get_mla_metadata(torch.zeros(3), 128, num_heads_k=1)
    assert nothing is None
    assert not metadata.have_initialized


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_agrees_with_the_oracle(spec):
    data = make(**spec)
    verdict = REFERENCE.judge(data, run(data))
    assert verdict["official"]["ok"], verdict
    assert verdict["strict"]["ok"], verdict


def test_a_scale_of_ones_own():
    q, cache, options = make(**SPARSE)
    options["softmax_scale"] = 0.5
    assert REFERENCE.judge((q, cache, options), run((q, cache, options)))["strict"]["ok"]


def test_calls_of_equal_sizes_share_a_scheduler_and_its_plan():
    metadata = get_mla_metadata()[0]
    for seed in (5, 6):
        data = make(**SPARSE | {"seed": seed})
        assert REFERENCE.judge(data, run(data, metadata))["strict"]["ok"]
    assert metadata.have_initialized
    assert metadata.config == FlashMLASchedMeta.Config(2, 2, 4, 64, 1, False, True, 20, None, None)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("b", {"batchsize": 3}),
        ("s_q", {"qseqlen": 1}),
        ("h_q", {"numheads": 5}),
        ("page_block_size", {"page": 16}),
        ("is_fp8_kvcache", {"layout": "bf16"}),
        ("topk", {"topk": 21}),
        ("extra_page_block_size", {"extratopk": 9, "extrapage": 2}),
    ],
)
def test_other_sizes_on_one_scheduler_are_an_error_that_names_the_field(field, change):
    metadata = get_mla_metadata()[0]
    run(make(**SPARSE), metadata)
    with pytest.raises(MetadataMismatch, match=rf"config\.{field} is "):
        run(make(**SPARSE | change), metadata)


def test_the_fields_of_dense_and_extra_calls_are_checked_too():
    for spec, changes in [(DENSE, {"h_k": {"kvheads": 2}, "causal": {"causal": 0}}), (SPARSE | {"extratopk": 9}, {"extra_topk": {"extratopk": 8}})]:  # noqa: E501
        for field, change in changes.items():
            metadata = get_mla_metadata()[0]
            run(make(**spec), metadata)
            with pytest.raises(MetadataMismatch, match=rf"config\.{field} is "):
                run(make(**spec | change), metadata)


def wrong_arguments():
    q, cache, options = make(**SPARSE)
    indices = options["indices"]
    return {
        "q is float32": {"q": q.float()},
        "head_dim_v is 256": {"head_dim_v": 256},
        "causal is set": {"causal": True},
        "k_cache has last dim 600": {"k_cache": cache[..., :600]},
        "an FP8 cache is float8_e4m3fn": {"k_cache": torch.zeros(2, 64, 1, 656)},
        r"indices is int64": {"indices": indices.long()},
        r"indices is int32 \[2, 20\]": {"indices": indices[:, 0]},
        "topk_length is float32": {"topk_length": torch.zeros(2)},
        r"attn_sink is float32 \[3\]": {"attn_sink": torch.zeros(3)},
        "extra_k_cache and extra_indices_in_kvcache": {"extra_k_cache": cache},
        "extra_topk_length is given": {"extra_topk_length": torch.zeros(2, dtype=torch.int32)},
        "num_splits is given": {"num_splits": torch.zeros(1)},
        "rows have to begin at 16 bytes": {"k_cache": torch.zeros(2 * 64 * 656 + 1, dtype=torch.uint8)[1:].view(2, 64, 1, 656)},
        "attn_sink is given without indices": {"indices": None, "attn_sink": torch.zeros(4)},
        "is_fp8_kvcache is set without indices": {"indices": None},
    }


@pytest.mark.parametrize("named", wrong_arguments())
def test_a_wrong_argument_is_named(named):
    with pytest.raises(FlashMlaError, match=named):
        run(make(**SPARSE), **wrong_arguments()[named])


def test_a_scheduler_of_another_kind_is_refused():
    with pytest.raises(FlashMlaError, match=r"tile_scheduler_metadata is a tuple; it has to come from get_mla_metadata"):
        run(make(**SPARSE), ())


def test_strided_arguments_are_taken():
    q, cache, options = make(**SPARSE)
    wide = torch.stack((q, q), -1)[..., 0]
    options["indices"] = torch.stack((options["indices"],) * 2, -1)[..., 0]
    assert not wide.is_contiguous()
    assert REFERENCE.judge((q, cache, options), run((wide, cache, options)))["strict"]["ok"]
