"""task.yml: every public key, its default, its type; unknown ones and faults of syntax name their line."""

import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from popcorn.cases import Case
from popcorn.taskfile import RANKINGS, TEMPLATE_KINDS, TaskFileError, load_task_file, parse_task_file

MINIMAL = """\
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "eval.py", "source": "../eval.py"}
lang: py
description: Add.
config:
  main: eval.py
"""

words = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
specs = st.lists(st.dictionaries(words, st.integers(-(2**40), 2**40) | words | st.booleans(), min_size=1), max_size=4)
optional = st.fixed_dictionaries(
    {},
    optional={
        "tests": specs,
        "benchmarks": specs,
        "test_timeout": st.integers(1, 10**5),
        "benchmark_timeout": st.integers(1, 10**5),
        "ranked_timeout": st.integers(1, 10**5),
        "ranking_by": st.sampled_from(RANKINGS),
        "libraries": st.lists(words),
        "seed": st.integers() | st.none(),
        "gpus": st.lists(words),
        "templates": st.dictionaries(st.sampled_from(TEMPLATE_KINDS), words),
    },
)


def task(text):
    return parse_task_file(text, "task.yml")


@given(optional)
def test_every_key_comes_back(keys):
    parsed = task(yaml.safe_dump({**yaml.safe_load(MINIMAL), **keys}, sort_keys=False))
    for key in ("tests", "benchmarks"):
        assert getattr(parsed, key) == tuple(Case.from_spec(spec) for spec in keys.get(key, []))
    for key in ("libraries", "gpus"):
        assert getattr(parsed, key) == tuple(keys.get(key, ()))
    for key in ("test_timeout", "benchmark_timeout", "ranked_timeout"):
        assert getattr(parsed, key + "_s") == keys.get(key, 180)
    assert parsed.ranking_by == keys.get("ranking_by", "last")
    assert (parsed.seed, parsed.templates) == (keys.get("seed"), keys.get("templates", {}))


def test_the_required_keys():
    parsed = task(MINIMAL)
    assert parsed.files == {"submission.py": "@SUBMISSION@", "eval.py": "../eval.py"}
    assert (parsed.lang, parsed.description, parsed.main, parsed.multi_gpu) == ("py", "Add.", "eval.py", False)
    for key in ("files", "lang", "description", "config"):
        rest = {name: value for name, value in yaml.safe_load(MINIMAL).items() if name != key}
        with pytest.raises(TaskFileError, match=f"missing key '{key}'"):
            task(yaml.safe_dump(rest))


def test_yaml_booleans_reach_the_case_as_a_runner_writes_them():
    case = task(MINIMAL + 'tests:\n  - {"a": true, "b": "true", "c": FALSE, "d": x}\n').tests[0]
    assert case.text == "a: True; b: true; c: False; d: x"
    assert case.spec == {"a": "True", "b": True, "c": "False", "d": "x"}


def test_the_cases_of_a_mode_are_those_that_a_runner_hands_over():
    text = MINIMAL + "tests: [{n: 1}]\nbenchmarks: [{n: 2}, {n: 3}]\n"
    assert [case.spec["n"] for case in task(text).cases("test")] == [1]
    for mode in ("benchmark", "leaderboard", "profile"):
        assert [case.spec["n"] for case in task(text).cases(mode)] == [3]
        for ranking in ("mean", "geom"):
            assert [case.spec["n"] for case in task(text + f"ranking_by: {ranking}\n").cases(mode)] == [2, 3]
    assert task(MINIMAL).cases("benchmark") == ()


def test_the_timeout_of_a_mode():
    parsed = task(MINIMAL + "test_timeout: 1\nbenchmark_timeout: 2\nranked_timeout: 3\n")
    assert [parsed.timeout_s(mode) for mode in ("test", "benchmark", "profile", "leaderboard")] == [1, 2, 2, 3]


def test_a_multi_gpu_task_needs_world_size_everywhere():
    text = MINIMAL + "multi_gpu: true\ntests: [{n: 1, world_size: 8}]\n"
    assert task(text).multi_gpu
    with pytest.raises(TaskFileError, match=r"line 11: benchmarks\[1\]: .*world_size"):
        task(text + "benchmarks: [{n: 1, world_size: 8},\n  {n: 2}]\n")


def test_a_cuda_task_and_a_public_servers_validation_are_read():
    cuda = MINIMAL.replace("lang: py", "lang: cu").replace("main: eval.py", 'sources: ["eval.cu"]\n  defines: {A: 1}')
    assert (task(cuda).lang, task(cuda).main) == ("cu", None)
    assert task(MINIMAL + "validation: {version: v1, timeout: 900, shapes: [{n: 1}]}\n") == task(MINIMAL)


@pytest.mark.parametrize(
    ("text", "line", "fault"),
    [
        (MINIMAL + "tests: []\nspeed: 1\n", 9, "unknown key 'speed'"),
        (MINIMAL + "seed: 1\nseed: 2\n", 9, "'seed' stands twice"),
        (MINIMAL + "tests: [\n", 9, "not valid YAML"),
        (MINIMAL + "tests: {n: 1\nseed: 2\n", 9, "not valid YAML: .* .in what begins in line 8"),
        (MINIMAL + "tests:\n\t- {n: 1}\n", 9, "not valid YAML"),
        (MINIMAL + "gpus: !!python/object:os.system x\n", 8, "not valid YAML"),
        (MINIMAL + "seed: *nowhere\n", 8, "not valid YAML"),
        (MINIMAL + "tests:\n  - n: 1\n  - n: 1.5\n", 10, "tests\\[1\\].n: .* not 1.5"),
        (MINIMAL + "tests: [{n: [1]}]\n", 8, "must be an integer, a word or a boolean, not a list"),
        (MINIMAL + "tests: [{n: null}]\n", 8, "not nothing"),
        (MINIMAL + "tests: [{n: two words}]\n", 8, "two words"),
        (MINIMAL + "tests: [{'a b': 1}]\n", 8, "a b"),
        (MINIMAL + "tests: [{}]\n", 8, "at least one key"),
        (MINIMAL + "tests: {n: 1}\n", 8, "tests: must be a list, not a mapping"),
        (MINIMAL + "tests: [[1]]\n", 8, "must be a mapping, not a list"),
        (MINIMAL + "ranking_by: median\n", 8, "must be one of last, mean, geom, not 'median'"),
        (MINIMAL + "test_timeout: 0\n", 8, "at least 1, not 0"),
        (MINIMAL + "test_timeout: soon\n", 8, "must be an integer, not 'soon'"),
        (MINIMAL + "test_timeout: true\n", 8, "must be an integer, not True"),
        (MINIMAL + "multi_gpu: 1\n", 8, "must be true or false, not 1"),
        (MINIMAL + "gpus: H100\n", 8, "must be a list, not 'H100'"),
        (MINIMAL + "gpus: [1]\n", 8, "gpus\\[0\\]: must be text, not 1"),
        (MINIMAL + "templates: {Mojo: x}\n", 8, "unknown key 'Mojo'; known are CUDA"),
        (MINIMAL + "seed: 2026-02-31\n", 8, "day"),
        (MINIMAL.replace("lang: py", "lang: rust"), 4, "must be one of py, cu"),
        (MINIMAL.replace("Add.", "''"), 5, "description: must not be empty"),
        (MINIMAL.replace("main: eval.py", "main: other.py"), 7, "'other.py' is not among `files`"),
        (MINIMAL.replace("main: eval.py", "main: eval.py\n  flags: 1"), 8, "unknown key 'flags'"),
        (MINIMAL.replace('"../eval.py"', '"/etc/passwd"'), 3, "relative to task.yml"),
        (MINIMAL.replace('"eval.py"', '"../eval.py"'), 3, "plain file name"),
        (MINIMAL.replace('"eval.py"', '".."'), 3, "plain file name"),
        (MINIMAL.replace('"eval.py"', '"submission.py"'), 3, "listed twice"),
        (MINIMAL.replace("@SUBMISSION@", "submission.py"), 2, "no file has the source @SUBMISSION@"),
        (MINIMAL.replace(', "source": "../eval.py"', ""), 3, "missing key 'source'"),
        ("- a\n", 1, "must be a mapping, not a list"),
        ("just text\n", 1, "must be a mapping, not 'just text'"),
    ],
)
def test_a_fault_names_its_line_and_says_what_is_allowed(text, line, fault):
    with pytest.raises(TaskFileError, match=rf"^task.yml, line {line}: .*{fault}") as caught:
        task(text)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda data: data.decode("latin-1")))
def test_no_text_whatever_raises_anything_else(text):
    with pytest.raises(TaskFileError):
        task(text)
    with pytest.raises(TaskFileError):
        task(MINIMAL + "x: " + text)


def test_a_document_that_contains_itself_is_an_error():
    with pytest.raises(TaskFileError, match="contains itself"):
        task("&a [*a]")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(TaskFileError, match="cannot be read: No such file"):
        load_task_file(tmp_path / "task.yml")
    (tmp_path / "task.yml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(TaskFileError, match="not UTF-8"):
        load_task_file(tmp_path / "task.yml")
    (tmp_path / "task.yml").write_text(MINIMAL + "foo: 1\n")
    with pytest.raises(TaskFileError, match=re.escape(f"{tmp_path / 'task.yml'}, line 8")):
        load_task_file(tmp_path / "task.yml")
