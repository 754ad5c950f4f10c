"""Recorded runs: what goes in comes out, files of others are refused, a run is recorded whole or not at all."""

import sqlite3
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from terminal_results import H200, console_of, mixed_result

from harness.errors import HistoryError
from harness.history import History, Recorder
from harness.result import State
from harness.terminal.history import LEVELS, history_view, sparkline


@pytest.fixture
def history(tmp_path) -> History:
    return History(tmp_path / "some" / "folder" / "history.sqlite")


def scored(value_ns: float | None, day: int = 1, **changes):
    assert H200.score is not None
    at = f"2026-12-{day:02d}T10:00:00+00:00"
    return replace(H200, started_at=at, score=replace(H200.score, value_ns=value_ns), **changes)


@pytest.mark.parametrize("result", [H200, mixed_result(), replace(H200, state=State.INTERRUPTED, cases=H200.cases[:1])])
def test_round_trip(history, result):
    assert history.result(history.add(result)) == result


def test_the_columns_say_what_the_result_says(history):
    history.add(mixed_result())
    (run,) = history.runs()
    assert (run.passed, run.cases_total, run.score_ns, run.state) == (1, 4, None, "complete")
    assert run.series == ("amd-mixed-mla", "NVIDIA H200", "benchmark", "robust", "official")


def test_cases_can_be_queried(history, tmp_path):
    history.add(H200)
    with sqlite3.connect(tmp_path / "some" / "folder" / "history.sqlite") as database:
        rows = database.execute("SELECT position, median_ns, kv_format, backend FROM cases ORDER BY position").fetchall()
    assert rows == [
        (position, case.timing.median_ns, case.strict.format, case.backend)  # type: ignore[union-attr]
        for position, case in enumerate(H200.cases)
    ]


def test_filters_and_the_latest(history):
    for day in (3, 1, 2):
        history.add(scored(float(day), day))
    history.add(scored(9.0, 4, problem="other"))
    history.add(scored(9.0, 5, device=replace(H200.device, name="AMD Instinct MI355X")))
    assert [run.score_ns for run in history.runs(problem="amd-mixed-mla", device="h200")] == [1.0, 2.0, 3.0]
    assert [run.score_ns for run in history.runs(device="h200", limit=2)] == [3.0, 9.0]
    assert [run.device for run in history.runs(device="mi355")] == ["AMD Instinct MI355X"]
    assert history.runs(device="%") == []


def test_no_file(history):
    with pytest.raises(HistoryError, match="no such file"):
        history.runs()


def test_no_such_run(history):
    history.add(H200)
    with pytest.raises(HistoryError, match="holds no run 7"):
        history.result(7)


def test_a_file_that_is_no_database(tmp_path):
    path = tmp_path / "a.sqlite"
    path.write_text("not a database" * 100)
    with pytest.raises(HistoryError, match="not a database"):
        History(path).runs()
    assert path.read_text().startswith("not a database")


@pytest.mark.parametrize("place", ["a.txt/h.sqlite", "folder"])
def test_a_place_that_cannot_be_written_is_told_before_the_run(tmp_path, place):
    (tmp_path / "a.txt").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(HistoryError, match="--record FILE or --file FILE names another"):
        Recorder(tmp_path / place).started(H200)


def test_a_database_of_somebody_else_stays_untouched(tmp_path):
    path = tmp_path / "a.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE mine (x)")
    before = path.read_bytes()
    with pytest.raises(HistoryError, match="not a history of this harness; --record FILE or --file FILE names another"):
        History(path).add(H200)
    assert path.read_bytes() == before


def test_evaluations_that_end_together(history):
    history.add(H200)
    threads = [threading.Thread(target=history.add, args=(H200,)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(history.runs()) == 7


def test_the_recorder_keeps_what_was_measured(tmp_path):
    path = tmp_path / "h.sqlite"
    recorder = Recorder(path)
    recorder.started(replace(H200, cases=()))
    recorder.case_done(H200)
    recorder.finished(replace(H200, cases=(), state=State.FAILED))
    assert History(path).runs() == []
    recorder.finished(replace(H200, state=State.INTERRUPTED))
    assert [run.state for run in History(path).runs()] == ["interrupted"]


def test_the_view_keeps_series_apart(history):
    for day, value in enumerate((60_000.0, 50_000.0, None, 40_000.0), start=1):
        history.add(scored(value, day))
    history.add(scored(1e6, 9, mode="leaderboard"))
    console = console_of(120)
    console.print(history_view(history.runs()))
    said = console.export_text()
    assert "█▅·▁  best 40.00 µs of 3" in said
    assert "-16.7%" in said
    assert "-20.0%" in said  # from the last run that has a score
    assert said.index("benchmark, robust") < said.index("leaderboard, robust")


@given(st.lists(st.none() | st.floats(1.0, 1e9), max_size=40))
def test_sparkline(values):
    line = sparkline(values)
    known = [value for value in values if value is not None]
    assert len(line) == len(values)
    assert [mark == "·" for mark in line] == [value is None for value in values]
    if known and max(known) > min(known):
        assert line[values.index(max(known))] == LEVELS[-1]
        assert line[values.index(min(known))] == LEVELS[0]
