"""Official problem folders under the command line: every mode, ranking and limit of task.yml."""

import shutil
from pathlib import Path

import pytest
import torch

from harness.cli import main
from harness.result import read_result

PROBLEMS = Path(__file__).parents[1] / "support" / "problems"
RUNNABLE = ["vectoradd", "template_only", "scaled_mean", "ranked_last", "output_buffer"]


def evaluate(tmp_path, folder, *options):
    """Exit code and Result of the command line on a problem folder."""
    code = main(["--problem", str(folder), "--json", str(tmp_path / "result.json"), *options])
    return code, read_result(tmp_path / "result.json")


@pytest.fixture
def folder(tmp_path):
    """A writable copy of the stand-ins; the scaled_mean folder of it."""
    shutil.copytree(PROBLEMS, tmp_path / "problems")
    return tmp_path / "problems" / "scaled_mean"


@pytest.mark.parametrize("name", RUNNABLE)
def test_the_folders_own_submission_passes_its_tests(tmp_path, name):
    code, result = evaluate(tmp_path, PROBLEMS / name, "--mode", "test")
    assert (code, result.ok, result.cases_from) == (0, True, "official")
    assert all(case.strict is None and case.official and case.official.ok for case in result.cases)


@pytest.mark.parametrize(
    ("name", "ranking", "cases"), [("vectoradd", "geom", 3), ("scaled_mean", "mean", 2), ("ranked_last", "last", 1)]
)
def test_benchmarks_are_scored_as_the_folder_ranks(tmp_path, name, ranking, cases):
    code, result = evaluate(tmp_path, PROBLEMS / name, "--mode", "benchmark", "--budget-s", "0.1")
    medians = [case.timing.median_ns for case in result.cases if case.timing]
    assert (code, len(medians)) == (0, cases)
    expected = {"last": medians[-1], "mean": sum(medians) / cases, "geom": torch.tensor(medians).log().mean().exp().item()}
    assert result.score is not None
    assert result.score.ranking_by == ranking
    assert result.score.value_ns == pytest.approx(expected[ranking], rel=1e-5)


def test_leaderboard_mode_renews_an_output_buffer_too(tmp_path):
    code, result = evaluate(tmp_path, PROBLEMS / "output_buffer", "--mode", "leaderboard", "--budget-s", "0.1")
    assert (code, result.ok) == (0, True)


def test_a_submission_of_ones_own_is_judged_by_the_folder(tmp_path):
    wrong = tmp_path / "mine.py"
    wrong.write_text("def custom_kernel(data):\n    return data.square() + 1\n")
    code, result = evaluate(tmp_path, PROBLEMS / "template_only", "--mode", "test", "--submission", str(wrong))
    assert code == 112
    assert result.cases[0].official is not None
    assert "100 mismatched elements" in result.cases[0].official.message


def test_a_hang_is_ended_after_what_task_yml_grants(tmp_path, folder):
    text = (folder / "task.yml").read_text()
    (folder / "task.yml").write_text(text.replace("test_timeout: 61", "test_timeout: 9"))
    (folder / "submission.py").write_text("import time\n\ndef custom_kernel(data):\n    time.sleep(1e6)\n")
    code, result = evaluate(tmp_path, folder, "--mode", "test", "--cases", "n: 4; negate: False; seed: 1")
    assert code == 114
    assert "within 9 s" in result.cases[0].message


def test_a_submission_cannot_import_what_is_withheld_from_it(tmp_path, folder):
    (folder / "submission.py").write_text("import task, utils\nimport reference\ncustom_kernel = reference.ref_kernel\n")
    assert main(["--problem", str(folder), "--mode", "test"]) == 3
    (folder / "submission.py").write_text("import harness.problem\n")
    assert main(["--problem", str(folder), "--mode", "test"]) == 3


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_generator_that_hard_codes_cuda_is_one_clear_line(capfd):
    assert main(["--problem", str(PROBLEMS / "hard_cuda"), "--mode", "test"]) == 110
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert "generate_input asks for a GPU (reference.py, line 8) and this machine has none" in error


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        ('ranking_by: "mean"', 'ranking_by: "median"', 2, "task.yml, line 25: ranking_by: must be one of last, mean, geom"),
        ('ranking_by: "mean"', 'ranking: "mean"', 2, "task.yml, line 25: ranking: unknown key 'ranking'"),
        ('ranking_by: "mean"', "ranking_by: [", 2, "task.yml, line 26: not valid YAML"),
        ("../utils.py", "../utilities.py", 2, "these files do not exist: utils.py (from ../utilities.py)"),
        ('lang: "py"', 'lang: "cu"', 2, "task.yml, line 13: config.main: unknown key 'main'"),
        ("tests:", "samples:", 2, "unknown key 'samples'"),
    ],
)
def test_a_malformed_folder_is_one_clear_line(folder, capfd, old, new, code, message):
    text = (folder / "task.yml").read_text()
    assert old in text
    (folder / "task.yml").write_text(text.replace(old, new))
    assert main(["--problem", str(folder), "--mode", "test"]) == code
    out, error = capfd.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    assert message in error
