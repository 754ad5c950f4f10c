"""The problem folder under eval.py, with the generated submission."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from nvfp4_cases import PROBLEM

from harness.problem import load_problem

ROOT = Path(__file__).resolve().parents[2]
CASES = "batchsize: 2; qseqlen: 2; kvseqlen: 200; topk: 3; seed: 1; groupsize: 8; kvmin: 0; slots: messy; padrows: 1"


def evaluate(tmp_path, *arguments):
    result = tmp_path / "result.json"
    command = [sys.executable, "eval.py", "--problem", str(PROBLEM), "--cases", CASES, "--device", "cpu", "--json", str(result)]
    run = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=900)
    return run, json.loads(result.read_text()) if result.exists() else None


def test_the_folder_loads_with_its_hooks():
    problem = load_problem(PROBLEM)
    assert (problem.name, problem.mutable_inputs) == ("nvfp4-msa", ())
    assert problem.min_bytes(problem.task.tests[0])


def test_the_generated_submission_passes(tmp_path):
    run, result = evaluate(tmp_path, "--mode", "test", "--backend", "torch")
    assert run.returncode == 0, run.stdout + run.stderr
    assert result
    (case,) = result["cases"]
    assert case["official"]["ok"]
    assert case["strict"]["ok"]
    assert case["backend"] == "torch"


def test_a_submission_that_drops_the_mask_fails(tmp_path):
    text = (PROBLEM / "submission.py").read_text()
    wrong = text.replace("<= pos[:, None, None])", "<= pos[:, None, None] + 1)")
    assert wrong != text
    (tmp_path / "wrong.py").write_text(wrong)
    run, _ = evaluate(tmp_path, "--mode", "test", "--backend", "torch", "--submission", str(tmp_path / "wrong.py"))
    assert run.returncode == 112, run.stdout + run.stderr


@pytest.mark.parametrize("name", ["custom_kernel", "describe"])
def test_the_submission_imports_alone(name, tmp_path):
    for file in ("submission.py", "task.py"):
        shutil.copy(PROBLEM / file, tmp_path)
    command = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, '.'); from submission import {name}"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stderr
