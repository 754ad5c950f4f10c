"""What the queries answer: frozen records, times as aware UTC datetimes, durations and scores in nanoseconds."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from harness.result import Result


@dataclass(frozen=True)
class Rank:
    """One row of a ranking. Equal scores share a rank."""

    rank: int
    user: str
    submission_id: int
    score_ns: float
    secret_score_ns: float | None
    gap: float  # score / best - 1
    submitted_at: datetime
    device: str
    file_name: str
    sha256: str


@dataclass(frozen=True)
class Board:
    """A leaderboard."""

    name: str
    description: str
    deadline: datetime | None
    is_open: bool
    gpus: tuple[str, ...]  # those of task.yml, then the runners'
    ranking_by: str
    cases: dict[str, list[str]]  # test, benchmark -> the cases as task.yml has them
    submissions: int
    users: int
    leaders: dict[str, Rank] = field(default_factory=dict)  # GPU -> the first


@dataclass(frozen=True)
class Excluded:
    """A submission that was taken out of the ranking."""

    user: str
    submission_id: int
    score_ns: float | None
    submitted_at: datetime
    reason: str


@dataclass(frozen=True)
class ScorePoint:
    """A ranked score at its time."""

    submission_id: int
    user: str
    submitted_at: datetime
    score_ns: float
    is_record: bool  # faster than every one before


@dataclass(frozen=True)
class SubmissionRow:
    """A submission in a list."""

    id: int
    leaderboard: str
    user: str
    file_name: str
    gpu: str
    mode: str
    submitted_at: datetime
    status: str  # pending, running, succeeded, failed, timed_out, hacked
    error: str
    done: bool
    score_ns: float | None  # of the public run
    secret_score_ns: float | None
    secret_passed: bool | None  # None: it has not run
    sha256: str
    hacked_reason: str | None
    passed: bool | None = None  # the public run; None: it has not run


@dataclass(frozen=True)
class JobView:
    """Where a submission's evaluation stands."""

    id: int
    status: str
    error: str
    attempts: int
    position: int | None  # in the queue of its GPU, from 1; None: not waiting
    runner: str | None
    heartbeat_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    progress: dict[str, Any] | None


@dataclass(frozen=True)
class CaseView:
    """One case of one run."""

    spec: dict[str, Any]
    status: str
    median_ns: float | None
    ci_low_ns: float | None
    ci_high_ns: float | None
    mean_ns: float | None
    err_ns: float | None
    kv_format: str | None
    backend: str | None


@dataclass(frozen=True)
class RunView:
    """One evaluation of a submission."""

    run_id: int
    mode: str
    secret: bool
    attempt: int
    passed: bool
    score_ns: float | None
    device: str
    runner: str | None
    started_at: datetime
    ended_at: datetime
    report: str
    result: Result | None  # for the owner, of public runs; for admins always
    cases: tuple[CaseView, ...]


@dataclass(frozen=True)
class SubmissionDetail:
    """A submission with everything that the viewer may know of it."""

    row: SubmissionRow
    job: JobView
    runs: tuple[RunView, ...]
    code: str | None  # for the owner and admins
    size_bytes: int
    leaderboard_id: int
    user_id: int


@dataclass(frozen=True)
class QueueRow:
    """A job that runs or waits."""

    job: JobView
    submission_id: int
    leaderboard: str
    gpu: str
    mode: str
    user: str


@dataclass(frozen=True)
class RunnerView:
    """A runner and what it does."""

    name: str
    gpu: str
    device: str
    last_seen_at: datetime
    state: str  # idle, busy, lost
    submission_id: int | None


@dataclass(frozen=True)
class Recorded:
    """A run that `eval.py --record` has kept."""

    run_id: int
    started_at: str  # ISO 8601, UTC
    problem: str
    mode: str
    policy: str
    cases_from: str
    device: str
    file_name: str
    sha256: str
    state: str
    passed: int
    cases_total: int
    score_ns: float | None
