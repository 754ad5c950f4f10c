"""A sweep of the torch backend on this machine's CPU, from the command line to the generated submission."""

import ast
import re
import subprocess
import sys

import pytest
import yaml
from small_root import CASE, ROOT, SHAPE, small_root

from popcorn.rules import check_submission
from scripts import bundle
from sweep.submission import kernels_digest, submission_text
from sweep.variant import Shape, Variant

EXPLORING = re.compile(r"exploring(?! \()")  # progress; a remark names "the fastest while exploring (... us)"


def sweep(root, *options):
    command = [sys.executable, "-m", "sweep", "--root", str(root), "--device", "cpu", "--cases", CASE, *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A root whose entry cannot run, after a sweep: whatever the machine's noise, the entry must change."""
    root = small_root(tmp_path_factory.mktemp("swept"), entry={"format": "bf16", "chunk_tokens": 0})
    return root, sweep(root)


def test_an_entry_that_cannot_run_is_replaced(swept):
    root, run = swept
    assert run.returncode == 0, run.stderr
    entries = yaml.safe_load((root / "configs" / "dispatch.yml").read_text())["amd-mixed-mla"]["cpu"]
    assert len(entries) == 1
    assert entries[0]["params"]["chunk_tokens"] in (32, 64)
    assert entries[0]["evidence"]["median_ns"] > 0
    assert (root / entries[0]["evidence"]["samples"]).is_file()


def test_the_difference_is_shown_and_comments_stay(swept):
    root, run = swept
    assert "+++ b/dispatch.yml" in run.stdout
    assert "-    params: {'format': 'bf16', 'chunk_tokens': 0}" in run.stdout
    assert "backend: torch  # said by hand" in (root / "configs" / "dispatch.yml").read_text()
    original = (ROOT / "configs" / "dispatch.yml").read_text()
    assert (root / "configs" / "dispatch.yml").read_text().startswith(original)


def test_the_submission_is_regenerated(swept):
    root, _ = swept
    manifest = next(entry for entry in bundle.load_manifest(root) if entry.leaderboard == "amd-mixed-mla")
    assert (root / "submission.py").read_text() == bundle.build(root, manifest)


def test_progress_and_report_are_there(swept):
    root, run = swept
    assert EXPLORING.search(run.stdout)
    assert "100%" in run.stdout
    assert "changed: the entry does not run" in run.stdout or "->" in run.stdout
    page = (root / "results" / "sweep" / "cpu.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "1x1x64x16" in page


def test_the_same_command_again_measures_nothing(swept):
    root, _ = swept
    before = (root / "configs" / "dispatch.yml").read_bytes()
    run = sweep(root)
    assert run.returncode == 0, run.stderr
    assert "stays as it is" in run.stdout
    assert not EXPLORING.search(run.stdout)
    assert (root / "configs" / "dispatch.yml").read_bytes() == before


def test_changed_kernels_refuse_the_old_study(swept):
    root, _ = swept
    path = root / "kernels" / "torch_backend.py"
    text = path.read_text()
    path.write_text(text + "\n# another version\n")
    try:
        run = sweep(root)
    finally:
        path.write_text(text)
    assert run.returncode == 7
    assert "kernels was" in run.stderr
    assert "--restart" in run.stderr
    assert "Traceback" not in run.stderr


def test_the_kernels_version_does_not_depend_on_the_table(tmp_path):
    plain = small_root(tmp_path / "plain")
    edited = small_root(tmp_path / "edited", entry={"format": "bf16", "chunk_tokens": 64})
    assert kernels_digest(plain, "amd-mixed-mla") == kernels_digest(edited, "amd-mixed-mla")


def test_a_submission_with_variants_is_one_that_a_server_takes():
    variants = {Shape(4, 1, 1024, 16): Variant("hip", {"num_kv_splits": 4, "setprio": True})}
    text = submission_text(ROOT, "amd-mixed-mla", variants)
    assert check_submission(text.encode(), "submission.py") == []
    ast.parse(text)


def test_the_named_variant_serves_the_call(tmp_path):
    """The tail in this process: variants take the table's place, and plans of different variants do not mix."""
    path = tmp_path / "swept_submission.py"
    served = {Shape(*SHAPE): Variant("torch", {"format": "fp8", "chunk_tokens": 16})}
    path.write_text(submission_text(ROOT, "amd-mixed-mla", served))
    code = (
        "import sys; sys.path[:0] = [sys.argv[1], sys.argv[2]]\n"
        "import reference, swept_submission as s\n"
        "from sweep.submission import with_choice\n"
        "from sweep.variant import Variant\n"
        "data = reference.generate_input(1, 1, 64, 3, device='cpu')\n"
        "def said(d):\n"
        "    out = s.custom_kernel(d); v = reference.judge_strict(d, out); p = s.describe(d)['params']\n"
        "    return v['ok'], v['format'], p['format'], p['chunk_tokens']\n"
        "print(s.describe(with_choice(data, Variant('torch', {'format': 'fp8', 'chunk_tokens': 8})))['params'])\n"
        "print(said(data))\n"
        "print(said(with_choice(data, Variant('torch', {'format': 'mxfp4', 'chunk_tokens': 32}))))\n"
        "print(said(with_choice(data, None)))\n"
        "try: s.custom_kernel(with_choice(data, Variant('hip', {})))\n"
        "except s.BackendError as e: print(e)\n"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path), str(ROOT)], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    uncalled, fp8, mxfp4, default, missing = run.stdout.splitlines()
    assert uncalled == "{'format': 'fp8', 'chunk_tokens': 8}"
    assert fp8 == "(True, 'fp8', 'fp8', 16)"
    assert mxfp4 == "(True, 'mxfp4', 'mxfp4', 32)"
    assert default.startswith("(True, 'bf16', 'bf16'")
    assert "hip is not among the backends" in missing
