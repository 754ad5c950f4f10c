"""`python -m harness compare` and `history`: what they say, their exit codes, one line for every mistake."""

import json
from dataclasses import replace

import pytest
from terminal_results import H200

from harness.__main__ import main
from harness.compare_saved import compare_results
from harness.errors import CannotCompare
from harness.history import History
from harness.result import CaseResult, Status, result_from_json, write_result
from harness.stats import summarize


def scaled(factor: float, cases=H200.cases):
    """The same run with every sample multiplied."""
    timings = [summarize([round(factor * ns) for ns in case.timing.samples_ns]) for case in cases if case.timing]
    return replace(H200, cases=tuple(replace(case, timing=timing) for case, timing in zip(cases, timings, strict=True)))


@pytest.fixture
def files(tmp_path):
    def write(name, result):
        write_result(result, tmp_path / name)
        return str(tmp_path / name)

    return write


def test_a_faster_run(files, capsys):
    assert main(["compare", files("a.json", H200), files("b.json", scaled(0.8))]) == 0
    said = capsys.readouterr().out
    assert said.count("faster") == 9
    assert "faster than submission.py: 0.800 x its time" in said
    assert "these runs were not interleaved" in said
    assert "\x1b" not in said


@pytest.mark.parametrize(("option", "code"), [([], 0), (["--fail-on-regression"], 4)])
def test_a_slower_run(files, capsys, option, code):
    assert main(["compare", *option, files("a.json", H200), files("b.json", scaled(1.2))]) == code


def test_differences_between_the_runs_are_named():
    other = replace(H200, policy="official", device=replace(H200.device, name="NVIDIA B200", driver="1"))
    _, remarks = compare_results(H200, other)
    assert "the device differs: NVIDIA H200 here, NVIDIA B200 in the baseline" in remarks
    assert "the policy differs: robust here, official in the baseline" in remarks
    assert len(remarks) == 4


def test_cases_are_matched_by_their_keys():
    crashed = CaseResult(dict(H200.cases[2].spec), Status.CRASHED, "gone")
    this, other = replace(H200, cases=(H200.cases[1], H200.cases[0])), replace(H200, cases=(*H200.cases[:1], crashed))
    compared, remarks = compare_results(this, other)
    assert [case.spec for case in compared.cases] == [H200.cases[0].spec]
    assert compared.comparison is not None
    assert remarks[1:] == ["4 x 1 x 8192: not in the baseline", "32 x 1 x 1024: only in the baseline"]
    assert compared.comparison.interleaved is False


def test_a_case_without_a_time():
    crashed = CaseResult(dict(H200.cases[0].spec), Status.CRASHED, "gone")
    _, remarks = compare_results(H200, replace(H200, cases=(crashed, *H200.cases[1:])))
    assert "4 x 1 x 1024: the baseline has no time for it" in remarks


def test_nothing_in_common(files, capsys):
    other = replace(H200, cases=(replace(H200.cases[0], spec={"size": 1}),))
    with pytest.raises(CannotCompare):
        compare_results(H200, other)
    assert main(["compare", files("a.json", H200), files("b.json", other)]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: no case can be compared; measure both with the same --cases (size 1: not in the baseline; ")
    assert told.endswith("; and 6 more)\n")
    assert told.count("\n") == 1


def test_the_reason_why_nothing_can_be_compared_is_told(files, capsys):
    """The same cases, but too few samples of one side: no word that the cases differ."""
    few = replace(H200, cases=tuple(replace(case, timing=summarize([10_000] * 4)) for case in H200.cases))
    assert main(["compare", files("a.json", H200), files("b.json", few)]) == 2
    told = capsys.readouterr().err
    assert "4 x 1 x 1024: has 4 samples" in told
    assert "raise --budget-s" in told
    assert told.count("\n") == 1


def test_a_file_that_is_no_result(files, tmp_path, capsys):
    (tmp_path / "x.json").write_text("{}")
    assert main(["compare", files("a.json", H200), str(tmp_path / "x.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_history(tmp_path, capsys):
    path = tmp_path / "h.sqlite"
    for factor in (1.0, 0.9):
        History(path).add(scaled(factor))
    assert main(["history", "--file", str(path), "--problem", "amd-mixed-mla", "--device", "H200", "--limit", "5"]) == 0
    said = capsys.readouterr().out
    assert "amd-mixed-mla  NVIDIA H200  benchmark, robust, official cases" in said
    assert said.count("8 of 8") == 2


def test_history_shows_one_run_as_json(tmp_path, capsys):
    path = tmp_path / "h.sqlite"
    number = History(path).add(H200)
    assert main(["history", "--file", str(path), "--show", str(number)]) == 0
    assert result_from_json(json.loads(capsys.readouterr().out)) == H200


@pytest.mark.parametrize("limit", ["0", "-1", "many"])
def test_a_limit_that_is_none(limit, capsys):
    with pytest.raises(SystemExit):
        main(["history", f"--limit={limit}"])
    assert "is not a number of runs" in capsys.readouterr().err


def test_no_history_yet(tmp_path, capsys):
    assert main(["history", "--file", str(tmp_path / "none.sqlite")]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'none.sqlite'}: no such file; `eval.py --record` makes it\n"


def test_no_such_runs(tmp_path, capsys):
    History(tmp_path / "h.sqlite").add(H200)
    assert main(["history", "--file", str(tmp_path / "h.sqlite"), "--problem", "other"]) == 0
    assert capsys.readouterr().out == "no such runs\n"
