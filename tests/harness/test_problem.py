"""Problem folders: loading, staging, hooks and their defaults, and every way in which a folder can be wrong."""

import shutil
from pathlib import Path

import pytest
import torch

from harness.errors import Exit
from harness.problem import InputError, NeedsGpuError, ProblemError, load_flat, load_problem, read_verdict
from popcorn.cases import Case
from popcorn.taskfile import TaskFileError

PROBLEMS = Path(__file__).parents[1] / "support" / "problems"
RUNNABLE = ["vectoradd", "template_only", "scaled_mean", "ranked_last", "output_buffer"]


@pytest.fixture
def folder(tmp_path):
    """A writable copy of the stand-ins; the vectoradd folder of it."""
    shutil.copytree(PROBLEMS, tmp_path / "problems")
    return tmp_path / "problems" / "vectoradd"


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def run(problem, case, submission):
    namespace: dict = {}
    source = submission.read_text().replace("from task import input_t, output_t", "")
    exec(source.replace(": input_t", "").replace(" -> output_t", ""), namespace)
    return problem.judge(problem.generate_input(case), namespace["custom_kernel"](problem.generate_input(case)))


@pytest.mark.parametrize("name", RUNNABLE)
def test_a_folder_makes_inputs_and_accepts_its_own_submission(name):
    problem = load_problem(PROBLEMS / name)
    for case in (*problem.task.tests, *problem.task.benchmarks):
        verdicts = run(problem, case, problem.default_submission)
        assert verdicts["official"]["ok"], verdicts
        assert "strict" not in verdicts


def test_a_wrong_output_gets_the_folders_own_message():
    problem = load_problem(PROBLEMS / "vectoradd")
    data = problem.generate_input(problem.task.tests[0])
    ok, message = problem.check_implementation(data, data[0])
    assert not ok
    assert "256 mismatched elements" in message


def test_an_output_of_the_wrong_type_is_a_failed_check_that_says_so():
    problem = load_problem(PROBLEMS / "vectoradd")
    ok, message = problem.check_implementation(problem.generate_input(problem.task.tests[0]), None)
    assert not ok
    assert "AttributeError" in message
    assert "utils.py, line" in message


def test_the_name_is_the_leaderboard_of_the_default_submission_else_the_folders():
    assert load_problem(PROBLEMS / "template_only").name == "template-only"
    assert load_problem(PROBLEMS / "scaled_mean").name == "scaled_mean"


def test_the_default_submission_is_the_folders_own_else_its_first_python_template(folder):
    assert load_problem(folder).default_submission == folder / "submission.py"
    template_only = folder.parent / "template_only"
    assert load_problem(template_only).default_submission == template_only / "../template.py"
    edit(template_only / "task.yml", 'Python: "../template.py"', "CUDA: x.cu")
    assert load_problem(template_only).default_submission is None


def test_a_worker_gets_the_sources_flat_without_oracle_and_clock(tmp_path):
    problem = load_problem(PROBLEMS / "vectoradd")
    mine = tmp_path / "mine.py"
    mine.write_text("x = 1\n")
    stage = tmp_path / "stage"
    stage.mkdir()
    assert problem.stage(stage, mine) == stage / "submission.py"
    assert sorted(path.name for path in stage.iterdir()) == ["submission.py", "task.py", "utils.py"]
    assert (stage / "submission.py").read_text() == "x = 1\n"
    assert (stage / "utils.py").read_text() == (PROBLEMS / "utils.py").read_text()


def test_the_hooks_of_a_folder_are_used_and_have_defaults(folder):
    problem = load_problem(folder)
    assert problem.mutable_inputs is None
    assert problem.min_bytes(problem.task.tests[0]) is None
    with (folder / "reference.py").open("a") as reference:
        reference.write(
            "mutable_inputs = [1]\n"
            "def min_bytes(spec, format=None):\n    return spec['size'] * (2 if format is None else 4)\n"
            "def judge(data, output):\n    return {'official': {'ok': True, 'message': ''}, 'strict': {'ok': False}}\n"
        )
    problem = load_problem(folder)
    assert problem.mutable_inputs == (1,)
    assert [problem.min_bytes(problem.task.tests[0], format) for format in (None, "fp8")] == [32, 64]
    assert problem.judge(None, None)["strict"] == {"ok": False}


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_generator_that_hard_codes_cuda_is_refused_by_name_and_line(folder):
    problem = load_problem(PROBLEMS / "hard_cuda")
    with pytest.raises(NeedsGpuError, match=r"hard_cuda: generate_input asks for a GPU \(reference.py, line 8\)") as caught:
        problem.generate_input(problem.task.tests[0])
    assert caught.value.exit_code == Exit.DEVICE_ERROR
    for statement in ('torch.zeros(1, device="cuda")', "torch.cuda.synchronize()", "torch.cuda.current_device()"):
        shutil.copy(PROBLEMS / "vectoradd" / "reference.py", folder / "reference.py")
        with (folder / "reference.py").open("a") as reference:
            reference.write(statement + "\n")
        with pytest.raises(NeedsGpuError, match=r"reference\.py asks for a GPU"):
            load_problem(folder)


def test_a_check_that_needs_a_gpu_is_refused_too(folder):
    if torch.cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    edit(folder / "reference.py", "    return a + b", "    return (a.cuda() + b.cuda()).cpu()")
    problem = load_problem(folder)
    data = problem.generate_input(problem.task.tests[0])
    with pytest.raises(NeedsGpuError, match="check_implementation asks for a GPU"):
        problem.judge(data, data[0])


def test_a_case_that_the_generator_refuses_is_named():
    problem = load_problem(PROBLEMS / "vectoradd")
    fault = r"`size: 4; sed: 1`.*unexpected keyword argument 'sed'; its keys are size, seed"
    with pytest.raises(InputError, match=fault) as caught:
        problem.generate_input(Case.from_spec({"size": 4, "sed": 1}))
    assert caught.value.exit_code == Exit.BAD_CASES
    with pytest.raises(InputError, match=r"`size: -4; seed: 1`.*reference.py, line 11"):
        problem.generate_input(Case.from_spec({"size": -4, "seed": 1}))


def test_all_missing_sources_are_named_at_once():
    with pytest.raises(ProblemError, match=r"utils.py \(from ../shared/utils.py\), eval.py \(from ../shared/eval.py\)"):
        load_problem(PROBLEMS / "missing_sources")


def test_a_missing_template_is_named(folder):
    (folder.parent / "template.py").unlink()
    with pytest.raises(ProblemError, match=r"templates: .*Python \(from ../template.py\)"):
        load_problem(folder.parent / "template_only")


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("import torch\nimport aiter_of_nowhere\n", "No module named 'aiter_of_nowhere' .*reference.py, line 2"),
        ("def generate_input(:\n", "SyntaxError"),
        ("import sys\nsys.exit('no')\n", "SystemExit: no"),
        ("raise ValueError('two\\nlines')\n", "ValueError: two lines"),
        ("def check_implementation(data, output): ...\n", "defines no function generate_input"),
        ("def generate_input(): ...\ncheck_implementation = 3\n", "defines no function check_implementation"),
        ("import task\ntask.nothing\n", "AttributeError"),
    ],
)
def test_a_reference_that_cannot_be_used(folder, code, fault):
    (folder / "reference.py").write_text(code)
    with pytest.raises(ProblemError, match=fault) as caught:
        load_problem(folder)
    assert "\n" not in str(caught.value)


def test_the_path_of_task_yml_names_its_folder():
    assert load_problem(PROBLEMS / "vectoradd" / "task.yml").directory == PROBLEMS / "vectoradd"


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(ProblemError, match="no such folder"):
        load_problem(tmp_path / "nowhere")
    with pytest.raises(ProblemError, match=r"no task\.yml in this folder"):
        load_problem(tmp_path)
    (tmp_path / "task.yml").write_text("files: [")
    with pytest.raises(TaskFileError, match=r"task\.yml, line 1: not valid YAML"):
        load_problem(tmp_path)


def test_tasks_of_another_kind_are_refused(folder):
    edit(folder / "task.yml", "gpus:", "multi_gpu: true\ngpus:")
    edit(folder / "task.yml", '"seed"', '"world_size": 2, "seed"')
    with pytest.raises(ProblemError, match="multi_gpu"):
        load_problem(folder)
    edit(folder / "task.yml", 'lang: "py"', 'lang: "cu"')
    edit(folder / "task.yml", 'main: "eval.py"', 'sources: ["eval.cu"]')
    with pytest.raises(ProblemError, match="lang is cu; only Python tasks"):
        load_problem(folder)


def test_a_folder_without_a_reference(folder):
    edit(folder / "task.yml", '  - {"name": "reference.py", "source": "reference.py"}\n', "")
    with pytest.raises(ProblemError, match=r"no reference\.py among its files"):
        load_problem(folder)


@pytest.mark.parametrize(
    ("returned", "verdict"),
    [
        ((True, ""), (True, "")),
        ((False, "bad"), (False, "bad")),
        ((True, None), (True, "")),
        ((False, ["a", "b"]), (False, "['a', 'b']")),
        ((torch.tensor(False), "x"), (False, "x")),
        ("", (True, "")),
        (None, (True, "")),
        ("wrong", (False, "wrong")),
        (True, (True, "")),
        (False, (False, "")),
    ],
)
def test_every_form_of_verdict_that_folders_return(returned, verdict):
    assert read_verdict(returned) == verdict


def test_a_check_that_returns_no_verdict_is_the_folders_fault_and_not_the_outputs(folder):
    (folder / "reference.py").write_text("def generate_input(): ...\ndef check_implementation(data, output):\n    return 3\n")
    with pytest.raises(ProblemError, match=r"check_implementation returned int; expected \(bool, str\)"):
        load_problem(folder).judge(None, None)


def test_a_check_that_runs_out_of_memory_says_nothing_about_the_output(folder):
    (folder / "reference.py").write_text(
        "def generate_input(): ...\ndef check_implementation(data, output):\n    raise MemoryError\n"
    )
    with pytest.raises(MemoryError):
        load_problem(folder).judge(None, None)


@pytest.mark.parametrize("returned", [3, [], (True,), (True, "", 1), {"ok": True}])
def test_other_forms_are_no_verdict(returned):
    with pytest.raises(ProblemError, match="expected"):
        read_verdict(returned)


def test_a_folder_that_a_runner_has_laid_out_flat(tmp_path):
    for source in (PROBLEMS / "vectoradd").glob("*.py"):
        shutil.copy(source, tmp_path)
    for name in ("utils.py", "eval.py"):
        shutil.copy(PROBLEMS / name, tmp_path)
    (tmp_path / "cases.txt").write_text("size: 4; seed: 1\n")
    problem = load_flat(tmp_path)
    assert problem.default_submission == tmp_path / "submission.py"
    assert problem.judge(*(problem.generate_input(Case.from_spec({"size": 4, "seed": 1})),) * 2)["official"]["ok"] is False
    stage = tmp_path / "stage"
    stage.mkdir()
    problem.stage(stage, problem.default_submission)
    assert sorted(path.name for path in stage.iterdir()) == ["submission.py", "task.py", "utils.py"]
    (tmp_path / "reference.py").unlink()
    with pytest.raises(ProblemError, match=r"no reference\.py"):
        load_flat(tmp_path)
