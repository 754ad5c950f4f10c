"""AITER's production MLA decode code objects for gfx950 compute right in the emulator, and it finds their LDS race.

The objects come out of PyPI's amd-aiter wheel, fetched at test time. Expected: fp64 attention on the quantised inputs. The
a8w8 kernels round P to fp8, which costs 2 to 3 % in relative L2; against a reference that does the same, a single KV tile
must agree to fp32 rounding.
"""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from corpus import aiter_mla, aiter_others, aiter_wheel, wheels
from corpus.aiter_cases import BY_NAME, CASES, LOCKSTEP, ObjectCase, error, relative_l2, run_case

from gfx950.emulator import CONJUNCTION, Run, Schedule

PERSISTENT = BY_NAME["mla_a8w8_qh16_qseqlen1_gqaratio16_ps"]
RIGHT = [case for case in CASES if not case.timing]
TIMING = [case for case in CASES if case.timing]
LOADS_OF_P = ("ds_read_b64 v[88:89]", "ds_read_b64 v[90:91]")


@pytest.fixture(scope="module", autouse=True)
def code_objects(toolchain: None) -> None:
    try:
        aiter_wheel.wheel()
    except wheels.Unreachable as reason:
        pytest.skip(str(reason))


def kinds(run: Run) -> set[str]:
    return {finding.kind for finding in run.findings}


@pytest.mark.parametrize("num_splits", [1, 2, 4])
@pytest.mark.parametrize("lengths", [(64,), (128, 100), (256, 65, 200)], ids=str)
@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_object_is_right(case: ObjectCase, lengths: tuple[int, ...], num_splits: int) -> None:
    work = case.batch(lengths)
    run, out = run_case(case, work, num_splits)
    assert error(case, work, out) < case.bound
    assert kinds(run) <= case.findings


def test_single_tile_agrees_with_fp8_rounded_weights_to_fp32_rounding() -> None:
    work = PERSISTENT.batch((128, 100))
    made = aiter_mla.plan(work, 2, cus=3)
    _, outputs = aiter_mla.run_persistent(PERSISTENT.name, work, made, schedule=LOCKSTEP)
    scale = work.sm_scale * float(work.q_scale) * float(work.kv_scale)
    for part in made.works:
        first = sum(work.lengths[: part.batch])
        rows = work.rows(part.batch)[part.kv_start - first : part.kv_end - first]
        out, lse = aiter_mla.attend(work.q[part.qo_start], rows, scale, float(work.kv_scale), aiter_mla.FP8)
        assert relative_l2(outputs.partial[part.partial_qo_loc], out) < 1e-6
        assert relative_l2(outputs.partial_lse[part.partial_qo_loc], lse) < 1e-6


@pytest.mark.parametrize("schedule", CONJUNCTION, ids=lambda schedule: schedule.name)
def test_race_on_the_weights_is_found(schedule: Schedule) -> None:
    """The next K tile goes into LDS before all waves are known to have read P: found whatever the schedule makes of it."""
    run, _ = run_case(PERSISTENT, PERSISTENT.batch((128,)), 1, schedule)
    races = [finding for finding in run.findings if finding.kind == "lds-race" and "ds_write_b32" in finding.instruction]
    assert any(load in race.message for race in races for load in LOADS_OF_P)


def test_race_gives_wrong_results_when_waves_run_to_the_barrier() -> None:
    work = PERSISTENT.batch((128,))
    _, out = run_case(PERSISTENT, work, 1, Schedule.to_barrier())
    assert not error(PERSISTENT, work, out) < 0.1


@pytest.mark.parametrize("case", TIMING, ids=lambda case: case.name)
def test_object_that_leans_on_timing(case: ObjectCase) -> None:
    """What it reads too early is reported; with memory that answers at once it computes right."""
    work = case.batch((200, 77))
    run, _ = run_case(case, work)
    assert case.findings <= kinds(run)
    _, out = run_case(case, work, schedule=LOCKSTEP.without_latency())
    assert error(case, work, out) < case.bound


def test_four_token_object_leaves_the_kv_scale_out_of_its_output() -> None:
    """A defect of the object that emulation shows: its output is 1 / kv_scale too large or small."""
    case = BY_NAME["mla_a8w8_qh16_qseqlen4_gqaratio16_ps"]
    work = case.batch((200, 77))
    _, out = run_case(case, work, schedule=LOCKSTEP.without_latency())
    assert relative_l2(out, aiter_mla.oracle(work, causal=True)) == pytest.approx(1 - 1 / float(work.kv_scale), abs=0.02)


@pytest.mark.parametrize("case", aiter_others.CASES, ids=lambda case: case.path)
def test_other_production_kernels(case: aiter_others.OtherCase) -> None:
    verdict = case.make().verify()
    assert verdict.failures == [], str(verdict)
    assert {finding.kind for finding in verdict.findings} <= case.findings, str(verdict)
