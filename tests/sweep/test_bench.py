"""One device measures through the harness: variants that raise, are wrong, or take their worker down harm nobody else."""

import pytest
from small_root import CASE, ROOT, SHAPE

from popcorn.cases import parse_case
from sweep.bench import Bench, Entrant, small_case
from sweep.bench_config import BenchConfig
from sweep.errors import KernelsNotLoaded
from sweep.submission import submission_text
from sweep.variant import Ask, Shape, Target, Variant

TARGET = Target(Shape(*SHAPE), parse_case(CASE, "test"))
TROUBLE = """
import os
sound_kernel = custom_kernel

def custom_kernel(data):
    named = sweep_variant_of(data)
    if '"die"' in named:
        os._exit(3)
    out = sound_kernel(data)
    return out.zero_() if '"wrong"' in named else out
"""


def torch_variant(**more):
    return Variant("torch", {"format": "bf16", "chunk_tokens": 64, **more})


@pytest.fixture(scope="module")
def bench():
    text = submission_text(ROOT, "amd-mixed-mla") + TROUBLE
    config = BenchConfig(str(ROOT / "configs"), text, "cpu", compiled=("torch",), compilers=2)
    with Bench(config) as made:
        yield made


def test_good_variants_among_bad_ones_get_all_their_samples(bench):
    variants = (
        torch_variant(),
        torch_variant(chunk_tokens=0),
        torch_variant(wrong=True),
        Variant("hip", {"num_kv_splits": 1}),
        torch_variant(die=True),
        torch_variant(format="fp8"),
        None,
    )
    outcomes = bench.measure(Ask(TARGET, variants, 3))
    assert [outcome.status for outcome in outcomes] == ["ok", "failed", "wrong", "unavailable", "failed", "ok", "ok"]
    assert [len(outcome.samples_ns) for outcome in outcomes] == [3, 0, 0, 0, 0, 3, 3]
    assert all(sample > 0 for outcome in outcomes for sample in outcome.samples_ns)
    assert "must not be zero" in outcomes[1].message
    assert "rows fail" in outcomes[2].message or "mismatch" in outcomes[2].message
    assert "exit status 3" in outcomes[4].message


def test_a_variant_is_said_as_the_submission_describes_it(bench):
    named, dispatched = bench.measure(Ask(TARGET, (torch_variant(format="fp8"), None), 1))
    assert named.described == torch_variant(format="fp8")
    assert dispatched.described is not None
    assert dispatched.described.backend == "torch"


def test_the_same_variant_twice_is_two_entrants(bench):
    outcomes = bench.measure(Ask(TARGET, (None, None), 4))
    assert [len(outcome.samples_ns) for outcome in outcomes] == [4, 4]


def test_compiling_ahead_swallows_what_fails(bench):
    bench.prepare([Ask(TARGET, (torch_variant(), torch_variant(die=True), torch_variant(chunk_tokens=0)), 1)])
    assert bench.measure(Ask(TARGET, (torch_variant(),), 1))[0].ok


def test_only_backends_that_compile_every_setting_are_compiled_ahead(bench, monkeypatch):
    called = []
    monkeypatch.setattr(bench, "_compile", lambda workers, share: called.extend(variant.backend for _, variant in share))
    others = tuple(Variant("cuda", {"cluster": size}) for size in (1, 2))
    bench.prepare([Ask(TARGET, (*others, torch_variant(chunk_tokens=16), torch_variant(chunk_tokens=8), None), 1)])
    assert called == ["torch", "torch"]


def test_a_submission_that_does_not_load_says_so():
    config = BenchConfig(str(ROOT / "configs"), "import nothing_of_this_name\n", "cpu")
    with Bench(config) as broken, pytest.raises(KernelsNotLoaded, match="nothing_of_this_name"):
        broken.measure(Ask(TARGET, (None,), 1))


def test_variants_are_measured_in_the_order_that_the_ask_says(bench, monkeypatch):
    sampled, sample = [], Entrant.sample
    monkeypatch.setattr(Entrant, "sample", lambda entrant: (sampled.append(entrant.variant), sample(entrant)))
    ask = Ask(TARGET, (torch_variant(), torch_variant(format="fp8"), None), 6)
    bench.measure(ask)
    assert sampled == [ask.variants[place] for turn in range(6) for place in ask.order(turn)]


def test_a_small_case_keeps_what_decides_the_kernel():
    case = parse_case("batchsize: 256; qseqlen: 4; kvseqlen: 8192; seed: 3; kvmin: 1; numheads: 32", "test")
    spec = {"batchsize": 1, "qseqlen": 4, "kvseqlen": 64, "seed": 3, "numheads": 32}
    assert small_case(case, {"batchsize": 1, "kvseqlen": 64}).spec == spec
