"""What becomes of a run whose output cannot be written: one line or none, never a traceback."""

import errno
import os
import subprocess
import sys
from pathlib import Path

from harness import cli

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "support" / "problems" / "vectoradd"
OPTIONS = ["--problem", str(FOLDER), "--device", "cpu", "--mode", "test"]


def test_a_reader_that_has_gone_ends_the_run_in_silence():
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    run = subprocess.run(
        [sys.executable, str(ROOT / "eval.py"), *OPTIONS], stdout=write_fd, stderr=subprocess.PIPE, text=True, timeout=600
    )
    os.close(write_fd)
    assert (run.returncode, run.stderr) == (130, "")


def test_a_result_file_that_cannot_be_written_is_one_line(tmp_path, monkeypatch, capsys):
    def full(path, text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("harness.report.writer.replace_file", full)
    assert cli.main([*OPTIONS, "--json", str(tmp_path / "out.json")]) == 2
    assert capsys.readouterr().err == f"error: --json {tmp_path / 'out.json'}: cannot be written: No space left on device\n"


def test_two_views_in_one_file_are_a_usage_error(tmp_path, capsys):
    path = str(tmp_path / "out")
    assert cli.main([*OPTIONS, "--json", path, "--html", path]) == 2
    assert capsys.readouterr().err == f"error: --json {path}, --html {path}: every view needs a file of its own\n"
    assert not list(tmp_path.iterdir())
