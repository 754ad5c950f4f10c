"""Isolated and un-isolated times are compared like with like, and the verdict is what the script says it is."""

import json
from pathlib import Path

import pytest
import torch

from harness.devices import describe_device
from harness.policies import robust
from scripts import isolation_overhead
from scripts.isolation_overhead import UnisolatedSession, like_a_run, main

CASE = "batchsize: 1; qseqlen: 1; kvseqlen: 64; seed: 1"


def test_the_rules_are_a_runs_in_all_that_changes_a_sample():
    policy = robust("benchmark", describe_device(torch.device("cpu")), 1.0)
    like = like_a_run(policy)
    for rule in ("cold", "hides_launch", "stop", "warmup", "fresh", "pool", "alike", "statistic"):
        assert getattr(like, rule) == getattr(policy, rule)


def test_the_referees_own_work_is_not_charged_to_the_side_that_shares_its_process(tmp_path):
    submission = tmp_path / "submission.py"
    submission.write_text("custom_kernel = None\n")
    session = UnisolatedSession(submission, torch.device("cpu"))
    assert session._ahead_ns(10**9) == 0


@pytest.mark.parametrize(("share", "code", "says"), [(1e9, 0, "1 of 1 agree"), (-1.0, 1, "0 of 1 agree")])
def test_a_case_is_measured_both_ways(tmp_path, monkeypatch, capsys, share, code, says):
    """Whatever the times of a busy machine are: with no limit they agree, with an impossible one they do not."""
    monkeypatch.setattr(isolation_overhead, "MAX_SHARE", share)
    monkeypatch.setattr(isolation_overhead, "MAX_NS", share)
    path = tmp_path / "found.json"
    here = Path.cwd()
    assert main(["--device", "cpu", "--cases", CASE, "--budget-s", "0.2", "--json", str(path)]) == code
    assert Path.cwd() == here
    (case,) = json.loads(path.read_text())["cases"]
    assert case["isolated"]["runs"] == case["unisolated"]["runs"] >= 2
    assert case["agrees"] is (code == 0)
    assert says in capsys.readouterr().out
