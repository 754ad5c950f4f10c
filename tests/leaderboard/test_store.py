"""The store: the same on both databases, made by migrations alone, one file with eval.py --record."""

import sqlite3
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from people import person, ranked
from sqlalchemy import inspect, select, text
from sqlalchemy.exc import StatementError

from harness.history import History
from leaderboard import queries
from leaderboard.errors import StoreError
from leaderboard.store.database import Store
from leaderboard.store.models import Audit, Base, Run, User
from scripts.stub_evaluation import stub_result


def test_migrations_make_what_the_models_say(any_url):
    store = Store(any_url)
    store.migrate()
    store.migrate()
    with store._engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    store.close()


def test_a_history_becomes_a_store_and_stays_a_history(tmp_path):
    path, result = tmp_path / "history.sqlite", stub_result("x", "benchmark")
    number = History(path).add(result)
    store = Store(f"sqlite:///{path}")
    store.migrate()
    assert History(path).add(replace(result, problem="other")) == number + 1
    with store.reading() as session:
        rows = queries.recorded(session)
        assert [(row.run_id, row.problem) for row in rows] == [(number, "doubling"), (number + 1, "other")]
        assert queries.recorded_result(session, number) == result
        assert [row.problem for row in queries.recorded(session, problem="other", device="STUB")] == ["other"]
        assert queries.recorded(session, device="%") == []
    store.close()


def test_the_history_sees_the_leaderboards_evaluations_and_the_store_tells_them_apart(store):
    ranked(store, person(store, "ada"), 500.0)
    path = Path(str(store.url.database))
    History(path).add(stub_result("mine", "benchmark"))
    assert len(History(path).runs()) == 7
    with store.reading() as session:
        assert [row.mode for row in queries.recorded(session)] == ["benchmark"]
        submitted = session.scalars(select(Run.id)).first()
        assert submitted is not None
        assert queries.recorded_result(session, submitted) is None


def columns_of(database: sqlite3.Connection, table: str) -> list[tuple[str, bool]]:
    """Every column and whether it must have a value, which SQLite says of keys only if it is written there."""
    rows = database.execute(f"PRAGMA table_info({table})")
    return [(name, bool(required or key)) for _, name, _, required, _, key in rows]


def test_both_writers_make_the_same_tables(tmp_path):
    History(tmp_path / "harness.sqlite").add(stub_result("x", "test"))
    store = Store(f"sqlite:///{tmp_path / 'store.sqlite'}")
    store.migrate()
    with sqlite3.connect(tmp_path / "harness.sqlite") as one, sqlite3.connect(tmp_path / "store.sqlite") as other:
        for table in ("runs", "cases"):
            assert columns_of(one, table) == columns_of(other, table)
    store.close()


def test_a_database_of_somebody_else_stays_untouched(tmp_path):
    path = tmp_path / "a.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE mine (x)")
    with pytest.raises(StoreError, match="a database of somebody else; --database URL names another"):
        Store(f"sqlite:///{path}").migrate()
    with sqlite3.connect(path) as database:
        assert [row[0] for row in database.execute("SELECT name FROM sqlite_master")] == ["mine"]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense", "is no database; use sqlite:///FILE"),
        ("sqlite://", "use sqlite:///FILE"),
        ("sqlite:///:memory:", "would end with the process"),
        ("mysql+nothing://a/b", "use SQLite, or PostgreSQL"),
    ],
)
def test_urls_that_name_no_store(url, said):
    with pytest.raises(StoreError, match=said):
        Store(url)


def test_a_file_that_is_no_database(tmp_path):
    path = tmp_path / "a.sqlite"
    path.write_text("not a database" * 100)
    with pytest.raises(StoreError, match="not a database"):
        Store(f"sqlite:///{path}").migrate()


def test_a_password_is_not_shown():
    pytest.importorskip("psycopg", reason="the extra `postgres`")
    store = Store("postgresql://user:hunter2@127.0.0.1:1/nothing")
    with pytest.raises(StoreError) as caught, store.reading() as session:
        session.scalar(text("SELECT 1"))
    assert "hunter2" not in str(caught.value)


def test_times_keep_their_zone(any_store):
    moment = datetime(2026, 3, 1, 23, 30, 0, 123456, tzinfo=timezone(timedelta(hours=-5)))
    with any_store.writing() as session:
        session.add(User(name="ada", created_at=moment))
    with any_store.reading() as session:
        kept = session.scalars(select(User.created_at).where(User.name == "ada")).one()
    assert kept == moment
    assert kept.tzinfo is UTC
    with pytest.raises(StatementError, match="has no time zone"), any_store.writing() as session:
        session.add(User(name="bob", created_at=datetime(2026, 3, 1)))


def test_all_of_a_transaction_or_nothing(any_store):
    def interrupted() -> None:
        with any_store.writing() as session:
            session.add(User(name="half"))
            session.flush()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with any_store.reading() as session:
        assert session.scalar(select(User).where(User.name == "half")) is None


def test_writers_that_meet_wait_for_each_other(any_store):
    def write(who: int) -> None:
        for step in range(10):
            with any_store.writing() as session:
                count = len(session.scalars(select(Audit.id)).all())
                session.add(Audit(actor=str(who), action="write", target=str(step), detail=str(count)))

    threads = [threading.Thread(target=write, args=(who,)) for who in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with any_store.reading() as session:
        assert len(session.scalars(select(Audit.id).where(Audit.action == "write")).all()) == 60


def test_sqlite_is_durable_and_readers_do_not_wait(store):
    with store.writing() as session:
        assert session.scalar(text("PRAGMA journal_mode")) == "wal"
        assert session.scalar(text("PRAGMA synchronous")) == 2
        assert session.scalar(text("PRAGMA foreign_keys")) == 1
        session.add(User(name="unseen"))
        session.flush()
        with store.reading() as other:
            assert other.scalar(select(User).where(User.name == "unseen")) is None


def test_every_reference_has_an_index_or_a_small_table(store):
    """Deleting a submission must not scan: what refers to it is found by an index."""
    found = inspect(store._engine)
    for table, column in (("submission_runs", "submission_id"), ("jobs", "submission_id"), ("cases", "run_id")):
        indexed = [index["column_names"][0] for index in found.get_indexes(table)]
        unique = [key["column_names"][0] for key in found.get_unique_constraints(table)]
        assert column in [*indexed, *unique, *found.get_pk_constraint(table)["constrained_columns"][:1]]
