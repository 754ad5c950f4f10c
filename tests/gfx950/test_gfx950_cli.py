"""The command line: exit codes, text and JSON, folders, and one clear line for every bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfx950.cli import BAD_INPUT, CLEAN, FINDINGS, main
from gfx950.run_command import DTYPES, parse_argument

pytestmark = pytest.mark.usefixtures("toolchain")

ROOT = Path(__file__).parents[2]

GOOD = "#ifndef FACTOR\n#define FACTOR 2\n#endif\n__global__ void scale(int* p) { p[threadIdx.x] *= FACTOR; }\n"
BAD = '__global__ void broken(int* p) {\n  int x;\n  asm volatile("v_mov_b32 %0, v77" : "=v"(x));\n  p[threadIdx.x] = x;\n}\n'


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "good.hip").write_text(GOOD)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "bad.hip").write_text(BAD)
    (tmp_path / "notes.txt").write_text("not a kernel\n")
    return tmp_path


def run(*arguments: str | Path) -> int:
    return main([str(argument) for argument in arguments])


def test_report_text(folder, capsys):
    assert run("report", folder / "good.hip") == CLEAN
    out = capsys.readouterr().out
    assert "scale" in out
    assert "VGPR" in out


def test_report_json(folder, capsys):
    assert run("report", folder / "good.hip", "--json") == CLEAN
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["files"][0]["kernels"][0]["name"] == "scale"
    assert document["problems"] == []


def test_check_clean_and_with_findings(folder, capsys):
    assert run("check", folder / "good.hip") == CLEAN
    assert run("check", folder / "sub" / "bad.hip") == FINDINGS
    out = capsys.readouterr().out
    assert "bad.hip:3: error:" in out
    assert "1 finding(s)" in out


def test_check_json_of_a_folder(folder, capsys):
    assert run("check", folder, "--json") == FINDINGS
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    by_file = {Path(item["path"]).name: item["findings"] for item in document["files"]}
    assert by_file["good.hip"] == []
    assert (by_file["bad.hip"][0]["check"], by_file["bad.hip"][0]["line"]) == ("undefined-read", 3)


def test_a_bad_file_in_a_folder_does_not_hide_the_others(folder, capsys):
    (folder / "nonsense.hip").write_text("this is not C++\n")
    (folder / "short.co").write_bytes(b"\x7fELF")
    assert run("check", folder) == BAD_INPUT
    captured = capsys.readouterr()
    assert "bad.hip:3" in captured.out
    assert "nonsense.hip does not compile" in captured.err
    assert "short.co: truncated" in captured.err


def test_only_files_are_looked_at_in_a_folder(folder, capsys):
    (folder / "really_a_folder.hip").mkdir()
    assert run("report", folder) == CLEAN
    assert capsys.readouterr().err == ""


def test_a_source_that_another_includes_is_a_part_of_it(folder, capsys):
    """Its errors alone are no errors: `python -m gfx950 report kernels/hip` compiles module.hip, which includes the rest."""
    (folder / "parts").mkdir()
    (folder / "parts" / "body.hip").write_text("NOT_ALONE { *out = FACTOR; }\n")
    whole = '#define NOT_ALONE __global__ void whole(int* out)\n#define FACTOR 3\n#include "parts/body.hip"\n'
    (folder / "whole.hip").write_text(whole)
    assert run("report", folder) == CLEAN
    printed = capsys.readouterr()
    assert "whole.hip:" in printed.out
    assert "body.hip" not in printed.err


def test_sources_that_include_each_other_are_still_looked_at(tmp_path, capsys):
    for name, other in ("ab", "ba"):
        text = f'#ifndef {name}_hip\n#define {name}_hip\n#include "{other}.hip"\n__global__ void {name}() {{}}\n#endif\n'
        (tmp_path / f"{name}.hip").write_text(text)
    assert run("report", tmp_path) == CLEAN
    assert "a.hip:" in capsys.readouterr().out


@pytest.mark.parametrize("folder_of_kernels", ["kernels/hip", "kernels/nvfp4_msa/hip", "kernels"])
def test_the_kernels_of_this_project_are_reported_and_have_no_findings(folder_of_kernels, capsys):
    assert run("report", ROOT / folder_of_kernels) == CLEAN
    assert "no kernels" not in capsys.readouterr().out
    assert run("check", ROOT / folder_of_kernels) == CLEAN


@pytest.mark.parametrize("package", ["elftools", "msgpack", "ml_dtypes"])
def test_a_package_that_is_not_installed_is_one_clear_line(package):
    code = f"import sys, runpy; sys.modules[{package!r}] = None; sys.argv = ['gfx950', 'report', 'x']; "
    code += "runpy.run_module('gfx950', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == BAD_INPUT
    assert done.stderr.startswith(f"gfx950: {package}")
    assert done.stderr.count("\n") == 1
    assert "pip install -e '.[gfx950]'" in done.stderr


def test_a_source_without_kernels_says_so(folder, capsys):
    (folder / "header.hip").write_text("// nothing\n")
    assert run("report", folder / "header.hip") == CLEAN
    assert "header.hip: no kernels" in capsys.readouterr().out


def test_a_cache_that_cannot_be_made_is_one_clear_line(folder, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "notes.txt"))
    assert run("report", folder / "good.hip") == BAD_INPUT
    assert "set XDG_CACHE_HOME to a folder that can be written" in capsys.readouterr().err


def test_disassembly_has_addresses_encodings_and_lines(folder, capsys):
    assert run("disasm", folder / "good.hip") == CLEAN
    out = capsys.readouterr().out
    assert "<scale>:" in out
    assert "good.hip:4" in out
    assert "bf810000" in out  # s_endpgm


def test_defines_reach_the_compiler(folder, capsys):
    assert run("disasm", folder / "good.hip", "-D", "FACTOR=1000003") == CLEAN
    assert hex(1000003) in capsys.readouterr().out


def test_kernel_selects_one(folder, capsys):
    two = folder / "two.hip"
    two.write_text("__global__ void a(int* p) { *p = 1; }\n__global__ void b(int* p) { *p = 2; }\n")
    assert run("report", two, "--kernel", "b", "--json") == CLEAN
    assert [kernel["name"] for kernel in json.loads(capsys.readouterr().out)["files"][0]["kernels"]] == ["b"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "none.hip"], "none.hip: no such file"),
        (["report", "none.co"], "none.co: no such file"),
        (["report", "good.hip", "--kernel", "nope"], "no kernel 'nope'; kernels here: scale"),
        (["report", "good.hip", "--arch", "gfx942"], "--arch gfx942: only gfx950"),
        (["report", "good.hip", "-D", "1x"], "not a macro definition"),
        (["report", "good.hip", "--rocm", "sub"], "hip_runtime.h: no such file"),
        (["check", "notes.txt"], "not a gfx950 code object"),
        (["check", "empty"], "no kernels below this folder"),
        (["disasm", "cut.hsaco"], "cut.hsaco: truncated"),
        (["report", "good.hip", "--workgroup-size", "1025"], "1025 work-items in a workgroup, compiled for at most 1024"),
    ],
)
def test_bad_input_is_one_clear_line(folder, capsys, monkeypatch, arguments, message):
    (folder / "empty").mkdir()
    (folder / "cut.hsaco").write_bytes(b"\x7fELF" + bytes(20))
    monkeypatch.chdir(folder)
    assert run(*arguments) == BAD_INPUT
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


# --- run

ADD = """\
__global__ void add(float* out, const float* in, int n, float scale) {
  if (threadIdx.x < n) out[threadIdx.x] = in[threadIdx.x] * scale;
}
"""


def test_run_computes_and_saves(folder, capsys):
    (folder / "add.hip").write_text(ADD)
    np.save(folder / "in.npy", np.arange(64, dtype=np.float32))
    arguments = ["--block", "64", "--arg", "zeros:f32:64", "--arg", folder / "in.npy", "--arg", "60", "--arg", "0.5"]
    assert run("run", folder / "add.hip", *arguments, "--save", folder / "after.npz") == CLEAN
    out = capsys.readouterr().out
    assert "add: right in" in out
    assert "estimate, not a measurement" in out
    expected = np.arange(64) * 0.5
    expected[60:] = 0
    assert np.array_equal(np.load(folder / "after.npz")["arg0"], expected)


def test_a_result_that_cannot_be_saved_is_one_clear_line(folder, capsys):
    (folder / "add.hip").write_text(ADD)
    arguments = ["--block", "64", *["--arg", "zeros:f32:64"] * 2, "--arg", "60", "--arg", "0.5"]
    assert run("run", folder / "add.hip", *arguments, "--save", folder / "none" / "after.npz") == BAD_INPUT
    assert "after.npz: No such file or directory; name a file" in capsys.readouterr().err


def test_run_reports_findings_as_json(folder, capsys):
    (folder / "add.hip").write_text(ADD)
    arguments = ["--block", "64", "--arg", "zeros:f32:32", "--arg", "random:f32:64", "--arg", "64", "--arg", "1.0"]
    assert run("run", folder / "add.hip", *arguments, "--json") == FINDINGS
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert document["findings"][0]["kind"] == "out-of-bounds"
    assert document["findings"][0]["line"].endswith("add.hip:2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arg", "1"], "1 arguments given, 4 declared"),
        (["--arg", "zeros:f33:4"], "no type f33"),
        (["--arg", "nonsense"], "--arg nonsense: write FILE.npy"),
        (["--arg", "none.npy"], "none.npy"),
        (["--grid", "0"], "must be at least 1"),
        (["--grid", "65536,65536"], "4294967296 workgroups"),
        (["--arg", "zeros:f32:99999999x99999999"], "more than memory holds"),
        (["--arg", "random:f32:9999999999x9999999999x9999999999"], "more than memory holds"),
        (["--arg", "empty.npy"], "--arg empty.npy"),
        (["--arg", "several.npy"], "holds several arrays"),
    ],
)
def test_bad_launches_are_one_clear_line(folder, capsys, monkeypatch, arguments, message):
    (folder / "add.hip").write_text(ADD)
    (folder / "empty.npy").touch()
    np.savez(folder / "several.npz", a=1)
    (folder / "several.npz").rename(folder / "several.npy")
    monkeypatch.chdir(folder)
    full = arguments if "--arg" in arguments else [*arguments, *["--arg", "zeros:f32:64"] * 2, "--arg", "1", "--arg", "1.0"]
    assert run("run", folder / "add.hip", "--block", "64", *full) == BAD_INPUT
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


@given(
    st.sampled_from(sorted(DTYPES)),
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.sampled_from(["zeros", "random", "range"]),
)
def test_argument_texts_make_arrays_of_their_type_and_shape(dtype, shape, kind):
    text = f"{kind}:{dtype}:{'x'.join(map(str, shape))}"
    array = parse_argument(text, np.random.default_rng(0))
    assert array.dtype == np.dtype(DTYPES[dtype])
    assert array.shape == tuple(shape)


@pytest.mark.parametrize(("text", "value"), [("3", 3), ("-1", -1), ("0x10", 16), ("0.5", 0.5), ("1e-3", 1e-3)])
def test_argument_texts_make_numbers(text, value):
    found = parse_argument(text, np.random.default_rng(0))
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["report"],
        ["explode", "x"],
        ["report", "x", "--workgroup-size", "many"],
        ["report", "x", "--workgroup-size", "0"],
        ["report", "x", "--dynamic-lds", "-1"],
        ["run", "x", "--block", "a"],
        ["run", "x", "--block", "64", "--dynamic-lds", "-1"],
        ["run", "x", "--block", "64", "--seed", "-1"],
    ],
)
def test_usage_errors_exit_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == BAD_INPUT
    assert "usage:" in capsys.readouterr().err


def test_no_toolchain_is_one_clear_line(folder, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("GFX950_LLVM", str(tmp_path / "empty"))
    assert run("report", folder / "good.hip") == BAD_INPUT
    assert "make toolchain" in capsys.readouterr().err


def test_as_a_program_with_a_reader_that_leaves(folder):
    """`python -m gfx950 disasm ... | head -1` ends without a traceback."""
    command = f"{sys.executable} -m gfx950 disasm {folder / 'good.hip'} | head -1"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert "<scale>:" in done.stdout
    assert "Traceback" not in done.stderr


def test_help_shows_examples(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "python -m gfx950 check kernels/" in capsys.readouterr().out
