"""The tables.

    users, tokens          who may do what; of a token only the SHA-256 is kept
    problems               problem folders by content: what a runner is sent
    leaderboards           a name, a problem, a deadline
    codes, submissions     a file once per digest; who sent it where, for which GPU and mode
    jobs                   one a submission: its place in the queue, its lease, its final status
    runners, devices       who evaluates, on what
    runs, cases            harness.history's tables: one row an evaluation, the whole Result with all samples beside it
    submission_runs        which evaluation belongs to which submission: public or secret, of which attempt
    audit, settings        who did what; what admins have switched

`runs` and `cases` belong to harness.history, so that `eval.py --record` writes the same store without this package.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Double, ForeignKey, Index, Integer, LargeBinary, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from leaderboard.store.columns import UtcDateTime, utc_now

STATUSES = ("pending", "running", "succeeded", "failed", "timed_out", "hacked")
FINAL = frozenset(STATUSES[2:])
ROLES = ("user", "runner", "admin")


class Base(DeclarativeBase):
    """The tables' common metadata."""

    type_annotation_map = {datetime: UtcDateTime, dict[str, Any]: JSON, float: Double}  # noqa: RUF012 -- SQLAlchemy's own form


class User(Base):
    """Somebody who submits, administers or lends a GPU."""

    __tablename__ = "users"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class Token(Base):
    """A secret that stands for a user in a role."""

    __tablename__ = "tokens"

    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    role: Mapped[str] = mapped_column(String(16))
    sha256: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    user: Mapped[User] = relationship()


class Problem(Base):
    """A problem folder by content, so that a run can be traced to the task it ran."""

    __tablename__ = "problems"

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    root: Mapped[str] = mapped_column(String(255))  # the folder of task.yml among `files`
    files: Mapped[dict[str, Any]]  # relative path -> text


class Leaderboard(Base):
    """A contest over one problem."""

    __tablename__ = "leaderboards"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(64), unique=True)
    description: Mapped[str] = mapped_column(Text)
    problem_sha256: Mapped[str] = mapped_column(ForeignKey("problems.sha256"))
    task: Mapped[dict[str, Any]]  # tests, benchmarks (the cases' lines), ranking_by, gpus, lang
    deadline: Mapped[datetime | None]  # UTC; None: never
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class Code(Base):
    """The content of submissions, once per digest."""

    __tablename__ = "codes"

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    content: Mapped[bytes] = mapped_column(LargeBinary)


class Submission(Base):
    """One file that somebody sent for one GPU in one mode."""

    __tablename__ = "submissions"
    __table_args__ = (
        Index("submissions_by_board", "leaderboard_id", "gpu", "mode"),
        Index("submissions_by_user", "user_id", "submitted_at"),
        {"sqlite_autoincrement": True},  # the number of a deleted submission is never given to another
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    leaderboard_id: Mapped[int] = mapped_column(ForeignKey("leaderboards.id"))
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    code_sha256: Mapped[str] = mapped_column(ForeignKey("codes.sha256"))
    file_name: Mapped[str] = mapped_column(String(255))
    gpu: Mapped[str] = mapped_column(String(64))
    mode: Mapped[str] = mapped_column(String(16))
    submitted_at: Mapped[datetime] = mapped_column(default=utc_now)
    hacked_reason: Mapped[str | None] = mapped_column(Text)
    leaderboard: Mapped[Leaderboard] = relationship()
    user: Mapped[User] = relationship()
    code: Mapped[Code] = relationship()
    job: Mapped["Job"] = relationship(back_populates="submission")


class Device(Base):
    """A device that something was measured on, as the harness describes it."""

    __tablename__ = "devices"
    __table_args__ = (Index("devices_by_what_they_are", "name", "arch", "driver", unique=True),)

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(255))
    kind: Mapped[str] = mapped_column(String(16))
    arch: Mapped[str] = mapped_column(String(64))
    driver: Mapped[str] = mapped_column(String(64), default="")
    memory_bytes: Mapped[int | None] = mapped_column(BigInteger)


class Runner(Base):
    """A process that evaluates on one device."""

    __tablename__ = "runners"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(64))
    gpu: Mapped[str] = mapped_column(String(64))
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id"))
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    system: Mapped[dict[str, Any]]  # popcorn's SystemInfo
    registered_at: Mapped[datetime] = mapped_column(default=utc_now)
    last_seen_at: Mapped[datetime] = mapped_column(default=utc_now)
    device: Mapped[Device] = relationship()


class Job(Base):
    """The evaluation that a submission waits for. A lease that runs out gives the job back to the queue."""

    __tablename__ = "jobs"
    __table_args__ = (Index("jobs_by_status", "status", "gpu"), Index("jobs_by_lease", "status", "lease_expires_at"))

    id: Mapped[int] = mapped_column(primary_key=True)
    submission_id: Mapped[int] = mapped_column(ForeignKey("submissions.id"), unique=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))  # the submission's, for the order of the queue
    gpu: Mapped[str] = mapped_column(String(64))  # the submission's
    status: Mapped[str] = mapped_column(String(16), default="pending")
    error: Mapped[str] = mapped_column(Text, default="")
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    losses: Mapped[int] = mapped_column(Integer, default=0)  # attempts whose runner fell silent
    runner_id: Mapped[int | None] = mapped_column(ForeignKey("runners.id"))
    lease: Mapped[str | None] = mapped_column(String(64))  # the present attempt's; who does not hold it reports in vain
    lease_expires_at: Mapped[datetime | None]
    heartbeat_at: Mapped[datetime | None]
    progress: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    started_at: Mapped[datetime | None]  # of the last attempt
    ended_at: Mapped[datetime | None]
    submission: Mapped[Submission] = relationship(back_populates="job")
    runner: Mapped[Runner | None] = relationship()


class Run(Base):
    """One evaluation: harness.history's table."""

    __tablename__ = "runs"
    __table_args__ = (Index("runs_by_problem", "problem", "device", "started_at"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    started_at: Mapped[str] = mapped_column(Text)  # ISO 8601, UTC
    problem: Mapped[str] = mapped_column(Text)
    mode: Mapped[str] = mapped_column(Text)
    policy: Mapped[str] = mapped_column(Text)
    cases_from: Mapped[str] = mapped_column(Text)
    device: Mapped[str] = mapped_column(Text)
    submission: Mapped[str] = mapped_column(Text)
    sha256: Mapped[str] = mapped_column(Text)
    harness_version: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(Text)
    passed: Mapped[int]  # cases that pass
    cases_total: Mapped[int]
    ranking_by: Mapped[str | None] = mapped_column(Text)
    statistic: Mapped[str | None] = mapped_column(Text)
    score_ns: Mapped[float | None]
    result: Mapped[str] = mapped_column(Text, deferred=True)  # Result v1 as JSON, samples included


class Case(Base):
    """One case of an evaluation: harness.history's table."""

    __tablename__ = "cases"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    spec: Mapped[str] = mapped_column(Text)  # JSON
    status: Mapped[str] = mapped_column(Text)
    median_ns: Mapped[float | None]
    ci_low_ns: Mapped[float | None]
    ci_high_ns: Mapped[float | None]
    mean_ns: Mapped[float | None]
    err_ns: Mapped[float | None]
    kv_format: Mapped[str | None] = mapped_column(Text)
    backend: Mapped[str | None] = mapped_column(Text)


class SubmissionRun(Base):
    """An evaluation made for a submission."""

    __tablename__ = "submission_runs"
    __table_args__ = (Index("submission_runs_once", "submission_id", "attempt", "mode", "secret", unique=True),)

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    submission_id: Mapped[int] = mapped_column(ForeignKey("submissions.id"))
    attempt: Mapped[int]
    mode: Mapped[str] = mapped_column(String(16))
    secret: Mapped[bool]
    passed: Mapped[bool]
    runner_id: Mapped[int | None] = mapped_column(ForeignKey("runners.id"))
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id"))
    ended_at: Mapped[datetime] = mapped_column(default=utc_now)
    run: Mapped[Run] = relationship()
    runner: Mapped[Runner | None] = relationship()
    device: Mapped[Device] = relationship()


class Audit(Base):
    """One act of somebody: who, what, on what."""

    __tablename__ = "audit"
    __table_args__ = (Index("audit_by_actor", "actor", "action", "at"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime] = mapped_column(default=utc_now)
    actor: Mapped[str] = mapped_column(String(64))
    action: Mapped[str] = mapped_column(String(64))
    target: Mapped[str] = mapped_column(String(255))
    detail: Mapped[str] = mapped_column(Text, default="")


class Setting(Base):
    """What an administrator has switched; it outlives the server."""

    __tablename__ = "settings"

    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[str] = mapped_column(Text)
