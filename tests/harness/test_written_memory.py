"""What a submission must write, its output in every call, and what it may: inputs only if the problem says so."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from harness import policies
from harness.devices import describe_device, select_device
from harness.problem import load_problem
from harness.referee import Request, evaluate
from harness.result import CaseResult, Status
from popcorn.cases import parse_cases

DOUBLING = Path(__file__).parent / "doubling"
CASES = tuple(parse_cases("size: 4096; seed: 1", "test"))
WRITES_INPUT = """
def custom_kernel(data):
    output = data[0] * 2
    data[0].zero_()
    return output
"""
# One output for all calls: rewritten in each, as a captured graph rewrites its own, or written once.
REPLAYED = """
import torch

output = None

def custom_kernel(data):
    global output
    if output is None:
        output = torch.empty_like(data[0])
        output.copy_(data[0] * 2)
    elif {rewritten}:
        torch.mul(data[0], 2, out=output)
    return output
"""
OFFICIAL = {"mode": "benchmark", "rules": "official"}, {"mode": "leaderboard", "rules": "official"}
ROBUST = {"mode": "benchmark", "rules": "robust"}


class Silent:
    def __getattr__(self, name):
        return lambda *_: None


def run(folder: Path, text: str, mode: str, rules: str, hooks: str = "") -> CaseResult:
    problem_folder = folder / "problem"
    shutil.copytree(DOUBLING, problem_folder)
    task = problem_folder / "task.yml"
    task.write_text(task.read_text().replace("../../../eval.py", "eval.py"))
    shutil.copy(DOUBLING.parents[2] / "eval.py", problem_folder)
    with (problem_folder / "reference.py").open("a") as reference:
        reference.write(hooks)
    submission = folder / "submission.py"
    submission.write_text(text)
    device = select_device("cpu")
    about = describe_device(device)
    policy = policies.popcorn(mode, about) if rules == "official" else policies.robust(mode, about, budget_s=0.2)
    if rules == "official":
        policy = replace(policy, stop=policies.AfterCalls(5, 10**10), first_case_warmup=policies.AfterCalls(2, 10**10))
    request = Request(load_problem(problem_folder), submission, mode, CASES, "test", policy, device)
    return evaluate(request, Silent()).cases[0]


@pytest.mark.parametrize(
    ("hooks", "status"),
    [("", Status.PASS), ("\nmutable_inputs = ()\n", Status.WRONG), ("\nmutable_inputs = (0,)\n", Status.PASS)],
    ids=["undeclared", "none", "declared"],
)
def test_inputs_are_written_only_where_the_problem_allows_it(tmp_path, hooks, status):
    case = run(tmp_path, WRITES_INPUT, "test", "robust", hooks)
    assert case.status is status, case.message
    assert case.official_ok
    assert status is Status.PASS or "input 0 was changed" in case.strict.message


@pytest.mark.parametrize("rules", [*OFFICIAL, ROBUST], ids=lambda rules: " ".join(rules.values()))
def test_an_output_that_every_call_rewrites_passes(tmp_path, rules):
    case = run(tmp_path, REPLAYED.format(rewritten=True), **rules)
    assert case.status is Status.PASS, case.message


@pytest.mark.parametrize("rules", [OFFICIAL[0], ROBUST], ids=lambda rules: " ".join(rules.values()))
def test_an_output_that_was_written_once_does_not(tmp_path, rules):
    """The official benchmark calls on the same contents all the time: only the NaN that was put there gives it away."""
    assert run(tmp_path, REPLAYED.format(rewritten=False), **rules).status is Status.WRONG
