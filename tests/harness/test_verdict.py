"""A judge's dictionary as records, and the worse of two verdicts."""

import math

import numpy as np
import pytest
import torch

from harness.errors import RefereeOutOfMemory
from harness.result import Official, Strict
from harness.verdict import Verdict, judge


class FakeProblem:
    def __init__(self, said):
        self._said = said

    def judge(self, data, output):
        if isinstance(self._said, Exception):
            raise self._said
        return self._said


def test_official_alone():
    verdict = judge(FakeProblem({"official": {"ok": True, "message": "fine"}}), None, None)
    assert verdict == Verdict(Official(True, "fine"), None)
    assert verdict.ok


def test_scalars_of_torch_and_numpy_become_plain():
    said = {"ok": np.bool_(True), "rel_l2_worst": torch.tensor(0.5), "nan_count": np.int64(3), "where": (torch.tensor(1), None)}
    strict = judge(FakeProblem({"official": {"ok": True}, "strict": said}), None, None).strict
    assert strict == Strict(True, rel_l2_worst=0.5, nan_count=3, details={"where": [1, None]})
    assert type(strict.rel_l2_worst) is float


def test_a_judge_that_raises_has_found_the_output_wrong():
    verdict = judge(FakeProblem(ValueError("no such shape")), None, None)
    assert not verdict.ok
    assert "no such shape" in verdict.official.message


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nhelp")])
def test_memory_that_runs_out_while_judging_is_no_verdict(error):
    with pytest.raises(RefereeOutOfMemory, match=r"no memory left to judge an output: .*; free some"):
        judge(FakeProblem(error), None, None)


@pytest.mark.parametrize(
    ("first", "second", "worst"),
    [
        (Strict(True, rel_l2_worst=0.1), Strict(True, rel_l2_worst=0.2), Strict(True, rel_l2_worst=0.2)),
        (Strict(True, rel_l2_worst=0.9), Strict(False, rel_l2_worst=0.2), Strict(False, rel_l2_worst=0.2)),
        (Strict(False, rel_l2_worst=math.inf), Strict(False, rel_l2_worst=1.0), Strict(False, rel_l2_worst=math.inf)),
        (None, Strict(True), Strict(True)),
    ],
)
def test_the_worse_strict_verdict_is_kept(first, second, worst):
    for one, other in ((first, second), (second, first)):
        assert Verdict(Official(True), one).worst(Verdict(Official(True), other)).strict == worst


def test_the_worse_official_verdict_is_kept():
    good, bad = Official(True), Official(False, "values differ")
    assert Verdict(good).worst(Verdict(bad)).official == bad
    assert Verdict(bad).worst(Verdict(good)).official == bad


def test_only_a_failed_strict_verdict_fails():
    assert not Verdict(Official(True), Strict(False)).ok
    assert Verdict(Official(True), None).ok
