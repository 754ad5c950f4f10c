"""The Triton kernels in Triton's interpreter, on small cases, against the fp64 oracle of the problem."""

import pytest
from test_flash_mla_defects import ask

pytest.importorskip("triton")

SMALL = {"batchsize": 2, "qseqlen": 1, "kvseqlen": 90, "numheads": 16}
DENSE = {
    "ragged, empty, one split": SMALL | {"batchsize": 4, "kvmin": 0},
    "ragged, empty, three splits": SMALL | {"batchsize": 4, "kvmin": 0, "splits": 3},
    "more splits than tiles": SMALL | {"kvseqlen": 20, "splits": 7},
    "only empty sequences, splits": SMALL | {"kvseqlen": 0, "splits": 2},
    "causal, three tokens, three KV heads": SMALL | {"qseqlen": 3, "kvheads": 3, "numheads": 12, "causal": 1, "kvmin": 0},
    "causal, more tokens than cache, splits": SMALL | {"qseqlen": 4, "kvseqlen": 2, "causal": 1, "splits": 2},
    "causal, splits": SMALL | {"qseqlen": 2, "causal": 1, "splits": 2},
    "512 dims, pages of 48": SMALL | {"headdim": 512, "page": 48},
    "pages of one token, five heads": SMALL | {"page": 1, "numheads": 5, "kvseqlen": 40},
    "128 heads": SMALL | {"numheads": 128, "batchsize": 1, "kvseqlen": 40},
    "logits of hundreds": SMALL | {"dist": "large", "splits": 2},
}
SPARSE = {
    f"{layout}, {name}": SMALL | {"layout": layout} | spec
    for layout in ("v32", "model1", "bf16")
    for name, spec in {
        "topk 37": {"topk": 37},
        "topk 1": {"topk": 1, "sink": "mixed"},
        "more entries than tokens, splits": {"topk": 100, "splits": 3, "kvmin": 0},
        "invalid anywhere, lengths, two tokens": {"topk": 70, "invalid": "some", "lengths": 1, "qseqlen": 2},
        "leading invalid, splits": {"topk": 80, "invalid": "lead", "splits": 2},
        "no valid token, sink": {"topk": 20, "invalid": "all", "sink": "mixed"},
        "no valid token, sink, splits": {"topk": 40, "invalid": "all", "sink": "mixed", "splits": 2},
        "extra cache, lengths, sink": {
            "topk": 40, "extratopk": 35, "extrapage": 2, "lengths": 1, "sink": "normal", "qseqlen": 2, "invalid": "some",
        },
        "extra cache, splits, sink": {"topk": 33, "extratopk": 70, "sink": "mixed", "splits": 3},
        "logits of hundreds, sink": {"topk": 40, "dist": "large", "sink": "mixed"},
        "outliers": {"topk": 40, "dist": "outlier"},
        "tiny values": {"topk": 40, "dist": "small"},
        "five heads": {"topk": 20, "numheads": 5},
    }.items()
}  # fmt: skip
WIDE = {
    "bf16, 512 dims": SMALL | {"topk": 40, "headdim": 512, "invalid": "some"},
    "v32, 64 heads": SMALL | {"layout": "v32", "topk": 33, "numheads": 64, "batchsize": 1},
    "v32, 128 heads, splits": SMALL | {"layout": "v32", "topk": 40, "numheads": 128, "batchsize": 1, "splits": 2},
    "model1, 64 heads": SMALL | {"layout": "model1", "topk": 33, "numheads": 64, "batchsize": 1},
}
CASES = {name: ("judge", {"seed": seed} | spec) for seed, (name, spec) in enumerate((DENSE | SPARSE | WIDE).items())}


@pytest.fixture(scope="module")
def complaints():
    return dict(zip(CASES, ask([{"edits": [], "probes": list(CASES.values())}])[0], strict=True))


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_the_oracle(complaints, name):
    assert complaints[name] == ""
