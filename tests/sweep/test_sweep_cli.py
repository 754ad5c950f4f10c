"""The command line: what is refused, with which exit code, in one line."""

import pytest
from small_root import CASE, small_root

from sweep.cli import main


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return small_root(tmp_path_factory.mktemp("root"))


def said(capsys, root, *options):
    code = main(["--root", str(root), "--device", "cpu", "--cases", CASE, *options])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--preset", "fast"), 2, "no such preset; choose one of quick"),
        (("--backend", "cublas"), 2, "has no space for it; it has aiter, cuda, hip, torch, triton"),
        (("--backend", "hip"), 2, "hip is not for"),
        (("--cases", "nowhere.txt"), 2, "No such file"),
        (("--cases", "batchsize 4:"), 113, "is not a case"),
        (("--cases", "batchsize 4: too long for a file's name\n" * 20), 113, "is not a case"),
        (("--cases", "size: 4"), 2, "has no number batchsize, qseqlen, kvseqlen"),
        (("--storage", "sqlite:////nowhere/x.sqlite"), 6, "--storage sqlite:////nowhere/x.sqlite: cannot be used"),
        (("--storage", "nonsense"), 6, "not a database URL"),
        (("--device", "tpu"), 2, "no such device"),
        (("--dry-run", "--spoil"), 2, "each is a run of its own"),
        (("--minutes", "0"), 2, "--minutes 0: has to be more than 0"),
        (("--timeout-s", "-1"), 2, "--timeout-s -1: has to be more than 0"),
        (("--html", "/nowhere/at/all.html"), 2, "not a file in an existing folder"),
        (("--executor", "popcorn"), 2, "leave it out"),
    ],
)
def test_what_cannot_be_done_is_one_line(capsys, root, options, code, message):
    found, _, errors = said(capsys, root, *options)
    assert found == code
    assert message in errors
    assert errors.count("\n") == 1


def test_a_dry_run_says_the_limits(capsys, root):
    _, printed, _ = said(capsys, root, "--dry-run", "--minutes", "2.5")
    assert "at most 2.5 minutes" in printed


def test_a_dry_run_prints_the_space_and_measures_nothing(capsys, root):
    before = sorted(path.name for path in root.rglob("*"))
    code, printed, _ = said(capsys, root, "--dry-run")
    assert code == 0
    assert "1x1x64x16: 4 settings" in printed
    assert "format: bf16, fp8" in printed
    assert sorted(path.name for path in root.rglob("*")) == before


def test_a_dry_run_for_the_leaderboard_s_gpu_needs_no_gpu(capsys, root):
    assert main(["--root", str(root), "--executor", "popcorn", "--preset", "quick", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "MI355X, `gfx950` in dispatch.yml" in printed
    assert printed.count(" settings; now ") == 8


def test_contradictory_constraints_are_explained(capsys, tmp_path):
    root = small_root(tmp_path)
    path = root / "configs" / "sweep.yml"
    path.write_text(path.read_text().replace("torch:", "torch:\n    constraints: [chunk_tokens > 64, format == 'bf16']", 1))
    code, _, errors = said(capsys, root, "--dry-run")
    assert code == 2
    assert "`chunk_tokens > 64` leaves 0, `format == 'bf16'` leaves 2" in errors


def test_a_spoiled_table_holds_other_settings(capsys, tmp_path):
    root = small_root(tmp_path, entry={"format": "bf16", "chunk_tokens": 64})
    code, printed, _ = said(capsys, root, "--spoil")
    assert code == 0
    assert "spoiled: on purpose" in (root / "configs" / "dispatch.yml").read_text()
    assert "+    params: {chunk_tokens: 32, format: fp8}" in printed


def test_ray_that_is_missing_is_said(capsys, root, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    code, _, errors = said(capsys, root, "--executor", "ray")
    assert code == 2
    assert "Ray is not installed" in errors


def test_an_unreachable_server_ends_with_its_own_code(capsys, root, monkeypatch, tmp_path):
    monkeypatch.setenv("POPCORN_API_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("sweep.popcorn_run.MAX_TRIES", 1)
    monkeypatch.setattr("sweep.popcorn_run.FIRST_WAIT_S", 0.0)
    options = ["--root", str(root), "--executor", "popcorn", "--preset", "quick", "--backend", "aiter"]
    assert main([*options, "--storage", f"sqlite:///{tmp_path / 's.sqlite'}"]) == 69
    errors = capsys.readouterr().err
    assert "no answer from http://127.0.0.1:9" in errors
    assert "Traceback" not in errors
