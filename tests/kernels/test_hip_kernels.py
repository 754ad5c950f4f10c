"""The HIP kernels' gfx950 machine code in the emulator; scripts/emulate.py runs more of the same."""

import pytest

pytest.importorskip("gfx950")

import reference
from gfx950 import compile_hip
from gfx950.checks import check
from gfx950.emulator import Schedule
from kernels.hip_backend import tuned_traits
from scripts import hip_emulation
from scripts.emulate import VARIANTS
from scripts.hip_emulation import compile_traits, decode_report, emulate

SCHEDULES = (Schedule.random(seed=1), Schedule.reverse(1).prompt())
REACHABLE = dict(enumerate(tuned_traits()))
NAMES = ["fp8 PV", "DIRECT_CVT", "PRELOAD_V", "paged", "mxfp4, paged", "bf16, paged", "one buffer, occupancy 4"]
SAMPLE = [*REACHABLE.values(), *(VARIANTS[name] for name in NAMES)]
# Wave instructions per 32-token tile of the tuned competition entry, which these kernels have to beat.
TUNED_ENTRY = {"fp8": 1257, "mxfp4": 4731}


@pytest.mark.parametrize("traits", SAMPLE, ids=lambda traits: "-".join(map(str, traits)))
def test_ragged_sequences_some_empty(traits):
    data = reference.generate_input(3, 2, 150, 11, kvmin=0, device="cpu")
    data[3][1] = 0  # the first sequence has no KV
    result = emulate(data, traits, 3, page_size=4, schedules=SCHEDULES, lds_fills=("nan",))
    assert result.verdict.ok, str(result.verdict)


@pytest.mark.parametrize("dist", reference.DISTRIBUTIONS)
@pytest.mark.parametrize("traits", [REACHABLE[0], REACHABLE[1]], ids=["fp8", "mxfp4"])
def test_value_distributions(traits, dist):
    data = reference.generate_input(1, 1, 130, 5, dist=dist, device="cpu")
    result = emulate(data, traits, 2, schedules=SCHEDULES[:1])
    assert result.verdict.ok, str(result.verdict)


@pytest.mark.parametrize("traits", [REACHABLE[0], REACHABLE[1]], ids=["fp8", "mxfp4"])
def test_logits_beyond_what_f32_resolves(traits):
    """Every row picks one token. A softmax that is off by a rounding of the largest logit picks none, or NaN."""
    data = reference.generate_input(1, 1, 130, 5, device="cpu")
    data[0].mul_(1e30)
    result = emulate(data, traits, 2, schedules=SCHEDULES[:1], lds_fills=("nan",))
    assert result.verdict.ok, str(result.verdict)


@pytest.mark.parametrize("number", REACHABLE)
def test_dispatched_kernels_have_no_spills_no_hazards_and_their_occupancy(number):
    traits = REACHABLE[number]
    resources = decode_report(traits)
    assert (resources.vgpr_spills, resources.sgpr_spills, resources.scratch_bytes) == (0, 0, 0)
    assert resources.waves_per_simd >= traits.waves_per_simd
    assert check(compile_traits(traits)) == []


@pytest.mark.parametrize("number", [number for number, traits in REACHABLE.items() if traits.row_blocks == 1])
def test_instructions_per_tile_and_kv_traffic(number):
    traits = REACHABLE[number]
    short, long = (
        emulate(reference.generate_input(1, 1, tokens, 3, device="cpu"), traits, 1, schedules=SCHEDULES[1:], lds_fills=("nan",))
        for tokens in (512, 1024)
    )
    per_tile = (long.run.instructions - short.run.instructions) / (long.tiles - short.tiles)
    assert per_tile < TUNED_ENTRY[traits.format] * 0.65
    assert long.kv_bytes_ratio <= 1.03


def test_sixty_four_splits_with_one_tile_each():
    data = reference.generate_input(1, 1, 64 * 32, 8, device="cpu")
    result = emulate(data, REACHABLE[0], 64, schedules=SCHEDULES[:1], lds_fills=("nan",))
    assert result.verdict.ok, str(result.verdict)


@pytest.mark.parametrize(
    ("right", "wrong", "kv_len"),
    [
        ("        wait_loads<0>();\n", "        ;\n", 300),  # a tile is read before it has arrived
        ("if (16 * b + i >= left)", "if (16 * b + i > left)", 5),  # one token too many
        ("sums.rescale(fresh", "if (at_last) sums.rescale(fresh", 300),  # the sums are not rescaled
        ('__builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");', "", 300),  # partial rows may come after the ticket
    ],
)
def test_the_emulation_notices_mistakes(monkeypatch, right, wrong, kv_len):
    source = hip_emulation.device_source()
    assert source.count(right) == 1
    broken = source.replace(right, wrong).replace("// Online softmax", "constexpr bool at_last = false;\n// Online softmax")
    traits = REACHABLE[0]
    instance = f"template __global__ void mla_decode<Traits{{{traits.initializer()}}}>({hip_emulation.SIGNATURE});\n"
    monkeypatch.setattr(hip_emulation, "compile_traits", lambda traits: compile_hip(broken + instance))
    data = reference.generate_input(1, 1, kv_len, 2, dist="large" if kv_len > 5 else "normal", device="cpu")
    assert not emulate(data, traits, 3, lds_fills=("nan",)).verdict.ok
