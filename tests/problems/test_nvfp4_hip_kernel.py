"""The NVFP4 HIP kernel's gfx950 machine code in the emulator, against the problem's fp64 oracle; scripts/emulate_nvfp4.py runs
more of the same."""

import random

import numpy as np
import pytest
import torch
from nvfp4_cases import HEADS, heads_spec, make_input

pytest.importorskip("gfx950")

from gfx950 import compile_hip
from gfx950.checks import check
from gfx950.emulator import Buffer, Schedule, launch
from kernels.nvfp4_msa.hip_backend import HIP_TRAITS_OF_MODULE, Traits, device_source
from scripts.nvfp4_emulation import compile_traits, decode_report, emulate, reference

SCHEDULES = (Schedule.random(seed=1), Schedule.reverse(1).prompt())
LINEAR = Traits(swizzled=False)


def assert_right(data, traits=HIP_TRAITS_OF_MODULE[0], splits=2, **options):
    result = emulate(data, traits, splits, **{"schedules": SCHEDULES, "lds_fills": ("nan",)} | options)
    assert result.verdict.ok, str(result.verdict)
    return result


@pytest.mark.parametrize("slots", ["valid", "messy"])
@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_head_counts_ragged_lengths_and_padding(heads, slots):
    options = heads_spec(*heads) | {"padrows": 2, "kvmin": 0, "slots": slots}
    assert_right(make_input(batchsize=3, kvseqlen=400, topk=4, seed=sum(heads), **options), num_xcds=2)


@pytest.mark.parametrize("traits", HIP_TRAITS_OF_MODULE, ids=str)
def test_every_instantiation(traits):
    scales = "swizzled" if traits.swizzled else "linear"
    assert_right(make_input(kvseqlen=1000, topk=7, slots="messy", vscales=scales), traits)


@pytest.mark.parametrize("dist", reference.DISTRIBUTIONS)
@pytest.mark.parametrize("traits", [HIP_TRAITS_OF_MODULE[0], LINEAR], ids=["swizzled", "linear"])
def test_value_distributions(traits, dist):
    scales = "swizzled" if traits.swizzled else "linear"
    assert_right(make_input(batchsize=1, seed=5, dist=dist, vscales=scales), traits, schedules=SCHEDULES[:1])


@pytest.mark.parametrize(("topk", "splits"), [(1, 1), (16, 16), (16, 5), (64, 64), (64, 7), (64, 1)])
def test_slot_and_split_counts(topk, splits):
    assert_right(make_input(batchsize=1, kvseqlen=70 * 128 - 5, topk=topk, seed=9), splits=splits, schedules=SCHEDULES[:1])


@pytest.mark.parametrize("length", [1, 31, 32, 33, 96, 127, 128, 129, 256, 257])
def test_lengths_around_the_waves_shares_of_a_block(length):
    assert_right(make_input(batchsize=1, kvseqlen=length, topk=3), splits=1, schedules=SCHEDULES[:1])


def listing(slots, length=1000, **spec):
    """An input of one row that lists exactly `slots`."""
    data = make_input(batchsize=1, kvseqlen=length, topk=len(slots), **spec)
    whole = make_input(batchsize=1, kvseqlen=length, topk=-(-length // 128))  # every block has a page
    topk = torch.zeros_like(data[2])
    topk[0, 0] = torch.tensor(slots)
    return (data[0], whole[1], topk, whole[3], *data[4:])


@pytest.mark.parametrize(
    "slots",
    [
        [7] * 5,  # the row's own block five times
        [3, 7, 3, 7, 3],
        [-1, 2**31 - 1, -(2**31), 8, 1],  # only the last one is valid
        [0, -1, -1, -1, 0],
    ],
    ids=str,
)
@pytest.mark.parametrize("splits", [1, 2, 5])
def test_duplicates_count_and_invalid_slots_stand_anywhere(slots, splits):
    assert_right(listing(slots), splits=splits, schedules=SCHEDULES[:1])


@pytest.mark.parametrize("slots", [[-1, -1], [8, 2**31 - 1]], ids=["none", "future"])
def test_a_row_that_sees_nothing_is_exactly_zero(slots):
    data = listing(slots)
    result = assert_right(data, splits=2)
    assert result.tiles == 0
    assert all(not run.args[7].any() for run in result.verdict.runs)


@pytest.mark.parametrize("magnitude", [3.3e38, 1e30, 1.0, 1e-30, 1e-40, 0.0])
def test_queries_of_any_size(magnitude):
    data = make_input(batchsize=1)
    largest = data[0].float().abs().max()
    data[0].copy_((data[0].float() / largest).double() * magnitude)
    data[0][:, ::2] /= 2  # heads differ in their scale
    assert data[0].isfinite().all()
    assert_right(data, schedules=SCHEDULES[:1])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_cases(seed):
    draw = random.Random(seed)
    traits = draw.choice(HIP_TRAITS_OF_MODULE)
    spec = {"batchsize": draw.randint(1, 4), "qseqlen": draw.randint(1, 5), "kvseqlen": draw.randint(1, 3000), "kvmin": 0}
    spec |= {"topk": draw.choice([1, 2, 3, 8, 16, 33, 64]), "numkvheads": draw.randint(1, 4), "groupsize": draw.randint(1, 16)}
    spec |= {"slots": draw.choice(["valid", "messy"]), "padrows": draw.randint(0, 4), "seed": seed}
    spec |= {"dist": draw.choice(reference.DISTRIBUTIONS), "vscales": "swizzled" if traits.swizzled else "linear"}
    data = make_input(**spec)
    splits, in_flight = draw.choice([1, 2, 3, spec["topk"], 64]), draw.choice([1, 2, 8, 100])
    assert_right(data, traits, splits, num_xcds=draw.randint(1, 8), workgroups_in_flight=in_flight)


def test_pages_beyond_two_gigabytes():
    data = make_input(batchsize=1, numkvheads=2)
    far = 61_000  # page of 36,864 bytes
    cache = np.zeros((far + len(data[1]), *data[1].shape[1:]), np.uint8)  # untouched memory costs nothing
    cache[far:] = data[1].numpy()
    table = torch.where(data[3] >= 0, data[3] + far, data[3])
    assert_right((data[0], torch.from_numpy(cache), data[2], table, *data[4:]), schedules=SCHEDULES[1:])


def test_requests_and_their_splits_stay_on_one_xcd():
    """Workgroup w of the launch runs on XCD w % num_xcds: grid.x is a multiple of it, so x % num_xcds decides."""
    kernel = "__global__ void rows(u32* out, int xcds, int q_len) { out[blockIdx.x] = Row(blockIdx.x, xcds, q_len).index; }\n"
    code = compile_hip(device_source() + kernel)
    for xcds, q_len, rounds in [(1, 1, 5), (8, 1, 3), (8, 3, 2), (4, 2, 3), (1, 3, 2)]:
        grid = xcds * q_len * rounds
        out = np.zeros(grid, np.uint32)
        launch(code, grid=grid, block=64, args=[Buffer(out), xcds, q_len])
        assert sorted(out) == list(range(grid))
        xcd_of_request = {(row // q_len, x % xcds) for x, row in enumerate(out.tolist())}
        assert len(xcd_of_request) == xcds * rounds


@pytest.mark.parametrize("traits", HIP_TRAITS_OF_MODULE, ids=str)
def test_no_spills_no_hazards_and_the_occupancy_that_the_module_counts_on(traits):
    resources = decode_report(traits)
    assert (resources.vgpr_spills, resources.sgpr_spills, resources.scratch_bytes) == (0, 0, 0)
    assert resources.waves_per_simd >= traits.waves_per_simd
    assert check(compile_traits(traits)) == []


def test_instructions_per_block_and_cache_traffic():
    traits = HIP_TRAITS_OF_MODULE[0]
    few, many = (
        emulate(make_input(batchsize=1, kvseqlen=40 * 128, topk=topk), traits, 1, schedules=SCHEDULES[1:], lds_fills=("nan",))
        for topk in (8, 24)
    )
    assert (many.run.instructions - few.run.instructions) / 16 <= 1100
    assert many.kv_bytes_ratio == 1.0
