"""Several problems in one process: each sees its own task, utils and reference, now and later, and leaves no trace."""

import gc
import shutil
import sys
from pathlib import Path

import pytest

from harness.modules import ModuleSpace
from harness.problem import load_problem

PROBLEMS = Path(__file__).parents[1] / "support" / "problems"


def space(folder, **files):
    folder.mkdir()
    for name, code in files.items():
        (folder / f"{name}.py").write_text(code)
    return ModuleSpace(folder)


def test_the_same_names_in_two_folders_are_two_modules(tmp_path):
    code = "import utils\nfrom task import N\ndef later():\n    import utils, task\n    return utils.WHO, task.N\n"
    spaces = [
        space(tmp_path / str(i), utils=f"WHO = {i}\n", task=f"import utils\nN = utils.WHO * 10\n", reference=code)  # noqa: F541
        for i in (1, 2)
    ]
    modules = [one.load("reference") for one in spaces]
    assert [module.N for module in modules] == [10, 20]
    assert [module.later() for module in modules] == [(1, 10), (2, 20)]
    assert modules[0] is spaces[0].load("reference")


def test_the_process_keeps_its_own_modules_and_path(tmp_path):
    before, path = {name: sys.modules.get(name) for name in ("task", "utils", "reference", "random")}, list(sys.path)
    island = space(tmp_path / "a", random="X = 1\n", reference="import random\nimport os.path\nfrom json import loads\n")
    module = island.load("reference")
    assert module.random.X == 1
    assert module.os.path.join("a", "b") == "a/b"
    assert {name: sys.modules.get(name) for name in before} == before
    assert sys.path == path
    import random

    assert hasattr(random, "Random")


def test_a_module_that_fails_leaves_nothing_half_made(tmp_path):
    island = space(tmp_path / "a", reference="import utils\n", utils="raise RuntimeError('no')\n")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no"):
            island.load("reference")


def test_modules_that_import_each_other_in_a_circle(tmp_path):
    island = space(tmp_path / "a", reference="import utils\nA = 1\n", utils="import reference\nB = 2\n")
    assert island.load("reference").utils.reference.A == 1


def test_dataclasses_and_annotations_find_their_module(tmp_path):
    code = (
        "from __future__ import annotations\nimport dataclasses, typing\n"
        "@dataclasses.dataclass\nclass Spec:\n    n: int\n"
        "HINTS = typing.get_type_hints(Spec)\n"
    )
    module = space(tmp_path / "a", reference=code).load("reference")
    assert vars(module)["HINTS"]["n"] is int


def test_two_problems_side_by_side(tmp_path):
    shutil.copytree(PROBLEMS, tmp_path / "problems")
    twin = tmp_path / "problems" / "vectoradd" / "reference.py"
    twin.write_text(twin.read_text().replace("return a + b", "return a - b"))
    plus, minus = load_problem(PROBLEMS / "vectoradd"), load_problem(tmp_path / "problems" / "vectoradd")
    case = plus.task.tests[0]
    a, b = plus.generate_input(case)
    assert [problem.check_implementation((a, b), a + b)[0] for problem in (plus, minus)] == [True, False]
    assert [problem.check_implementation((a, b), a - b)[0] for problem in (plus, minus)] == [False, True]


def test_the_staged_copy_is_removed_with_the_problem():
    problem = load_problem(PROBLEMS / "template_only")
    staged = Path(problem._scratch.name)
    assert (staged / "reference.py").is_file()
    del problem
    gc.collect()
    assert not staged.exists()
