"""A sweep that was ended at any moment, by Ctrl-C or kill -9, goes on where it was and loses only what was running."""

import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from simulated import CONFIG, IDENTITY, SHAPES, SimulatedExecutor, best_ns, searches_in, store_in, true_ns, worst

from sweep.errors import OtherStudy, StorageUnreachable
from sweep.run import Deadline, Sweep
from sweep.store import Store

ENTRIES = {shape: worst(shape) for shape in SHAPES}
HERE = Path(__file__).parent
CHILD = f"""
import os, signal, sys
from pathlib import Path
sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent.parent)!r}]
from test_resume import ENTRIES
from simulated import SimulatedExecutor, searches_in, store_in
from sweep.run import Deadline, Sweep

folder, kill_at = Path(sys.argv[1]), int(sys.argv[2])
executor = SimulatedExecutor(ENTRIES)

def before():
    print(len(executor.asked), flush=True)
    if len(executor.asked) == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)

executor.before = before
Sweep(searches_in(store_in(folder), ENTRIES), executor, Deadline(None), out=lambda line: None).run()
print("done", flush=True)
"""


def stored(folder):
    return [study.records() for study in (search.study for search in searches_in(store_in(folder), ENTRIES))]


def run(searches, executor):
    return Sweep(searches, executor, Deadline(None), out=lambda line: None).run()


def raced(executor, shape):
    """Every variant of a shape that an executor was asked for in a race."""
    return {v for ask in executor.asked if ask.target.shape == shape and "race" in ask.tag for v in ask.variants}


def test_killed_again_and_again_it_still_ends_with_the_best(tmp_path):
    """kill -9 before a random Ask of each run; what was stored before stays, and nothing is measured twice."""
    draw = random.Random(7)
    kept: list[int] = [0, 0]
    for _ in range(3):
        command = [sys.executable, "-c", textwrap.dedent(CHILD), str(tmp_path), str(draw.randrange(2, 12))]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert ended.returncode in (-signal.SIGKILL, 0), ended.stderr
        records = stored(tmp_path)
        assert all(len(now) >= before for now, before in zip(records, kept, strict=True))
        assert all(len({record.variant for record in one}) == len(one) for one in records)
        kept = [len(one) for one in records]
    assert sum(kept) > 0
    executor = SimulatedExecutor(ENTRIES)
    decisions = run(searches_in(store_in(tmp_path), ENTRIES), executor)
    for number, shape in enumerate(ENTRIES):
        assert decisions[number].changes
        assert true_ns(decisions[number].challenger, shape) <= best_ns(shape) * 1.02
        known = {record.variant for record in records[number]}
        assert not raced(executor, shape) & known


@pytest.mark.parametrize("at", [1, 3, 6, 9])
def test_interrupted_anywhere_it_measures_only_the_rest(tmp_path, at):
    executor = SimulatedExecutor(ENTRIES)

    def interrupt():
        if len(executor.asked) == at:
            raise KeyboardInterrupt

    executor.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        run(searches_in(store_in(tmp_path), ENTRIES), executor)
    known = [{record.variant for record in records} for records in stored(tmp_path)]
    second = SimulatedExecutor(ENTRIES, seed=1)
    decisions = run(searches_in(store_in(tmp_path), ENTRIES), second)
    assert all(decision.changes for decision in decisions.values())
    for shape, variants in zip(ENTRIES, known, strict=True):
        assert not raced(second, shape) & variants


def test_a_finished_sweep_measures_nothing_again(tmp_path):
    first = run(searches_in(store_in(tmp_path), ENTRIES), SimulatedExecutor(ENTRIES))
    idle = SimulatedExecutor(ENTRIES)
    again = run(searches_in(store_in(tmp_path), ENTRIES), idle)
    assert idle.asked == []
    assert again == first
    applied = {shape: first[number].challenger for number, shape in enumerate(ENTRIES)}
    assert run(searches_in(store_in(tmp_path), applied), idle) == first
    assert idle.asked == []


def test_another_entry_in_the_table_brings_another_duel(tmp_path):
    shape = SHAPES[0]
    first = run(searches_in(store_in(tmp_path), {shape: worst(shape)}), SimulatedExecutor(ENTRIES))
    records = searches_in(store_in(tmp_path), {shape: None})[0].study.records()
    edited = next(record.variant for record in records if record.variant not in (worst(shape), first[0].challenger))
    executor = SimulatedExecutor({shape: edited})
    decisions = run(searches_in(store_in(tmp_path), {shape: edited}), executor)
    assert any("duel" in ask.tag for ask in executor.asked)
    assert decisions[0].incumbent == edited


@pytest.mark.parametrize("key", list(IDENTITY))
def test_a_study_of_another_version_is_refused_and_explained(tmp_path, key):
    store = store_in(tmp_path)
    store.study("name", IDENTITY)
    with pytest.raises(OtherStudy) as refused:
        store.study("name", {**IDENTITY, key: "another"})
    assert f"{key} was {IDENTITY[key]} and is another" in str(refused.value)
    assert "--restart" in str(refused.value)
    store.study("name", {**IDENTITY, key: "another"}, restart=True)
    store.study("name", {**IDENTITY, key: "another"})


@pytest.mark.parametrize(
    "url",
    ["sqlite:////nowhere/at/all/file.sqlite", "nonsense", "unknowndb://host/x", "postgresql+psycopg://me:secret@127.0.0.1:1/x"],
)
def test_an_unreachable_storage_is_one_clear_line(url):
    with pytest.raises(StorageUnreachable) as error:
        Store(url, CONFIG)
    assert "\n" not in str(error.value)
    assert "secret" not in str(error.value)
    assert error.value.exit_code == 6


def test_a_storage_that_goes_away_is_named(tmp_path):
    store = store_in(tmp_path)
    study = store.study("name", IDENTITY)
    os.remove(tmp_path / "studies.sqlite")
    with pytest.raises(StorageUnreachable, match="cannot be used"):
        study.set("key", 1)
