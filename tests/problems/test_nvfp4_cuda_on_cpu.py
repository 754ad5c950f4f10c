"""The CUDA kernel of the NVFP4 problem without a GPU: its own source on a CPU machine with adversarial schedules."""

import random
from typing import Any

import pytest
import torch
from cpu_build import compiler
from nvfp4_cases import HEADS, REFERENCE, heads_spec, make_input
from nvfp4_cuda_on_cpu import decode

from kernels.nvfp4_msa.cuda_backend import CUDA_SHAPES, CUDA_SPLITS

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler that knows _Float16")
FORMS = (16, 8)  # query heads of a KV head: rows of the products, or columns
MESSY = {"kvmin": 0, "topk": 7, "slots": "messy", "padrows": 1}


def growing_input(step: float, blocks: int, group: int) -> tuple:
    """A sequence whose K is larger by `step` from block to block: the sums so far are rescaled now and then."""
    q, cache, topk, block_table, *rest = make_input(batchsize=1, kvseqlen=128 * blocks - 10, topk=blocks, groupsize=group)
    for block, page in enumerate(block_table[0, :blocks].tolist()):
        scales = cache[page].view(-1)[8192:9216]
        grown = scales.view(torch.float8_e4m3fn).float() * step ** (block - blocks + 1)
        scales.copy_(grown.to(torch.float8_e4m3fn).view(torch.uint8))
    return (q * 8, cache, topk.sort(-1).values, block_table, *rest)


def assert_right(data, **params):
    out = decode(data, **params)
    verdicts = REFERENCE.judge(data, out)
    assert verdicts["official"]["ok"], (params, verdicts)
    assert verdicts["strict"]["ok"], (params, verdicts)
    return out


@pytest.mark.parametrize("vscales", ["swizzled", "linear"])
@pytest.mark.parametrize("heads", HEADS)
def test_messy_slots_and_padding_rows(heads, vscales):
    assert_right(make_input(**heads_spec(*heads), **MESSY, vscales=vscales), splits=4)


@pytest.mark.parametrize("group", [1, 2, 3, 7, 9, 15])
def test_groups_that_do_not_fill_their_products(group):
    assert_right(make_input(groupsize=group, numkvheads=2, **MESSY), splits=2)


@pytest.mark.parametrize("group", FORMS)
@pytest.mark.parametrize("dist", REFERENCE.DISTRIBUTIONS)
def test_every_distribution(dist, group):
    assert_right(make_input(dist=dist, topk=5, kvseqlen=600, groupsize=group), splits=2)


@pytest.mark.parametrize("group", FORMS)
@pytest.mark.parametrize("sizes", CUDA_SHAPES)
def test_stages_are_used_again_and_again(sizes, group):
    data = make_input(batchsize=1, kvseqlen=2000, topk=16, groupsize=group)
    for seed in range(2):
        assert_right(data, sizes=sizes, seed=seed)


@pytest.mark.parametrize("group", FORMS)
@pytest.mark.parametrize("sizes", CUDA_SHAPES)
def test_rings_that_are_not_full_or_just_full(sizes, group):
    """Row r sees r pages, from none to one more than the block's rings hold."""
    held = sizes[0] * sizes[1]
    data = make_input(batchsize=held + 2, kvseqlen=128 * (held + 1), topk=held + 1, groupsize=group)
    for row in range(held + 2):
        data[2][:, row, row:] = -1
    for seed in range(2):
        out = assert_right(data, sizes=sizes, seed=seed)
        assert not out[0].any()


@pytest.mark.parametrize("topk", [1, 31, 32, 33, 64])
def test_any_number_of_slots(topk):
    assert_right(make_input(batchsize=1, kvseqlen=1000, topk=topk, slots="messy"), splits=2)


@pytest.mark.parametrize("group", FORMS)
@pytest.mark.parametrize("kvseqlen", [1, 8, 31, 32, 33, 50, 64, 127, 128, 129])
def test_the_end_of_a_sequence_anywhere_in_a_page(kvseqlen, group):
    """What lies behind it is NaN."""
    assert_right(make_input(batchsize=1, kvseqlen=kvseqlen, topk=2, groupsize=group))


@pytest.mark.parametrize("group", FORMS)
@pytest.mark.parametrize("sizes", CUDA_SHAPES)
def test_a_first_page_of_which_most_warps_see_nothing(sizes, group):
    """The row's own block is listed first: their maxima begin with a later page."""
    data = make_input(batchsize=1, kvseqlen=128 * 7 + 10, topk=8, groupsize=group)
    assert_right((*data[:2], data[2].sort(-1, descending=True).values, *data[3:]), sizes=sizes)


@pytest.mark.parametrize("group", FORMS)
@pytest.mark.parametrize("factor", [1e6, 1e-9])
def test_queries_beyond_the_range_of_f16(factor, group):
    data = make_input(batchsize=1, groupsize=group)
    data = (data[0] * factor, *data[1:])
    data[-1]["sm_scale"] /= factor
    assert_right(data)


@pytest.mark.parametrize("group", FORMS)
@pytest.mark.parametrize("sizes", CUDA_SHAPES)
@pytest.mark.parametrize("splits", CUDA_SPLITS)
def test_every_cluster_gives_the_same_bits_in_every_schedule(splits, sizes, group):
    data = make_input(batchsize=1, kvseqlen=1500, topk=9, groupsize=group)
    assert torch.equal(*(assert_right(data, splits=splits, sizes=sizes, seed=seed) for seed in range(2)))


@pytest.mark.parametrize("group", FORMS)
def test_splits_without_a_slot_and_rows_that_see_nothing(group):
    data = make_input(batchsize=3, kvseqlen=1500, topk=5, slots="messy", kvmin=0, padrows=1, groupsize=group)
    data[2][:, 0] = -1
    out = assert_right(data, splits=8)
    assert not out[0].any()


@pytest.mark.parametrize("group", [1, 9, *FORMS])
@pytest.mark.parametrize("splits", CUDA_SPLITS[1:])
def test_clusters_of_which_one_block_has_a_page(splits, group):
    """The others send at once; blocks that own no query head have nothing to store and yet must not leave early."""
    data = make_input(kvseqlen=500, topk=1, groupsize=group)
    for seed in range(3):
        assert_right(data, splits=splits, seed=seed)


@pytest.mark.parametrize("group", FORMS)
@pytest.mark.parametrize("sizes", CUDA_SHAPES)
@pytest.mark.parametrize("splits", [1, 2])
def test_the_largest_sums_that_a_cache_allows(splits, sizes, group):
    """V is 6 * 448 everywhere and all tokens weigh the same: every warp and split adds a share of the largest value."""
    q, cache, *rest = make_input(batchsize=1, kvseqlen=128 * 16, topk=16, groupsize=group)
    pages = cache.view(cache.shape[0], -1)
    pages[:, 9216:17408] = 0x77
    pages[:, 17408:] = 0x7E
    assert_right((q * 0, cache, *rest), sizes=sizes, splits=splits)


@pytest.mark.parametrize("group", FORMS)
def test_a_maximum_that_grows_within_and_beyond_the_lazy_limit(group):
    for step in (1.2, 3.0):
        assert_right(growing_input(step, blocks=8, group=group))
    assert_right(growing_input(1.5, blocks=16, group=group), splits=2)


def check_random_shape(draw):
    heads = heads_spec(*draw.choice(HEADS)) | draw.choice([{}, {"groupsize": draw.randint(1, 16)}])
    spec: dict[str, Any] = {"batchsize": draw.randint(1, 3), "kvseqlen": draw.randint(1, 1200), "topk": draw.randint(1, 12)}
    spec |= {"seed": draw.randint(0, 999), "slots": draw.choice(["messy", "valid"]), "kvmin": 0, "padrows": draw.choice([0, 2])}
    spec |= {"vscales": draw.choice(["swizzled", "linear"]), "dist": draw.choice(REFERENCE.DISTRIBUTIONS)}
    sizes, splits, seed = draw.choice(CUDA_SHAPES), draw.choice(CUDA_SPLITS), draw.randint(0, 1 << 30)
    assert_right(make_input(**heads, **spec), splits=splits, sizes=sizes, seed=seed)


@pytest.mark.parametrize("seed", range(12))
def test_random_shapes(seed):
    check_random_shape(random.Random(seed))


@pytest.mark.slow
@pytest.mark.parametrize("share", range(4))
def test_many_random_shapes(share):
    draw = random.Random(1000 + share)
    for _ in range(250):
        check_random_shape(draw)


# Each: what is broken, and what must be noticed.
MISTAKES = {
    "the wait for the copies left out": ("attend.cuh", "mbar_spin(ring.bar(stage, 0), parity);", ""),
    "the ring's parity never changes": ("attend.cuh", "parity ^= 1;", ""),
    "a stage is filled again before its lanes have read it": ("attend.cuh", "ring.before(stage));", "stage);"),
    "the loop begins with a copy that was made before it": ("attend.cuh", "i + ring.AHEAD * V::", "i + (ring.AHEAD - 1) * V::"),
    "V scales are read before they are widened": (
        "attend.cuh",
        "widen_v_scales<V::LINEAR>(at.widened, stage + at.v_scales, visible, lane);\n    __syncwarp();",
        "",
    ),
    "V that comes apart is not waited for": ("attend.cuh", "    mbar_spin(values_bar, parity);\n    widen();", "    widen();"),
    "V of a tile that is hidden is not waited for": ("attend.cuh", "else if (V::APART) mbar_spin(values_bar, parity);", ""),
    "codes eight tokens on lie as those before": ("unpack.cuh", "n & 1 ? place ^ 64 : place", "place"),
    "shares are summed before they have arrived": ("merge.cuh", "mbar_spin(box.full, 0);", ""),
    "shares are sent before their owners have opened": ("merge.cuh", "if (split_bits) cluster_wait();", ""),
    "a block that owns no query head leaves early": (
        "merge.cuh",
        "if (row >> box.rows_bits()) return;",
        "if (row >> box.rows_bits() || out_row >= a.group) return;",
    ),
    "the weights are not waited for": ("merge.cuh", "SHARES_BYTES + WEIGHTS_BYTES);", "SHARES_BYTES);"),
    "a block does not hear of the splits' maximum": ("merge.cuh", "o[i] *= kept;", "o[i] *= 1.f;"),
    "a split without a slot leaves its cluster": ("decode.cuh", "if (share.tiles) {", "if (!share.tiles) return; {"),
    "warps do not wait for each other's shares": ("decode.cuh", "bar_sync(MERGE_BARRIER, V::THREADS);", ""),
    "every tile is taken for the first": ("attend.cuh", "seen, i == 0, ", "seen, true, "),
    "the sum of P does not hear of the maximum": ("softmax.cuh", "x.l[i] *= alpha[FORM::row_of(i)];", ""),
    "a maximum of half of the tokens": ("attend_narrow.cuh", "FIRST_PEER = 4, END_PEER = 32", "FIRST_PEER = 4, END_PEER = 16"),
    "weights of half of the tokens as they lie": ("attend_narrow.cuh", "second = transpose_8x8(p[1])", "second = p[1]"),
    "queries are read before they are stored": ("decode.cuh", "bar_sync(START_BARRIER, V::THREADS);", ""),
}


QUICK = ("the wait for the copies left out", "shares are summed before they have arrived")


@pytest.mark.parametrize("mistake", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in MISTAKES])
def test_a_mistake_is_noticed(mistake):
    wide, narrow = growing_input(1.5, 16, 16), growing_input(1.5, 16, 8)
    few = make_input(batchsize=1, kvseqlen=2000, topk=1, groupsize=9)
    hidden = make_input(batchsize=2, kvseqlen=1930, topk=16)  # most tiles of a row's own block, which stands anywhere

    def try_schedules():
        for seed in range(20):
            for data, splits in ((wide, 2), (narrow, 4), (few, 8), (hidden, 1)):
                for sizes in (CUDA_SHAPES[0], CUDA_SHAPES[-1]):  # with others on a multiprocessor, and alone there
                    assert_right(data, splits=splits, sizes=sizes, seed=seed, change=MISTAKES[mistake])

    with pytest.raises((RuntimeError, AssertionError)):
        try_schedules()
