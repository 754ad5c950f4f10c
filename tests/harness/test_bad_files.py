"""Files, options and machines that cannot be used: one clear line and the documented exit code, before anything runs."""

from pathlib import Path

import pytest
import torch

from harness.cli import main
from harness.result import read_result

FOLDER = Path(__file__).parent / "doubling"
GENERATED = """import torch
# >>> kernels/entry.py
import task


def custom_kernel(data):
    return data[0] * 2
# >>> kernels/broken.py
value = 1
{line}
"""


def run(*options: str) -> int:
    return main(["--problem", str(FOLDER), "--device", "cpu", "--mode", "test", "--timeout-s", "300", *options])


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "submission.py"
    path.write_text(text)
    return path


# what the file holds -> parts of what is said
UNLOADABLE = {
    "raises": (GENERATED.format(line="raise ValueError('no good')"), ["ValueError: no good", "kernels/broken.py:2"]),
    "imports": (
        GENERATED.format(line="import missing_module"),
        ["ModuleNotFoundError", "missing_module", "kernels/broken.py:2"],
    ),
    "syntax": (GENERATED.format(line="def f(:"), ["SyntaxError", "kernels/broken.py:2"]),
    "compile": (
        GENERATED.format(line="raise RuntimeError('Error building extension\\nnvcc: expected a ;')"),
        ["error: submission.py: RuntimeError: Error building extension\n", "\nnvcc: expected a ;\n"],
    ),
    "no_entry": ("value = 1\n", ["submission.py: defines no function custom_kernel(data)"]),
    "exits": ("import sys\nsys.exit(3)\n", ["called sys.exit(3)"]),
    "hard_exit": ("import os\nos._exit(7)\n", ["exit status 7"]),
    "segfault": ("import ctypes\nctypes.string_at(0)\n", ["SIGSEGV", "submission.py:2"]),
    "hangs": ("import time\ntime.sleep(1e6)\n", ["no answer within 9 s"]),
    "finds_reference": ("import reference\n", ["ModuleNotFoundError"]),
}


@pytest.mark.parametrize("name", UNLOADABLE)
def test_submission_that_does_not_load(tmp_path, capsys, name):
    text, parts = UNLOADABLE[name]
    hurry = ["--timeout-s", "9"] if name == "hangs" else []
    assert run("--submission", str(written(tmp_path, text)), *hurry) == 3
    said = capsys.readouterr().err
    assert said.startswith("error: submission.py: ")
    assert all(part in said for part in parts), said
    assert "harness/" not in said


def test_a_submission_that_does_not_load_is_called_what_its_author_calls_it(tmp_path, capsys):
    """In the worker's folder every submission is submission.py; there may be another file of that name."""
    path = tmp_path / "my_kernel.py"
    path.write_text("def custom_kernel(data:\n")
    assert run("--submission", str(path)) == 3
    assert capsys.readouterr().err.startswith("error: my_kernel.py: SyntaxError: '(' was never closed")


BAD_OPTIONS = {
    "no_submission": (["--submission", "/no/such/file.py"], 3, "no such submission file"),
    "no_problem": (["--problem", "/no/such/folder"], 2, "no such folder"),
    "no_case_file": (["--cases", "no_such_set"], 2, "--cases no_such_set: No such file or directory; use official, smoke"),
    "bad_case": (["--cases", "size: 8; seed 1"], 113, "--cases, line 1: 'seed 1' is not a case"),
    "refused_case": (["--cases", "size: 0; seed: 1"], 113, "size is 0; at least 1"),
    "unknown_key": (["--cases", "size: 8; seed: 1; colour: 2"], 113, "colour"),
    "no_gpu": (["--device", "cuda:17"], 110, "torch sees"),
    "no_device": (["--device", "tpu"], 2, "use cpu, cuda or cuda:N"),
    "official_policy": (["--policy", "official"], 2, "needs a device with 70 GiB"),
    "budget_of_official": (["--policy", "official", "--budget-s", "1"], 2, "belongs to --policy robust"),
    "json": (["--json", "/no/such/folder/x.json"], 2, "not a file in an existing folder"),
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_option_that_cannot_be_used(capsys, name):
    options, code, part = BAD_OPTIONS[name]
    assert run(*options) == code
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert part in said


@pytest.mark.parametrize(
    "options", [["--mode", "race"], ["--backend", "fpga"], ["--policy", "kind"], ["--budget-s", "-1"], ["--pdf", "x"]]
)
def test_unknown_choice_is_a_usage_error(capsys, options):
    with pytest.raises(SystemExit) as caught:
        run(*options)
    assert caught.value.code == 2
    assert options[0] in capsys.readouterr().err


def test_case_file_names_the_line(tmp_path, capsys):
    path = tmp_path / "cases.txt"
    path.write_text("size: 8; seed: 1\nsize: 8; seed: 1.5\n")
    assert run("--cases", str(path)) == 113
    assert f"{path}, line 2" in capsys.readouterr().err


def test_empty_case_file(tmp_path, capsys):
    path = tmp_path / "cases.txt"
    path.write_text("")
    assert run("--cases", str(path)) == 113
    assert "holds no case" in capsys.readouterr().err


def test_malformed_yaml_names_the_line(tmp_path, capsys):
    (tmp_path / "task.yml").write_text("files:\n  - {name: a, source: b\nlang: py\n")
    assert run("--problem", str(tmp_path)) == 2
    assert "task.yml, line" in capsys.readouterr().err


def test_forced_backend_that_is_missing(tmp_path, capsys):
    text = "class BackendError(RuntimeError): pass\ndef custom_kernel(data):\n    raise BackendError('needs a GPU; use auto')\n"
    assert run("--submission", str(written(tmp_path, text)), "--backend", "triton") == 3
    assert capsys.readouterr().err == "error: --backend triton: needs a GPU; use auto\n"


def test_backend_reaches_the_worker_and_secrets_do_not(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("POPCORN_SEED", "42")
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    text = """import os, sys
def custom_kernel(data):
    assert os.environ["KERNELPROOF_BACKEND"] == "torch"
    assert not {"POPCORN_SEED", "GITHUB_TOKEN"} & set(os.environ)
    assert sorted(os.listdir()) == ["submission.py", "task.py"], os.listdir()
    assert not any("seed" in argument for argument in sys.argv)
    return data[0] * 2
"""
    assert run("--submission", str(written(tmp_path, text)), "--backend", "torch", "--seed", "42") == 0


def test_the_secret_seed_stays_out_of_the_result(tmp_path):
    json = tmp_path / "result.json"
    assert run("--cases", "size: 8; seed: 1", "--seed", "987654321", "--json", str(json)) == 0
    (case,) = read_result(json).cases
    assert case.spec == {"size": 8, "seed": 1}
    assert "987654321" not in json.read_text()


def test_smoke_cases_are_the_default_on_a_cpu_and_say_so(capsys):
    assert run() == 0
    said = capsys.readouterr().out
    assert "These are the smoke cases" in said
    assert "--cases official" in said


def test_gpu_without_gpu(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert run("--device", "cuda") == 110
    assert "use --device cpu" in capsys.readouterr().err
