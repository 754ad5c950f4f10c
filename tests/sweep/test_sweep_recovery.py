"""The measurement of a sweep's recovery: what it says of a found entry, and a whole run with kills on a CPU."""

import json
import random
import subprocess
import sys

import pytest
from small_root import ROOT

from scripts.sweep_recovery import Entry, fill, line_of, note_records
from sweep.record import Record
from sweep.variant import Outcome, Variant


def samples(mean_ns, seed, count=61, noise=0.002):
    draw = random.Random(seed)
    return Outcome(tuple(round(mean_ns * draw.lognormvariate(0, noise)) for _ in range(count)))


def filled(found_ns, known_ns=10_000.0, spoiled=None):
    entry = Entry("4x1x1024x16", "bad", "good", "found")
    fill(entry, [samples(found_ns, 1), samples(found_ns, 2), samples(known_ns, 3), spoiled or samples(20_000, 4)])
    return entry


@pytest.mark.parametrize(
    ("found_ns", "verdict"),
    [(10_000, "within noise"), (9_000, "faster"), (10_050, "within 1 %"), (11_000, "slower")],
)
def test_the_verdict_on_a_found_entry(found_ns, verdict):
    entry = filled(found_ns)
    assert entry.verdict == verdict
    assert entry.ratio == pytest.approx(found_ns / 10_000, rel=0.003)
    assert entry.spoiled_ns == pytest.approx(20_000, rel=0.01)


def test_noise_that_hides_a_difference_is_called_undecided():
    unsteady, steady = Outcome((10_000, 30_000) * 3 + (30_000,)), Outcome((10_000,) * 7)
    entry = Entry("4x1x1024x16", "bad", "good", "found")
    fill(entry, [unsteady, unsteady, steady, steady])
    assert entry.ratio == pytest.approx(3)
    assert entry.ci95 is not None
    assert entry.ci95[0] <= 1
    assert entry.verdict == "undecided"


def test_a_spoiled_entry_that_does_not_run_is_no_obstacle():
    entry = filled(10_000, spoiled=Outcome((), "failed", "too many splits"))
    assert entry.verdict == "within noise"
    assert entry.spoiled_ns is None
    assert line_of(entry).startswith("4x1x1024x16: within noise: us: best known ")


def test_a_found_entry_that_does_not_run_is_not_compared():
    entry = Entry("4x1x1024x16", "bad", "good", "found")
    broken = Outcome((), "failed", "CUDA error 1")
    fill(entry, [broken, broken, samples(10_000, 1), samples(20_000, 2)])
    assert entry.verdict == "not compared: CUDA error 1"


def test_trials_are_counted_and_the_first_refusal_is_named():
    entry = Entry("4x1x1024x16", "bad", "good")
    variants = [Variant("cuda", {"cluster": size}) for size in (1, 2, 3)]
    note_records(
        entry,
        [
            Record(variants[0], "ok", (3, 4, 5)),
            Record(variants[1], "failed", (), "CUDA error 1"),
            Record(variants[2], "ok", (2, 2, 2)),
        ],
    )
    assert entry.trials == {"ok": 2, "failed": 1}
    assert entry.first_refusal == "cuda cluster=2 failed: CUDA error 1"
    assert (entry.best_tried, entry.best_tried_ns) == ("cuda cluster=3", 2.0)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_sweep_that_is_killed_again_and_again_loses_no_stored_trial(tmp_path):
    command = [sys.executable, "scripts/sweep_recovery.py", "--out", str(tmp_path), "--device", "cpu", "--samples", "8"]
    command += ["--cases", "batchsize: 1; qseqlen: 1; kvseqlen: 256; seed: 3", "--kill-every-s", "6"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert run.returncode in (0, 1), run.stderr  # a busy machine may find an entry slower
    report = json.loads((tmp_path / "recovery.json").read_text())
    assert report["state"] == "compared"
    assert report["kills"]
    assert report["lost_trials"] == report["repeated_trials"] == 0
    (entry,) = report["entries"]
    assert entry["found"]
    assert entry["found_ns"] > 0
    assert sum(entry["trials"].values()) > 0
