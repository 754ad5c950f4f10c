"""Result v1: illegal records cannot be built, JSON is lossless and strict, files are replaced whole."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import result as schema
from harness.errors import Exit, RecordError
from harness.result import (
    CaseResult,
    Clocks,
    Device,
    Floor,
    Official,
    Peaks,
    Profile,
    ProfileRow,
    Result,
    Score,
    State,
    Status,
    Strict,
    Submission,
    Timing,
    read_result,
    result_from_json,
    result_to_json,
    score_of,
    write_result,
)

TIMING = Timing(3.0, (2.0, 4.0), 3.0, 0.5, 1.0, 2.0, 4.0, 3, (2, 3, 4))
RIGHT, WRONG = Official(True), Official(False, "values differ")
RESULT = Result(
    1, "toy", "benchmark", "robust", "official", ("eval.py",), "2026-01-01T00:00:00+00:00", "0.1.0", ("process",),
    Submission("submission.py", "00", 10), Device("some CPU", "cpu", "x86_64"),
)  # fmt: skip

ints, floats, texts = st.integers(0, 2**60), st.floats(0, 1e15), st.text(max_size=12)
optional_floats = st.none() | st.floats(allow_nan=False)
json_scalars = st.booleans() | st.integers(-(2**60), 2**60) | texts
details = st.dictionaries(texts, json_scalars | st.lists(json_scalars, max_size=3), max_size=3)
timings = st.builds(
    lambda samples, low, value: Timing(value, (low, value), value, low, low, low, value, len(samples), tuple(samples)),
    st.lists(ints, min_size=1, max_size=5), floats, floats,
)  # fmt: skip
stricts = st.builds(
    Strict,
    st.just(True),
    texts,
    st.none() | texts,
    optional_floats,
    optional_floats,
    optional_floats,
    st.none() | ints,
    details,
)
floors = st.builds(Floor, optional_floats, optional_floats, optional_floats)
profiles = st.builds(Profile, ints, texts, st.lists(st.builds(ProfileRow, texts, ints, ints, ints), max_size=2).map(tuple))
specs = st.dictionaries(texts, json_scalars, max_size=4)
passed = st.builds(
    CaseResult, specs, st.just(Status.PASS), official=st.builds(Official, st.just(True), texts), strict=st.none() | stricts,
    timing=st.none() | timings, min_bytes=st.none() | ints, floor=st.none() | floors, backend=st.none() | texts,
    params=st.none() | details, compile_ns=st.none() | ints, profile=st.none() | profiles,
    warnings=st.lists(texts, max_size=2).map(tuple),
)  # fmt: skip
failed = st.builds(
    CaseResult,
    specs,
    st.sampled_from([Status.ERROR, Status.TIMEOUT, Status.CRASHED, Status.SKIPPED]),
    st.text(min_size=1),
    texts,
)
devices = st.builds(
    Device, texts, texts, texts, st.none() | texts, st.none() | texts, st.none() | ints, st.none() | ints,
    st.builds(Clocks, st.none() | ints), st.none() | st.builds(Peaks, floats, st.none() | floats),
)  # fmt: skip
results = st.builds(
    lambda cases, device, warnings, score, state, command: replace(
        RESULT, cases=tuple(cases), device=device, warnings=tuple(warnings), score=score, state=state, command=tuple(command)
    ),
    st.lists(passed | failed, max_size=3), devices, st.lists(texts, max_size=2),
    st.none() | st.builds(Score, texts, texts, optional_floats), st.sampled_from(State), st.lists(texts, max_size=2),
)  # fmt: skip


@settings(deadline=None)
@given(results)
def test_json_round_trip(result):
    text = json.dumps(result_to_json(result), allow_nan=False)
    assert result_from_json(json.loads(text)) == result


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_lacks(value):
    case = CaseResult({}, Status.WRONG, official=WRONG, strict=Strict(False, rel_l2_worst=value))
    text = json.dumps(result_to_json(replace(RESULT, cases=(case,))), allow_nan=False)
    back = result_from_json(json.loads(text)).cases[0].strict.rel_l2_worst
    assert str(back) == str(value)


def test_timing_stands_flat_in_a_case():
    case = CaseResult({"size": 4}, Status.PASS, official=RIGHT, timing=TIMING)
    data = result_to_json(replace(RESULT, cases=(case,)))["cases"][0]
    assert (data["median_ns"], data["ci95_ns"], data["samples_ns"]) == (3.0, [2.0, 4.0], [2, 3, 4])


ILLEGAL = [
    ({"status": Status.PASS}, "needs the official verdict"),
    ({"status": Status.PASS, "official": WRONG}, "must have no failed verdict"),
    ({"status": Status.PASS, "official": RIGHT, "strict": Strict(False)}, "must have no failed verdict"),
    ({"status": Status.WRONG, "official": RIGHT}, "must have a failed verdict"),
    ({"status": Status.WRONG, "official": WRONG, "timing": TIMING}, "official verdict fails has no timing"),
    ({"status": Status.REFUSED, "official": RIGHT, "message": "x"}, "needs timing, the refusal floor"),
    (
        {"status": Status.REFUSED, "official": RIGHT, "message": "x", "timing": TIMING, "floor": Floor(1.0, 1.0)},
        "the refusal floor",
    ),
    ({"status": Status.ERROR}, "needs a message"),
    ({"status": Status.CRASHED, "message": "x", "official": RIGHT}, "has no verdict"),
    ({"status": Status.TIMEOUT, "message": "x", "timing": TIMING}, "no timing"),
    ({"status": Status.SKIPPED, "message": "x", "floor": Floor()}, "no floor"),
]


@pytest.mark.parametrize(("fields", "why"), ILLEGAL)
def test_an_illegal_record_cannot_be_built(fields, why):
    with pytest.raises(ValueError, match=why):
        CaseResult({}, **fields)


def test_an_illegal_record_cannot_be_read():
    data = result_to_json(replace(RESULT, cases=(CaseResult({}, Status.PASS, official=RIGHT),)))
    data["cases"][0]["official"]["ok"] = False
    with pytest.raises(RecordError, match=r"result\.cases\[0\]: .*must have no failed verdict"):
        result_from_json(data)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"schema_version": 2}, "schema_version"),
        ({"mode": 3}, r"result\.mode: int where str belongs"),
        ({"colour": "red"}, "unknown key 'colour'"),
        ({"state": "asleep"}, "asleep"),
        ({"cases": [7]}, r"result\.cases\[0\]"),
        ({"cases_total": True}, r"cases_total: bool where int belongs"),
        ({"submission": {"name": "x"}}, "missing key 'sha256'"),
    ],
)
def test_json_of_another_form_is_refused_by_name(change, where):
    with pytest.raises(RecordError, match=where):
        result_from_json(result_to_json(RESULT) | change)


def test_score():
    def case(median: float, mean: float) -> CaseResult:
        return CaseResult({}, Status.PASS, official=RIGHT, timing=replace(TIMING, median_ns=median, mean_ns=mean))

    cases = (case(2.0, 3.0), case(8.0, 27.0))
    assert score_of(cases, "geom", "median").value_ns == pytest.approx(4.0)
    assert score_of(cases, "geom", "mean").value_ns == pytest.approx(9.0)
    assert score_of(cases, "mean", "mean").value_ns == pytest.approx(15.0)
    assert score_of(cases, "last", "median").value_ns == pytest.approx(8.0)
    untimed = CaseResult({}, Status.ERROR, "boom")
    assert score_of((*cases, untimed), "geom", "median").value_ns is None
    assert score_of((), "geom", "median").value_ns is None


def test_exit_codes():
    def code(*statuses: Status, state: State = State.COMPLETE) -> Exit:
        return replace(RESULT, state=state, cases=tuple(map(of_status, statuses))).exit_code

    assert code(Status.PASS, Status.PASS) == 0
    assert code(Status.PASS, Status.WRONG) == 112
    assert code(Status.REFUSED, Status.PASS) == 5
    assert code(Status.REFUSED, Status.ERROR) == 112
    assert code(Status.WRONG, Status.TIMEOUT) == 114
    assert code(Status.TIMEOUT, Status.DEVICE_ERROR) == 110
    assert code(Status.PASS, state=State.INTERRUPTED) == 130
    assert code(Status.PASS, state=State.RUNNING) == 112
    assert code() == 112


def of_status(status: Status) -> CaseResult:
    if status is Status.REFUSED:
        return CaseResult({}, status, "fast", official=RIGHT, timing=TIMING, floor=Floor(9.0, 9.0, 9.0))
    if status in schema.JUDGED:
        return CaseResult({}, status, official=RIGHT if status is Status.PASS else WRONG)
    return CaseResult({}, status, "message")


def test_ok_needs_every_case():
    one = replace(RESULT, cases_total=1, state=State.COMPLETE)
    assert not one.ok
    assert replace(one, cases=(of_status(Status.PASS),)).ok
    assert not replace(one, cases=(of_status(Status.WRONG),)).ok
    assert not replace(one, cases=(of_status(Status.PASS),), state=State.RUNNING).ok


def test_files_are_replaced_whole(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    write_result(RESULT, path)
    assert read_result(path) == RESULT
    monkeypatch.setattr("harness.files.os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_result(replace(RESULT, mode="test"), path)
    assert read_result(path) == RESULT
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "\udcff"])
def test_files_that_are_no_result(tmp_path, text):
    path = tmp_path / "result.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(RecordError):
        read_result(path)
