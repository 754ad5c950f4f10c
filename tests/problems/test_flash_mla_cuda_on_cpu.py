"""The sparse CUDA kernels without a GPU: their source on a CPU machine with adversarial schedules, against the fp64 oracle."""

import random

import flash_mla_on_cpu
import pytest
import torch
from cpu_build import compiler
from flash_mla_probes import REFERENCE

from kernels.flash_mla.call import check_call

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler that knows _Float16")
V32 = {"qseqlen": 1, "kvseqlen": 400, "layout": "v32", "seed": 1}


def wrong(splits=0, schedule=0, change=None, **spec):
    """What is wrong with one launch, or ""."""
    data = REFERENCE.generate_input(**V32 | spec, device="cpu")
    try:
        verdict = REFERENCE.judge(data, flash_mla_on_cpu.decode(data, splits, schedule, change))
    except RuntimeError as error:
        return str(error)
    return verdict["official"]["message"] or verdict["strict"]["message"]


@pytest.mark.parametrize("heads", [1, 16, 64, 100, 128])
@pytest.mark.parametrize("splits", [1, 3])
def test_any_number_of_heads(heads, splits):
    assert wrong(splits, batchsize=2, topk=200, numheads=heads) == ""


@pytest.mark.parametrize("topk", [1, 63, 64, 65, 128, 129, 390])
def test_index_rows_of_any_length(topk):
    assert wrong(2, batchsize=1, topk=topk, numheads=16) == ""


@pytest.mark.parametrize("invalid", ["some", "lead", "all"])
@pytest.mark.parametrize("splits", [1, 4])
def test_entries_that_are_not_valid(invalid, splits):
    assert wrong(splits, batchsize=4, qseqlen=2, topk=270, numheads=16, invalid=invalid, sink="mixed", lengths=1) == ""


@pytest.mark.parametrize("dist", ["large", "small", "outlier"])
def test_values_of_any_size(dist):
    assert wrong(2, batchsize=2, topk=300, numheads=32, dist=dist, sink="mixed") == ""


@pytest.mark.parametrize("page", [1, 7, 256])
def test_pages_of_any_size(page):
    assert wrong(1, batchsize=2, topk=100, numheads=16, page=page) == ""


def test_stages_are_used_again_and_again():
    for schedule in range(4):
        assert wrong(1, schedule, batchsize=1, kvseqlen=900, topk=900, numheads=64) == ""


def test_a_maximum_that_grows_and_one_that_falls():
    """Tokens in the order of their scores, so that rows are rescaled at every tile, and in the opposite order."""
    data = REFERENCE.generate_input(**V32 | {"batchsize": 1, "topk": 400, "numheads": 64, "dist": "large"}, device="cpu")
    expected = REFERENCE.ref_kernel(data)
    q, cache, options = data
    rows = REFERENCE.read_rows(cache, "v32", options["indices"][0, 0].long())[:, 0]
    order = (rows @ q[0, 0, 0].double()).argsort()
    for tokens in (order, order.flip(0)):
        options["indices"] = options["indices"][:, :, tokens].contiguous()
        assert REFERENCE.official_message(data, flash_mla_on_cpu.decode(data, 1), expected) == ""


@pytest.mark.parametrize("scale", [0.0, -0.05, 4.0])
def test_the_scale_is_an_argument(scale):
    q, cache, options = REFERENCE.generate_input(**V32 | {"batchsize": 1, "topk": 100, "numheads": 16}, device="cpu")
    data = q, cache, options | {"softmax_scale": scale}
    assert REFERENCE.check_implementation(data, flash_mla_on_cpu.decode(data, 2)) == (True, "")


def test_queries_of_any_size():
    for factor in (2.0**-100, 2.0**-20, 2.0**60):
        q, cache, options = REFERENCE.generate_input(**V32 | {"batchsize": 1, "topk": 100, "numheads": 16}, device="cpu")
        data = q * factor, cache, options | {"softmax_scale": 576**-0.5 / factor}
        assert REFERENCE.check_implementation(data, flash_mla_on_cpu.decode(data, 1)) == (True, ""), factor


def test_a_nan_that_is_attended_to_reaches_its_rows_alone():
    data = REFERENCE.generate_input(**V32 | {"batchsize": 2, "topk": 100, "numheads": 16}, device="cpu")
    _, cache, options = data
    page, slot = divmod(int(options["indices"][0, 0, 50]), cache.shape[1])
    cache.view(torch.uint8)[page, slot, 0, :512] = 0x7F
    for splits in (1, 2):
        out, lse = flash_mla_on_cpu.decode(data, splits)
        assert out[0].isnan().all()
        assert lse[0].isnan().all()
        assert out[1].isfinite().all()
        assert lse[1].isfinite().all()


def test_two_runs_give_the_same_bits():
    data = REFERENCE.generate_input(**V32 | {"batchsize": 2, "topk": 300, "numheads": 64}, device="cpu")
    first, second = flash_mla_on_cpu.decode(data, 3, 1), flash_mla_on_cpu.decode(data, 3, 2)
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])


def test_what_is_not_served_is_said():
    backend = flash_mla_on_cpu.SparseCudaBackend()
    cases = {
        "extra_k_cache": {"layout": "v32", "topk": 20, "extratopk": 10, "extraseqlen": 64},
        "model1": {"layout": "model1", "topk": 20},
        "bf16_576": {"layout": "bf16", "topk": 0},
    }
    for word, spec in cases.items():
        q, cache, options = REFERENCE.generate_input(**V32 | {"batchsize": 1, "numheads": 16} | spec, device="cpu")
        assert word in str(backend.unserved(check_call({"q": q, "k_cache": cache, **options})))


def check_random_case(draw):
    spec = {
        "batchsize": draw.randint(1, 3),
        "qseqlen": draw.randint(1, 2),
        "kvseqlen": draw.choice([0, 1, 40, 300, 700]),
        "seed": draw.randint(0, 1 << 30),
        "topk": draw.choice([1, 64, draw.randint(1, 640)]),
        "numheads": draw.choice([3, 16, 64, 65, 128]),
        "page": draw.choice([1, 16, 64, 100]),
        "invalid": draw.choice(["none", "some", "lead", "all"]),
        "sink": draw.choice(["none", "normal", "mixed"]),
        "lengths": draw.randint(0, 1),
        "dist": draw.choice(["normal", "large", "outlier"]),
    }
    splits = draw.randint(1, 5)
    assert wrong(splits, draw.randint(0, 1 << 30), **spec) == "", (splits, spec)


@pytest.mark.parametrize("seed", range(10))
def test_random_cases(seed):
    check_random_case(random.Random(seed))


@pytest.mark.slow
@pytest.mark.parametrize("share", range(4))
def test_many_random_cases(share):
    draw = random.Random(1000 + share)
    for _ in range(100):
        check_random_case(draw)


# A change of the source, and what a launch then says or gives: `wrong` has to be anything but "" in one of a few schedules.
FAULTS = {
    "scores of a tile that is not there": ("attend.cuh", "    await_tile(smem0, t + 1);\n", ""),
    "a stage that is filled before it is free": ("gather.cuh", "if (t >= STAGES) mbar_wait", "if (false) mbar_wait"),
    "a stage that is never free": ("attend.cuh", "1>(acc);\n  release_tile(smem0, t, lane);", "1>(acc);"),
    "an output that is not awaited": ("attend.cuh", "wgmma_wait<0>(acc);\n    release_tile", "release_tile"),
    "RoPE that nobody waits for": ("gather.cuh", "arrive_when_copied(full);", "mbar_arrive(full);"),
    "P that is overwritten": ("attend.cuh", "  to.await_free();\n  to.put(p);", "  if (t == 0) to.await_free();\n  to.put(p);"),
    "queries that are overwritten": ("attend.cuh", "  bar_sync(FINISH_BARRIER, 2 * WARPS * 32);", "  "),
    "an invalid entry that counts": ("attend.cuh", "== 0xffffu) return;", "!= 1u) return;"),
    "an output that is not rescaled": ("attend.cuh", "rescale(acc, factor);\n  start_output(acc", "{}\n  start_output(acc"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_the_machine_sees(fault):
    spec = {"batchsize": 1, "kvseqlen": 600, "topk": 500, "numheads": 64, "invalid": "some"}
    dists = ("normal", "large")
    assert any(wrong(1, schedule, fault, **spec, dist=dists[schedule % 2]) for schedule in range(8))
