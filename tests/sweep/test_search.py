"""A whole search against a simulated device: it finds back, it makes nothing slower, it survives what fails."""

import dataclasses
import random

import pytest
from simulated import (
    OTHER,
    PRESET,
    SHAPES,
    SPACE,
    SimulatedExecutor,
    best_ns,
    searches_in,
    store_in,
    true_ns,
    worst,
)

from sweep.errors import MostRefused, SpaceError
from sweep.run import Deadline, Sweep
from sweep.space import Space


def run(searches, executor, **more):
    sweep = Sweep(searches, executor, Deadline(None), out=lambda line: None, **more)
    return sweep.run()


def after_ns(decision, entry, shape):
    """The exact time of what the entry says afterwards."""
    return true_ns(decision.challenger if decision.changes else entry, shape)


@pytest.mark.parametrize("seed", range(3))
def test_a_spoiled_table_finds_back_to_the_best(tmp_path, seed):
    entries = {shape: worst(shape) for shape in SHAPES}
    decisions = run(searches_in(store_in(tmp_path), entries), SimulatedExecutor(entries, seed))
    for number, (shape, entry) in enumerate(entries.items()):
        assert decisions[number].changes
        assert after_ns(decisions[number], entry, shape) <= best_ns(shape) * 1.02


@pytest.mark.parametrize("seed", range(6))
def test_no_entry_becomes_slower_however_loud_the_noise(tmp_path, seed):
    """Entries anywhere in the space, noise from nothing to more than the differences."""
    draw = random.Random(seed)
    entries = {shape: draw.choice(list(Space([SPACE], PRESET, shape))) for shape in SHAPES}
    noise = (0.0, 0.02, 0.1, 0.3, 0.01, 0.05)[seed]
    decisions = run(searches_in(store_in(tmp_path), entries), SimulatedExecutor(entries, seed, noise))
    for number, (shape, entry) in enumerate(entries.items()):
        assert after_ns(decisions[number], entry, shape) <= true_ns(entry, shape)


def test_the_best_entry_stays(tmp_path):
    shape = SHAPES[0]
    best = min(Space([SPACE], PRESET, shape), key=lambda variant: true_ns(variant, shape))
    decisions = run(searches_in(store_in(tmp_path), {shape: best}), SimulatedExecutor({shape: best}))
    assert not decisions[0].changes
    assert decisions[0].reason.startswith("kept")
    assert decisions[0].duel is not None
    assert decisions[0].duel.noise.ci95[0] < 1 < decisions[0].duel.noise.ci95[1]


def test_wrong_and_failing_variants_are_recorded_and_never_chosen(tmp_path):
    shape = SHAPES[0]
    entry = worst(shape)

    def broken(variant):
        if variant.params.get("mode") == "a":
            return "wrong"
        return "failed" if variant.params.get("warps") == 8 else "ok"

    searches = searches_in(store_in(tmp_path), {shape: entry})
    searches[0].entry = entry
    decisions = run(searches, SimulatedExecutor({shape: entry}, broken=lambda v: "ok" if v == entry else broken(v)))
    statuses = {record.variant.params.get("mode"): record.status for record in searches[0].records()}
    assert statuses["a"] == "wrong"
    assert decisions[0].changes
    assert broken(decisions[0].challenger) == "ok"


def test_slow_candidates_get_fewer_samples(tmp_path):
    shape = SHAPES[0]
    searches = searches_in(store_in(tmp_path), {shape: worst(shape)})
    run(searches, SimulatedExecutor({shape: worst(shape)}))
    raced_out = [record for record in searches[0].records() if record.status == "raced out"]
    assert raced_out
    assert all(len(record.samples_ns) < sum(PRESET.race_samples) for record in raced_out[:-1])
    best = searches[0].best()
    assert best is not None
    assert len(best.samples_ns) == sum(PRESET.race_samples)


def test_an_entry_that_does_not_run_is_replaced(tmp_path):
    shape = SHAPES[0]
    entry = worst(shape)
    executor = SimulatedExecutor({shape: entry}, broken=lambda variant: "failed" if variant == entry else "ok")
    decisions = run(searches_in(store_in(tmp_path), {shape: entry}), executor)
    assert decisions[0].changes
    assert "does not run" in decisions[0].reason


def test_when_nothing_runs_the_entry_is_kept(tmp_path):
    shape = SHAPES[0]
    executor = SimulatedExecutor({shape: worst(shape)}, broken=lambda variant: "failed")
    decisions = run(searches_in(store_in(tmp_path), {shape: worst(shape)}), executor)
    assert not decisions[0].changes
    assert "nor any candidate runs" in decisions[0].reason


def test_a_backend_that_is_not_there_leaves_the_space(tmp_path):
    shape = SHAPES[0]
    executor = SimulatedExecutor(
        {shape: worst(shape)}, broken=lambda variant: "unavailable" if variant.backend == "other" else "ok"
    )
    searches = searches_in(store_in(tmp_path), {shape: worst(shape)})
    decisions = run(searches, executor)
    assert decisions[0].changes
    assert list(searches[0].space.grids) == ["sim"]
    assert all(record.variant.backend == "sim" for record in searches[0].records())


def test_when_no_backend_is_there_it_says_so(tmp_path):
    shape = SHAPES[0]
    executor = SimulatedExecutor({shape: None}, broken=lambda variant: "unavailable")
    with pytest.raises(SpaceError, match="none of the backends other, sim"):
        run(searches_in(store_in(tmp_path), {shape: None}), executor)


def test_screened_variants_never_run(tmp_path):
    shape = SHAPES[0]
    executor = SimulatedExecutor({shape: worst(shape)})
    screen = lambda variant: "12 VGPRs spilled" if variant.params.get("tile") == 128 else None  # noqa: E731
    searches = searches_in(store_in(tmp_path), {shape: worst(shape)}, screen=screen)
    run(searches, executor)
    ran = {variant for ask in executor.asked for variant in ask.variants if variant}
    assert not [variant for variant in ran if variant.params.get("tile") == 128]
    assert any(record.status == "screened" and "spilled" in record.message for record in searches[0].records())


def test_exhaustive_tries_every_setting(tmp_path):
    shape = SHAPES[0]
    preset = dataclasses.replace(PRESET, exhaustive=True, trials=1, batch=40)
    searches = searches_in(store_in(tmp_path), {shape: worst(shape)}, preset)
    decisions = run(searches, SimulatedExecutor({shape: worst(shape)}))
    assert {record.variant for record in searches[0].records()} == set(Space([SPACE, OTHER], preset, shape))
    assert after_ns(decisions[0], worst(shape), shape) == best_ns(shape)


def test_small_backends_are_tried_whole_beside_the_samplers_proposals(tmp_path):
    shape = SHAPES[0]
    preset = dataclasses.replace(PRESET, whole=4, refine_rounds=0)
    searches = searches_in(store_in(tmp_path), {shape: worst(shape)}, preset)
    run(searches, SimulatedExecutor({shape: worst(shape)}))
    tried = [record.variant for record in searches[0].records()]
    others = [variant for variant in tried if variant.backend == OTHER.name]
    assert sorted(variant.params["size"] for variant in others) == OTHER.params["size"]
    assert len(tried) == len(others) + preset.trials


def test_where_all_backends_are_tried_whole_nothing_is_sampled(tmp_path):
    shape = SHAPES[0]
    space = Space([SPACE, OTHER], PRESET, shape)
    searches = searches_in(store_in(tmp_path), {shape: worst(shape)}, dataclasses.replace(PRESET, whole=len(space)))
    decisions = run(searches, SimulatedExecutor({shape: worst(shape)}))
    assert searches[0].tried == len(space)
    assert after_ns(decisions[0], worst(shape), shape) == best_ns(shape)


def test_a_backend_tried_whole_that_is_not_there_is_left_alone_at_once(tmp_path):
    shape = SHAPES[0]
    broken = lambda variant: "unavailable" if variant.backend == "sim" else "ok"  # noqa: E731
    executor = SimulatedExecutor({shape: None}, broken=broken)
    searches = searches_in(store_in(tmp_path), {shape: None}, dataclasses.replace(PRESET, whole=1000))
    run(searches, executor)
    asked = [variant for ask in executor.asked for variant in ask.variants if variant and variant.backend == "sim"]
    assert 0 < len(asked) <= PRESET.batch * 2


def test_a_sweep_in_which_most_settings_fail_stops_early_and_says_why(tmp_path):
    entries = {shape: worst(shape) for shape in SHAPES}
    executor = SimulatedExecutor(entries, broken=lambda variant: "failed")
    searches = searches_in(store_in(tmp_path), entries, dataclasses.replace(PRESET, batch=16, trials=64))
    with pytest.raises(MostRefused, match=r"32 of 32 settings gave no right result, the first one: .* is failed"):
        run(searches, executor)
    assert sum(search.tried for search in searches) == 32


def test_when_time_is_up_what_is_known_still_duels(tmp_path):
    shape = SHAPES[0]
    looks = iter([False, False] + [True] * 1000)
    searches = searches_in(store_in(tmp_path), {shape: worst(shape)}, is_late=lambda: next(looks))
    decisions = run(searches, SimulatedExecutor({shape: worst(shape)}))
    assert searches[0].tried == 2 * PRESET.batch
    assert decisions[0].changes
    assert true_ns(decisions[0].challenger, shape) < true_ns(worst(shape), shape)
