"""Several devices: Asks go to whichever is free, a lost device's Ask is measured again, the last loss ends it."""

from dataclasses import replace

import pytest
from fake_bench import FakeBench

from popcorn.cases import Case
from sweep.bench_config import BenchConfig
from sweep.errors import CaseRefused, DeviceLost, KernelsNotLoaded, SweepError
from sweep.local import LocalExecutor
from sweep.variant import Ask, Shape, Target

CONFIG = BenchConfig("", "", "cuda:0")
TARGET = Target(Shape(4, 1, 1024, 16), Case.from_spec({"seed": 1}))


def executor(folder, trouble="none", devices=("cuda:0", "cuda:1"), compiled=()):
    configs = [replace(CONFIG, device=device, submission=f"{folder}|{trouble}", compiled=compiled) for device in devices]
    return LocalExecutor(configs, make=FakeBench)


def asks(count):
    return [Ask(TARGET, (None,), 3, str(number)) for number in range(count)]


def answers(made, count):
    try:
        return dict(made.run(asks(count)))
    finally:
        made.close()


def test_every_ask_is_answered_once(tmp_path):
    found = answers(executor(tmp_path), 5)
    assert sorted(found) == list(range(5))
    assert all(len(outcomes) == 1 and len(outcomes[0].samples_ns) == 3 for outcomes in found.values())


def test_compilers_run_before_anything_is_timed(tmp_path):
    answers(executor(tmp_path, compiled=("sim",)), 2)
    assert (tmp_path / "cuda:0.prepared").exists()
    assert not (tmp_path / "cuda:1.prepared").exists()


def test_what_a_lost_device_was_busy_with_is_measured_again(tmp_path):
    assert sorted(answers(executor(tmp_path, "dies once", ("cuda:0",)), 3)) == [0, 1, 2]
    assert len((tmp_path / "cuda:0.asked").read_text()) == 4


@pytest.mark.parametrize("trouble", ["always dies", "never starts"])
def test_a_device_that_cannot_be_used_leaves_the_work_to_the_others(tmp_path, trouble):
    assert sorted(answers(executor(tmp_path, trouble), 6)) == list(range(6))


def test_without_a_device_it_ends_and_says_that_nothing_is_lost(tmp_path):
    with pytest.raises(DeviceLost, match="illegal memory access; what was measured is stored"):
        answers(executor(tmp_path, "all die"), 4)


@pytest.mark.parametrize(
    ("trouble", "error", "message"),
    [("not loaded", KernelsNotLoaded, "no custom_kernel"), ("bad case", CaseRefused, "refused the case")],
)
def test_what_no_device_can_mend_ends_it_at_once(tmp_path, trouble, error, message):
    with pytest.raises(error, match=message):
        answers(executor(tmp_path, trouble), 1)


def test_different_gpus_do_not_share_a_sweep(tmp_path):
    with pytest.raises(SweepError, match="Another GPU"):
        executor(tmp_path, "other machine")
