"""Recorded runs in a local SQLite file: one row a run, one row a case, the whole Result beside them.

    runs   id, started_at, problem, mode, policy, cases_from, device, submission, sha256, harness_version, state, passed,
           cases_total, ranking_by, statistic, score_ns, result (Result v1 as JSON, samples included)
    cases  run_id, position, spec (JSON), status, median_ns, ci_low_ns, ci_high_ns, mean_ns, err_ns, kv_format, backend

The columns are what queries need; `result` is the record they are taken from. The leaderboard's store has the same two
tables, beside its own: both write the same file.
"""

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HistoryError
from harness.observer import Progress
from harness.result import CaseResult, Result, Status, result_from_json, result_to_json

DEFAULT_FILE = Path("results", "history.sqlite")
OTHER_FILE = "--record FILE or --file FILE names another"
BUSY_TIMEOUT_S = 30.0  # another evaluation may be recording
APPLICATION_ID = 0x4B50_4831  # "KPH1": a file of this kind and version
SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    id INTEGER PRIMARY KEY, started_at TEXT NOT NULL, problem TEXT NOT NULL, mode TEXT NOT NULL, policy TEXT NOT NULL,
    cases_from TEXT NOT NULL, device TEXT NOT NULL, submission TEXT NOT NULL, sha256 TEXT NOT NULL,
    harness_version TEXT NOT NULL, state TEXT NOT NULL, passed INTEGER NOT NULL, cases_total INTEGER NOT NULL,
    ranking_by TEXT, statistic TEXT, score_ns REAL, result TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS cases (
    run_id INTEGER NOT NULL REFERENCES runs(id), position INTEGER NOT NULL, spec TEXT NOT NULL, status TEXT NOT NULL,
    median_ns REAL, ci_low_ns REAL, ci_high_ns REAL, mean_ns REAL, err_ns REAL, kv_format TEXT, backend TEXT,
    PRIMARY KEY (run_id, position));
CREATE INDEX IF NOT EXISTS runs_by_problem ON runs (problem, device, started_at);
"""


@dataclass(frozen=True)
class Run:
    """One recorded run without its cases."""

    id: int
    started_at: str
    problem: str
    mode: str
    policy: str
    cases_from: str
    device: str
    submission: str
    sha256: str
    state: str
    passed: int
    cases_total: int
    score_ns: float | None

    @property
    def series(self) -> tuple[str, ...]:
        """Runs with the same series can be compared."""
        return self.problem, self.device, self.mode, self.policy, self.cases_from


class History:
    """The recorded runs in one file. Every method raises HistoryError if the file cannot be used."""

    def __init__(self, path: Path):
        self._path = path

    def open(self) -> None:
        """Make the file if there is none, and see that it can be written: before a run rather than after it."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HistoryError(str(self._path), str(error.strerror), OTHER_FILE) from None
        with self._connect() as database:
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")

    def add(self, result: Result) -> int:
        """Record a run; its number."""
        self.open()
        with self._connect() as database:
            number = _insert(database, "runs", run_columns(result))
            for position, case in enumerate(result.cases):
                _insert(database, "cases", {"run_id": number, "position": position, **case_columns(case)})
        return number

    def runs(self, problem: str | None = None, device: str | None = None, limit: int | None = None) -> list[Run]:
        """The latest `limit` runs, oldest first; `device` is a part of the device's name, in any case."""
        self._must_exist()
        columns = ", ".join(Run.__dataclass_fields__)
        query = f"SELECT {columns} FROM runs WHERE (:problem IS NULL OR problem = :problem) "
        query += "AND (:device IS NULL OR instr(lower(device), lower(:device))) ORDER BY started_at DESC, id DESC LIMIT :limit"
        with self._connect() as database:
            limited = {"problem": problem, "device": device, "limit": -1 if limit is None else limit}
            return [Run(*row) for row in database.execute(query, limited)][::-1]

    def result(self, number: int) -> Result:
        """A recorded run's Result."""
        self._must_exist()
        with self._connect() as database:
            row = database.execute("SELECT result FROM runs WHERE id = ?", (number,)).fetchone()
        if row is None:
            raise HistoryError(str(self._path), f"holds no run {number}", "`python -m harness history` lists them")
        return result_from_json(json.loads(row[0]))

    def _must_exist(self) -> None:
        if not self._path.is_file():
            raise HistoryError(str(self._path), "no such file", "`eval.py --record` makes it")

    @contextlib.contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        try:
            with contextlib.closing(sqlite3.connect(self._path, timeout=BUSY_TIMEOUT_S)) as database:
                _prepare(database, self._path)
                with database:  # one transaction: a run is recorded whole or not at all
                    yield database
        except sqlite3.Error as error:
            raise HistoryError(str(self._path), str(error), OTHER_FILE) from None


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    found = database.execute("PRAGMA application_id").fetchone()[0]
    is_empty = not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if is_empty:
        database.executescript(f"PRAGMA application_id = {APPLICATION_ID}; {SCHEMA}")
    elif found != APPLICATION_ID:
        raise HistoryError(str(path), "not a history of this harness", OTHER_FILE)


def _insert(database: sqlite3.Connection, table: str, columns: dict[str, object]) -> int:
    names, marks = ", ".join(columns), ", ".join("?" * len(columns))
    number = database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(columns.values())).lastrowid
    return number or 0


def run_columns(result: Result) -> dict[str, object]:
    """The row of `runs` that a Result makes, without its number."""
    score = result.score
    return {
        "started_at": result.started_at,
        "problem": result.problem,
        "mode": result.mode,
        "policy": result.policy,
        "cases_from": result.cases_from,
        "device": result.device.name,
        "submission": result.submission.name,
        "sha256": result.submission.sha256,
        "harness_version": result.harness_version,
        "state": result.state.value,
        "passed": sum(case.status is Status.PASS for case in result.cases),
        "cases_total": result.cases_total,
        "ranking_by": score.ranking_by if score else None,
        "statistic": score.statistic if score else None,
        "score_ns": score.value_ns if score else None,
        "result": json.dumps(result_to_json(result), ensure_ascii=False, allow_nan=False),
    }


def case_columns(case: CaseResult) -> dict[str, object]:
    """The row of `cases` that a case makes, without its run and position."""
    timing = case.timing
    low_ns, high_ns = timing.ci95_ns if timing else (None, None)
    return {
        "spec": json.dumps(case.spec),
        "status": case.status.value,
        "median_ns": timing.median_ns if timing else None,
        "ci_low_ns": low_ns,
        "ci_high_ns": high_ns,
        "mean_ns": timing.mean_ns if timing else None,
        "err_ns": timing.err_ns if timing else None,
        "kv_format": case.strict.format if case.strict else None,
        "backend": case.backend,
    }


class Recorder:
    """An Observer that records the run once it has ended, however far it got."""

    def __init__(self, path: Path):
        self._history = History(path)

    def started(self, result: Result) -> None:
        self._history.open()

    def progress(self, progress: Progress) -> None:
        pass

    def case_done(self, result: Result) -> None:
        pass

    def finished(self, result: Result) -> None:
        if result.cases:
            self._history.add(result)
