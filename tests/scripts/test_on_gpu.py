"""The steps of on_gpu.py: each runs to its end or its limit, and the others follow."""

import sys
from pathlib import Path

import pytest

from scripts import on_gpu
from scripts.on_gpu import Step


@pytest.fixture
def steps(monkeypatch):
    def made(*commands):
        found = tuple(Step(f"step{i}", 20, ("-c", command)) for i, command in enumerate(commands))
        monkeypatch.setattr(on_gpu, "STEPS", found)
        monkeypatch.setattr(on_gpu, "gpu_is_here", lambda: True)

    return made


def test_a_failure_is_named_and_the_next_step_runs(steps, tmp_path, capsys):
    steps("print('half'); raise SystemExit(7)", "open('OUT/seen', 'w'); print('done')")
    assert on_gpu.main(["--out", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "exit code 7" in said
    assert "half" in said
    assert "ok in" in said
    assert (tmp_path / "seen").exists()


def test_a_step_past_its_limit_is_ended_with_its_children(monkeypatch, tmp_path, capsys):
    sleep = "import time; time.sleep(600)"
    child = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {sleep!r}]); {sleep}"
    monkeypatch.setattr(on_gpu, "STEPS", (Step("slow", 1, ("-c", child)),))
    monkeypatch.setattr(on_gpu, "gpu_is_here", lambda: True)
    assert on_gpu.main(["--out", str(tmp_path)]) == 1
    assert "ended after 1 s" in capsys.readouterr().out


def test_without_a_gpu_no_step_runs(steps, monkeypatch, tmp_path, capsys):
    """A skipped GPU test would count as ok, and a CPU's times would lie in files that are named after a GPU."""
    steps("open('OUT/seen', 'w')")
    monkeypatch.setattr(on_gpu, "gpu_is_here", lambda: False)
    assert on_gpu.main(["--out", str(tmp_path)]) == 2
    assert "no GPU on this machine" in capsys.readouterr().err
    assert not (tmp_path / "seen").exists()


def test_an_unknown_step_is_named_with_those_there_are(capsys):
    with pytest.raises(SystemExit) as stop:
        on_gpu.main(["--only", "harness,nothing"])
    assert stop.value.code == 2
    assert "no step is called nothing; there are harness, " in capsys.readouterr().err


def test_every_file_that_a_step_names_exists():
    for step in on_gpu.STEPS:
        for part in step.command:
            if part.endswith(".py"):
                assert Path(on_gpu.ROOT, part).is_file(), f"{step.name}: {part}"
    assert sys.executable
