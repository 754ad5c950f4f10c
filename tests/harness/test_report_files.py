"""Reports as files: rewritten whole after every case, and made from a saved Result by the command line."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from report_results import EVERY_STATUS, H200

from harness.cli import main
from harness.errors import UsageError
from harness.report import RENDERERS
from harness.report.writer import FileWriter
from harness.result import State, read_result, result_text, write_result

ROOT = Path(__file__).parent.parent.parent


def harness(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harness", *map(str, words)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def saved(tmp_path) -> Path:
    path = tmp_path / "result.json"
    write_result(H200, path)
    return path


def test_the_file_follows_the_run(tmp_path):
    path = tmp_path / "result.json"
    writer = FileWriter("--json", path, result_text)
    running = replace(EVERY_STATUS, state=State.RUNNING, cases=())
    writer.started(running)
    assert read_result(path) == running
    for done in range(1, 3):
        writer.case_done(replace(running, cases=EVERY_STATUS.cases[:done]))
        assert len(read_result(path).cases) == done
    writer.finished(EVERY_STATUS)
    assert read_result(path) == EVERY_STATUS


@pytest.mark.parametrize("name", RENDERERS)
def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch, name):
    path = tmp_path / "report"
    writer = FileWriter(f"--{name}", path, RENDERERS[name])
    writer.started(H200)
    before = path.read_text(encoding="utf-8")
    monkeypatch.setattr("harness.files.os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(UsageError, match=f"--{name} .*report: cannot be written: No space left on device"):
        writer.finished(EVERY_STATUS)
    assert path.read_text(encoding="utf-8") == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["report"]


def test_a_run_writes_every_view(tmp_path):
    paths = {name: tmp_path / name for name in ("json", *RENDERERS)}
    folder = ROOT / "tests" / "support" / "problems" / "vectoradd"
    options = ["--problem", str(folder), "--device", "cpu", "--mode", "test"]
    assert main([*options, *(word for name, path in paths.items() for word in (f"--{name}", str(path)))]) == 0
    result = read_result(paths["json"])
    assert result.ok
    for name, render in RENDERERS.items():
        assert paths[name].read_bytes().decode() == render(result)


def test_a_folder_that_is_missing_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"--html .*nowhere/a\.html: cannot be written: No such file or directory"):
        FileWriter("--html", tmp_path / "nowhere" / "a.html", RENDERERS["html"]).write(H200)


def test_report_writes_what_is_asked_for(saved, tmp_path):
    paths = {name: tmp_path / f"report.{name}" for name in RENDERERS}
    ran = harness("report", saved, *(word for name, path in paths.items() for word in (f"--{name}", path)))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    for name, path in paths.items():
        assert path.read_bytes().decode() == RENDERERS[name](H200)


def test_report_prints_markdown(saved):
    ran = harness("report", saved)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, RENDERERS["markdown"](H200), "")


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "cannot be read as JSON"), ("{", "cannot be read as JSON"), ("{}", "not a Result with schema_version 1")],
)
def test_a_file_that_is_no_result_is_one_clear_line(tmp_path, text, message):
    path = tmp_path / "bad.json"
    if text is not None:
        path.write_text(text)
    ran = harness("report", path)
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: ")
    assert message in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_reports_need_no_torch(saved):
    code = "import sys; sys.modules['torch'] = None; from harness.__main__ import main; sys.exit(main(['report', sys.argv[1]]))"
    ran = subprocess.run([sys.executable, "-c", code, str(saved)], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
