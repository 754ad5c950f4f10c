"""configs/: the official problem folder and the case files."""

from pathlib import Path

import pytest

from popcorn.cases import parse_cases
from popcorn.taskfile import load_task_file
from reference import DISTRIBUTIONS, bytes_by_format

CONFIGS = Path(__file__).parents[2] / "configs"

OFFICIAL_TESTS = [(4, 1, 1024, 4220), (32, 1, 1024, 5412), (64, 1, 8192, 1360), (256, 1, 8192, 9826)]
OFFICIAL_BENCHMARKS = [
    (4, 1, 1024, 4217),
    (4, 1, 8192, 4220),
    (32, 1, 1024, 5412),
    (32, 1, 8192, 5415),
    (64, 1, 1024, 1357),
    (64, 1, 8192, 1360),
    (256, 1, 1024, 9823),
    (256, 1, 8192, 9826),
]


def shapes(cases) -> list[tuple]:
    return [(c.spec["batchsize"], c.spec["qseqlen"], c.spec["kvseqlen"], c.spec["seed"]) for c in cases]


def test_task_yml_holds_the_official_cases_limits_and_ranking():
    task = load_task_file(CONFIGS / "task.yml")
    assert shapes(task.tests) == OFFICIAL_TESTS
    assert shapes(task.benchmarks) == OFFICIAL_BENCHMARKS
    assert all(set(case.spec) == {"batchsize", "qseqlen", "kvseqlen", "seed"} for case in task.tests + task.benchmarks)
    assert (task.test_timeout_s, task.benchmark_timeout_s, task.ranked_timeout_s) == (900, 900, 1200)
    assert (task.ranking_by, task.gpus, task.lang, task.main) == ("geom", ("MI355X",), "py", "eval.py")


def test_task_yml_names_the_files_that_a_runner_stages():
    task = load_task_file(CONFIGS / "task.yml")
    assert set(task.files) == {"submission.py", "task.py", "utils.py", "reference.py", "eval.py"}
    for name in ("task.py", "utils.py", "reference.py"):
        assert (CONFIGS / task.files[name]).resolve() == CONFIGS.parent / name


def test_the_smoke_cases():
    cases = parse_cases((CONFIGS / "cases" / "smoke.txt").read_text(), "smoke.txt")
    found = [tuple(case.spec.get(key) for key in ("batchsize", "qseqlen", "kvseqlen", "kvmin")) for case in cases]
    assert found == [(4, 1, 1024, None), (1, 1, 8192, None), (2, 1, 1024, 1), (1, 2, 512, None)]


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("cases/*.txt")), ids=lambda path: path.name)
def test_every_case_file_holds_cases_that_can_be_made(path):
    cases = parse_cases(path.read_text(), path.name)
    assert cases
    assert len({case.text for case in cases}) == len(cases)
    for case in cases:
        assert set(case.spec) <= {"batchsize", "qseqlen", "kvseqlen", "seed", "kvmin", "dist", "numheads"}
        assert case.spec.get("dist", "normal") in DISTRIBUTIONS
        assert bytes_by_format(case.spec)["bf16"] < 3 * 2**30


def test_the_adversarial_cases_cover_every_distribution_and_the_ragged_ones_every_kind():
    adversarial = parse_cases((CONFIGS / "cases" / "adversarial.txt").read_text(), "adversarial.txt")
    assert {case.spec["dist"] for case in adversarial} == set(DISTRIBUTIONS) - {"normal"}
    ragged = [case.spec for case in parse_cases((CONFIGS / "cases" / "ragged.txt").read_text(), "ragged.txt")]
    assert {spec.get("kvmin") for spec in ragged} >= {0, 1}
    assert {spec["qseqlen"] for spec in ragged} >= {1, 2, 4}
    assert {spec.get("numheads", 16) for spec in ragged} == {16, 32, 128}
