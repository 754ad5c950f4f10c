"""The bundler: determinism, line numbers, and everything it refuses."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from scripts import bundle
from scripts.bundle import BundleError, Constant, Submission

ROOT = Path(bundle.ROOT)
BANNED = "stre" + "am"


@pytest.fixture
def build(tmp_path):
    """Bundle files given as path -> text; constants are (name, path, key)."""

    def build(files, constants=()):
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(textwrap.dedent(text))
        python = [path for path in files if path.endswith(".py")]
        sections = (*(Constant(*constant) for constant in constants), *python)
        return bundle.build(tmp_path, Submission("board", "GPU", "out.py", sections))

    return build


def run_text(text):
    names: dict = {}
    exec(compile(text, "out.py", "exec"), names)
    return names


def test_committed_submissions_are_current_and_generation_is_deterministic(capsys):
    submissions = bundle.load_manifest(ROOT)
    assert bundle.check(ROOT, submissions) == 0, capsys.readouterr().out
    assert [bundle.build(ROOT, one) for one in submissions] == [bundle.build(ROOT, one) for one in submissions]


def test_directives_stand_on_the_first_lines():
    lines = (ROOT / "submission.py").read_text().splitlines()
    assert lines[:2] == ["#!POPCORN leaderboard amd-mixed-mla", "#!POPCORN gpu MI355X"]
    assert "make submission" in lines[2]


def test_every_line_keeps_its_number_in_its_file():
    lines = (ROOT / "submission.py").read_text().splitlines()
    checked = 0
    for number, line in enumerate(lines, 1):
        place = bundle.origin_of(lines, number)
        path, _, source_number = (place or "").rpartition(":")
        source = (ROOT / path).read_text().splitlines() if path else []
        if line.strip() and int(source_number or 0) in range(1, len(source) + 1):
            embedded = line.partition(' = r"""')[2]  # the first line of a file that is a constant
            original = source[int(source_number) - 1]
            assert original in (line, embedded) or line == f"# {original}"
            checked += 1
    assert checked > 300


def test_imports_between_sections_vanish_without_moving_a_line(build):
    files = {
        "kernels/a.py": "def one():\n    return 1\n",
        "kernels/b.py": """\
            import math
            from kernels.a import (
                one,
            )

            two = one() + math.floor(1.5)
            """,
    }
    text = build(files)
    lines = text.splitlines()
    assert bundle.origin_of(lines, lines.index("two = one() + math.floor(1.5)") + 1) == "kernels/b.py:6"
    assert run_text(text)["two"] == 2


def test_where_names_the_file_and_line(tmp_path, build):
    (tmp_path / "out.py").write_text(build({"kernels/a.py": "x = 1\ny = 2\n"}))
    number = (tmp_path / "out.py").read_text().splitlines().index("y = 2") + 1
    assert bundle.where(tmp_path / "out.py", number) == "kernels/a.py:2"
    assert bundle.where(tmp_path / "out.py", 1) == "out.py:1 (the generated header)"
    with pytest.raises(BundleError, match="lines 1 to"):
        bundle.where(tmp_path / "out.py", 999)


SOURCE = 'line one\n\\n "quoted" \\" %s {x}\nlast'


@pytest.mark.parametrize("text", [SOURCE, '"starts with a quote\n', "\\\n", 'ends with a quote"', "''' '''\n"])
def test_kernel_sources_are_embedded_unchanged(build, text):
    generated = build({"kernels/k.hip": text}, [("K_SOURCE", "kernels/k.hip", None)])
    assert run_text(generated)["K_SOURCE"].rstrip("\n") == textwrap.dedent(text).rstrip("\n")


def test_kernel_sources_keep_their_line_numbers(build):
    lines = build({"kernels/k.hip": SOURCE}, [("K_SOURCE", "kernels/k.hip", None)]).splitlines()
    assert bundle.origin_of(lines, lines.index('\\n "quoted" \\" %s {x}') + 1) == "kernels/k.hip:2"


def test_tables_are_embedded_without_evidence(build):
    table = "problem:\n  H200:\n  - {shape: [1, 2], params: {a: b}, evidence: {median_ns: 5}}\nother: 1\n"
    text = build({"configs/dispatch.yml": table}, [("TABLE", "configs/dispatch.yml", "problem")])
    assert run_text(text)["TABLE"] == {"H200": [{"shape": [1, 2], "params": {"a": "b"}}]}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("x = 1\n", "x = 2\n"),
        ("x: int = 1\n", "def x(): ...\n"),
        ("import json as x\n", "import math as x\n"),
        ("def x(): ...\n", "if 1:\n    try:\n        x = 1\n    except E:\n        pass\n"),
        ("try:\n    pass\nexcept E:\n    x, y = 1, 2\n", "class x: ...\n"),
    ],
)
def test_two_files_cannot_define_the_same_name(build, first, second):
    with pytest.raises(BundleError, match=r"kernels/b.py:1: top-level name `x` is already taken by kernels/a.py:1; rename one"):
        build({"kernels/a.py": first, "kernels/b.py": second})


def test_two_files_may_import_the_same_thing(build):
    assert run_text(build({"kernels/a.py": "import math\n", "kernels/b.py": "import math\nx = math.pi\n"}))["x"] > 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"\n# a {BANNED.title()} here\n", "a.py:2: holds the word"),
        ("x = '\u00b5s'\n", "a.py:1: character .* is not ASCII"),
        ("x = 1\nfrom kernels.b import y\n", "a.py:2: imported name `y` is defined by no earlier section"),
        ("from .b import y\n", "a.py:1: imported name `y` is defined by no earlier section"),
        ("y = 1\nfrom kernels.b import y as z\n", "a.py:2: imported name `y` is renamed"),
        ("def f():\n    from kernels.b import y\n", "a.py:2: only `from kernels.x import name`"),
        ("def f():\n    import kernels.b\n", "a.py:2: only `from kernels.x import name`"),
        ("import kernels\n", "a.py:1: only `from kernels.x import name`"),
        ("x = 1\ny = = 2\n", "a.py:2: invalid syntax"),
        ("#" * 1_000_001, "popcorn takes 1,000,000"),
    ],
)
def test_refusals_name_the_file_and_line(build, text, message):
    with pytest.raises(BundleError, match=message):
        build({"kernels/a.py": text})


def test_a_raw_string_cannot_hold_its_own_end(build):
    with pytest.raises(BundleError, match=r"kernels/k.hip:2: a raw string"):
        build({"kernels/k.hip": 'x\n"""\n'}, [("K", "kernels/k.hip", None)])


def test_a_missing_section_is_named(tmp_path):
    with pytest.raises(BundleError, match=r"kernels/none.py: no such file; kernels/manifest.yml names it"):
        bundle.build(tmp_path, Submission("board", "GPU", "out.py", ("kernels/none.py",)))


def test_a_stale_file_is_reported_with_a_diff(tmp_path, build, capsys):
    build({"kernels/a.py": "x = 1\n"})
    submission = Submission("board", "GPU", "out.py", ("kernels/a.py",))
    (tmp_path / "out.py").write_text(bundle.build(tmp_path, submission).replace("x = 1", "x = 2"))
    assert bundle.check(tmp_path, [submission]) == 1
    out = capsys.readouterr().out
    assert "out.py is not current; run `make submission`" in out
    assert "-x = 2" in out
    assert "+x = 1" in out


def test_the_command_line_reports_errors_in_one_line():
    run = subprocess.run([sys.executable, str(ROOT / "scripts/bundle.py"), "--where", "999999"], capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.startswith("error: submission.py has lines 1 to ")
    assert run.stderr.count("\n") == 1
