"""The first tables. `runs` and `cases` may be there already: `eval.py --record` makes them too."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Parents before those that refer to them."""
    _evaluations()
    _people()
    _contests()
    _queue()
    _indexes()


def _evaluations() -> None:
    op.create_table(
        "runs", sa.Column("id", sa.Integer, primary_key=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in (
            "started_at", "problem", "mode", "policy", "cases_from", "device", "submission", "sha256", "harness_version",
            "state",
        )),
        sa.Column("passed", sa.Integer, nullable=False), sa.Column("cases_total", sa.Integer, nullable=False),
        sa.Column("ranking_by", sa.Text), sa.Column("statistic", sa.Text), sa.Column("score_ns", sa.Double),
        sa.Column("result", sa.Text, nullable=False), if_not_exists=True,
    )  # fmt: skip
    op.create_table(
        "cases", sa.Column("run_id", sa.Integer, sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("spec", sa.Text, nullable=False), sa.Column("status", sa.Text, nullable=False),
        *(sa.Column(name, sa.Double) for name in ("median_ns", "ci_low_ns", "ci_high_ns", "mean_ns", "err_ns")),
        sa.Column("kv_format", sa.Text), sa.Column("backend", sa.Text), if_not_exists=True,
    )  # fmt: skip


def _people() -> None:
    op.create_table(
        "users", _id(), _text("name", 64, unique=True), _time("created_at"),
    )  # fmt: skip
    op.create_table(
        "tokens", _id(), _reference("user_id", "users"), _text("role", 16), _text("sha256", 64, unique=True),
        _time("created_at"), sa.Column("expires_at", TIME), sa.Column("revoked_at", TIME),
    )  # fmt: skip
    op.create_table(
        "audit", _id(), _time("at"), _text("actor", 64), _text("action", 64), _text("target", 255), _text("detail"),
    )  # fmt: skip
    op.create_table("settings", sa.Column("key", sa.String(64), primary_key=True), _text("value"))


def _contests() -> None:
    op.create_table(
        "problems", sa.Column("sha256", sa.String(64), primary_key=True), _text("root", 255),
        sa.Column("files", sa.JSON, nullable=False),
    )  # fmt: skip
    op.create_table(
        "leaderboards", _id(), _text("name", 64, unique=True), _text("description"),
        sa.Column("problem_sha256", sa.String(64), sa.ForeignKey("problems.sha256"), nullable=False),
        sa.Column("task", sa.JSON, nullable=False), sa.Column("deadline", TIME), _time("created_at"),
    )  # fmt: skip
    op.create_table(
        "codes", sa.Column("sha256", sa.String(64), primary_key=True), sa.Column("content", sa.LargeBinary, nullable=False),
    )  # fmt: skip
    op.create_table(
        "submissions", _id(), _reference("leaderboard_id", "leaderboards"), _reference("user_id", "users"),
        sa.Column("code_sha256", sa.String(64), sa.ForeignKey("codes.sha256"), nullable=False),
        _text("file_name", 255), _text("gpu", 64), _text("mode", 16), _time("submitted_at"),
        sa.Column("hacked_reason", sa.Text), sqlite_autoincrement=True,
    )  # fmt: skip


def _queue() -> None:
    op.create_table(
        "devices", _id(), _text("name", 255), _text("kind", 16), _text("arch", 64), _text("driver", 64),
        sa.Column("memory_bytes", sa.BigInteger),
    )  # fmt: skip
    op.create_table(
        "runners", _id(), _text("name", 64), _text("gpu", 64), _reference("device_id", "devices"),
        _reference("user_id", "users"), sa.Column("system", sa.JSON, nullable=False),
        _time("registered_at"), _time("last_seen_at"),
    )  # fmt: skip
    op.create_table(
        "jobs", _id(), _reference("submission_id", "submissions", unique=True), _reference("user_id", "users"),
        _text("gpu", 64), _text("status", 16), _text("error"), sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("runner_id", sa.Integer, sa.ForeignKey("runners.id")), sa.Column("lease", sa.String(64)),
        sa.Column("lease_expires_at", TIME), sa.Column("heartbeat_at", TIME), sa.Column("losses", sa.Integer, nullable=False),
        sa.Column("progress", sa.JSON), _time("created_at"), sa.Column("started_at", TIME), sa.Column("ended_at", TIME),
    )  # fmt: skip
    op.create_table(
        "submission_runs", sa.Column("run_id", sa.Integer, sa.ForeignKey("runs.id"), primary_key=True),
        _reference("submission_id", "submissions"), sa.Column("attempt", sa.Integer, nullable=False), _text("mode", 16),
        sa.Column("secret", sa.Boolean, nullable=False), sa.Column("passed", sa.Boolean, nullable=False),
        sa.Column("runner_id", sa.Integer, sa.ForeignKey("runners.id")), _reference("device_id", "devices"), _time("ended_at"),
    )  # fmt: skip


def _indexes() -> None:
    op.create_index("runs_by_problem", "runs", ["problem", "device", "started_at"], if_not_exists=True)
    op.create_index("devices_by_what_they_are", "devices", ["name", "arch", "driver"], unique=True)
    op.create_index("submissions_by_board", "submissions", ["leaderboard_id", "gpu", "mode"])
    op.create_index("submissions_by_user", "submissions", ["user_id", "submitted_at"])
    op.create_index("jobs_by_status", "jobs", ["status", "gpu"])
    op.create_index("audit_by_actor", "audit", ["actor", "action", "at"])
    op.create_index("jobs_by_lease", "jobs", ["status", "lease_expires_at"])
    op.create_index("submission_runs_once", "submission_runs", ["submission_id", "attempt", "mode", "secret"], unique=True)


def _id() -> sa.Column:
    return sa.Column("id", sa.Integer, primary_key=True)


def _text(name: str, length: int | None = None, unique: bool = False) -> sa.Column:
    return sa.Column(name, sa.String(length) if length else sa.Text, nullable=False, unique=unique or None)


def _time(name: str) -> sa.Column:
    return sa.Column(name, TIME, nullable=False)


def _reference(name: str, table: str, unique: bool = False) -> sa.Column:
    return sa.Column(name, sa.Integer, sa.ForeignKey(f"{table}.id"), nullable=False, unique=unique or None)
