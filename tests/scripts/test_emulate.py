"""The emulation command's choice of cases, and the real machine's command where there is none."""

import types
from pathlib import Path

import pytest
import torch

from harness.options import parser
from scripts import emulate, emulate_nvfp4, on_mi355x


def test_every_dispatched_kernel_and_official_shape_has_cases(capsys):
    assert emulate.main(["--list"]) == 0
    names = capsys.readouterr().out.splitlines()
    assert len(set(names)) == len(names)
    assert sum(name.startswith("official ") for name in names) == 8
    cases = emulate.all_cases()
    assert {case.traits for case in cases} >= {*emulate.tuned_traits(), *emulate.VARIANTS.values()}


def test_a_text_that_no_case_has_is_refused(capsys):
    with pytest.raises(SystemExit) as exit:
        emulate.main(["--only", "nowhere"])
    assert exit.value.code == 2
    assert "--list shows them" in capsys.readouterr().err


def test_one_case_is_run_and_shown(capsys):
    assert emulate.main(["--only", "DIRECT_CVT: constant"]) == 0
    assert "1 cases, 10 runs, 0 wrong" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_without_the_card_the_real_run_says_what_to_do_instead(capsys):
    assert on_mi355x.main([]) == 2
    assert "without one run scripts/emulate.py" in capsys.readouterr().out


def test_every_run_on_the_card_is_a_command_that_eval_takes(monkeypatch, tmp_path, capsys):
    commands = []
    properties = types.SimpleNamespace(name="a card", gcnArchName="gfx950")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(on_mi355x, "FOLDER", on_mi355x.ROOT / "results")
    run = lambda command, **options: commands.append(command) or types.SimpleNamespace(returncode=0, stdout="")  # noqa: E731
    monkeypatch.setattr(on_mi355x.subprocess, "run", run)
    assert on_mi355x.main(["--quick"]) == 0
    evaluations = [command[2:] for command in commands if "eval.py" in command]
    assert len(evaluations) == 3 * 3 + 2
    for arguments in evaluations:
        options = parser().parse_args(arguments)
        assert (on_mi355x.ROOT / options.problem / "task.yml").exists()
        assert options.cases is None or Path(on_mi355x.ROOT / options.cases).exists()
    assert capsys.readouterr().out.count(" right ") == len(evaluations)


def test_the_nvfp4_cases_are_those_of_task_yml_and_every_kernel_of_the_module():
    cases = emulate_nvfp4.all_cases()
    assert len({case.name for case in cases}) == len(cases)
    assert {case.traits for case in cases} == set(emulate_nvfp4.HIP_TRAITS_OF_MODULE)
    assert sum(case.name.startswith("benchmark ") for case in cases) == len(emulate_nvfp4.TASK["benchmarks"])


def test_one_nvfp4_case_is_run_and_shown(capsys):
    assert emulate_nvfp4.main(["--only", "2 buffers, linear: 1 slots"]) == 0
    assert "1 cases, 10 runs, 0 wrong" in capsys.readouterr().out
