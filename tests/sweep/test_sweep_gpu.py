"""One device of the search on a real GPU: kernels compiled ahead, judged, timed cold in turn."""

import pytest
import torch
from small_root import ROOT

from popcorn.cases import parse_case
from sweep.bench import Bench
from sweep.bench_config import BenchConfig
from sweep.submission import submission_text
from sweep.variant import Ask, Shape, Target, Variant

pytestmark = pytest.mark.gpu
CASE = "batchsize: 4; qseqlen: 1; kvseqlen: 1024; seed: 4217"


@pytest.fixture(autouse=True)
def _needs_gpu():
    if not torch.cuda.is_available():
        pytest.skip("no GPU")


@pytest.mark.timeout(240)
def test_variants_are_compiled_ahead_judged_and_timed_in_turn():
    config = BenchConfig(
        str(ROOT / "configs"),
        submission_text(ROOT, "amd-mixed-mla"),
        "cuda:0",
        compile_case=(("batchsize", 1), ("kvseqlen", 64)),
        compiled=("triton",),
        compilers=2,
    )
    tile = {"format": "fp8", "block_n": 64, "num_warps": 4, "num_stages": 2}
    variants = tuple(Variant("triton", {**tile, "num_kv_splits": splits}) for splits in (1, 8))
    ask = Ask(Target(Shape(4, 1, 1024, 16), parse_case(CASE, "test")), (None, *variants, variants[1]), 7)
    with Bench(config) as bench:
        bench.prepare([ask])
        outcomes = bench.measure(ask)
    assert [outcome.status for outcome in outcomes] == ["ok"] * 4, [outcome.message for outcome in outcomes]
    assert all(len(outcome.samples_ns) == 7 for outcome in outcomes)
    assert outcomes[1].described is not None
    assert variants[0].within(outcomes[1].described)
