"""Who ranks, and what a list says of those who do not."""

import pytest
from people import CODE, claim, evaluate, person, ranked, runner, submit

from leaderboard import queries, submissions
from leaderboard.accounts import Identity
from leaderboard.errors import BadRequest
from leaderboard.stages import Stage


def names(store) -> list[tuple[int, str, float]]:
    with store.reading() as session:
        return [(row.rank, row.user, row.score_ns) for row in queries.ranking(session, "doubling", "CPU")]


def mark_hacked(store, number: int, admin: Identity, reason: str = "replays results") -> None:
    with store.writing() as session:
        submissions.mark_hacked(session, number, reason, admin)


def test_the_best_of_every_user_fastest_first(any_store):
    ada, bob = person(any_store, "ada"), person(any_store, "bob")
    for user, score_ns in ((ada, 900.0), (bob, 700.0), (ada, 500.0), (ada, 800.0)):
        ranked(any_store, user, score_ns)
    assert names(any_store) == [(1, "ada", 500.0), (2, "bob", 700.0)]
    with any_store.reading() as session:
        rows = queries.ranking(session, "doubling", "CPU")
        assert [row.gap for row in rows] == pytest.approx([0.0, 0.4])
        assert [row.secret_score_ns for row in rows] == [507.0, 707.0]
        board = queries.board(session, "DOUBLING")
    assert board is not None
    assert board.leaders["CPU"].user == "ada"
    assert (board.submissions, board.users) == (4, 2)


def test_full_precision_tells_near_ties_apart_and_leaves_ties_ties(store):
    ada, bob, eve = (person(store, name) for name in ("ada", "bob", "eve"))
    exact = 1234.5678901234567
    ranked(store, ada, exact)
    ranked(store, bob, exact)
    ranked(store, eve, exact - 1e-9)
    assert names(store) == [(1, "eve", exact - 1e-9), (2, "ada", exact), (2, "bob", exact)]


@pytest.mark.parametrize("fails", [Stage("leaderboard"), *(Stage(mode, True) for mode in ("test", "benchmark", "leaderboard"))])
def test_a_failed_run_public_or_secret_does_not_rank(any_store, fails):
    number = submit(any_store, person(any_store, "ada"))
    taken = claim(any_store, runner(any_store))
    assert taken is not None
    evaluate(any_store, taken, fails=fails)
    assert names(any_store) == []
    with any_store.reading() as session:
        (row,) = queries.submissions(session)
    assert (row.id, row.status) == (number, "failed")
    assert (row.secret_passed is False) is (fails == Stage("leaderboard", True))


@pytest.mark.parametrize("mode", ["test", "benchmark"])
def test_other_modes_do_not_rank(store, mode):
    submit(store, person(store, "ada"), mode=mode)
    taken = claim(store, runner(store))
    assert taken is not None
    assert evaluate(store, taken) == "succeeded"
    assert names(store) == []


def test_hacked_is_excluded_with_the_reason_and_the_next_best_ranks(any_store):
    ada, admin = person(any_store, "ada"), person(any_store, "root", "admin")
    good, bad = ranked(any_store, ada, 900.0), ranked(any_store, ada, 100.0)
    mark_hacked(any_store, bad, admin)
    assert names(any_store) == [(1, "ada", 900.0)]
    with any_store.reading() as session:
        (row,) = queries.excluded(session, "doubling", "CPU")
        assert (row.submission_id, row.score_ns, row.reason) == (bad, 100.0, "replays results")
        assert [point.submission_id for point in queries.history(session, "doubling", "CPU")] == [good]
        found = queries.submission(session, bad, None)
    assert found is not None
    assert found.row.status == "hacked"
    assert "replays results" in found.row.error


def test_a_reason_is_needed(store):
    number = ranked(store, person(store, "ada"), 900.0)
    with pytest.raises(BadRequest, match="a reason is needed"):
        mark_hacked(store, number, person(store, "root", "admin"), "  ")


def test_devices_are_ranked_apart(store):
    ranked(store, person(store, "ada"), 900.0)
    with store.reading() as session:
        assert queries.ranking(session, "doubling", "H200") == []


def test_history_tells_records(any_store):
    ada, bob = person(any_store, "ada"), person(any_store, "bob")
    for user, score_ns in ((ada, 900.0), (bob, 950.0), (bob, 700.0), (ada, 700.0)):
        ranked(any_store, user, score_ns)
    with any_store.reading() as session:
        points = queries.history(session, "doubling", "CPU")
        said = [(point.user, point.is_record) for point in points]
        assert said == [("ada", True), ("bob", False), ("bob", True), ("ada", False)]
        assert [point.score_ns for point in queries.history(session, "doubling", "CPU", "ada")] == [900.0, 700.0]


def test_lists_filter_and_go_on(any_store):
    ada, bob = person(any_store, "ada"), person(any_store, "bob")
    first = ranked(any_store, ada, 900.0)
    second, third = submit(any_store, bob, mode="test"), submit(any_store, ada, mode="test")
    with any_store.reading() as session:
        def found(**wanted) -> list[int]:
            return [row.id for row in queries.submissions(session, **wanted)]

        assert found() == [third, second, first]
        assert found(user="ada") == [third, first]
        assert found(status="pending") == [third, second]
        assert found(mode="leaderboard", gpu="CPU", leaderboard="doubling") == [first]
        assert found(limit=2) == [third, second]
        assert found(before_id=second) == [first]
        assert found(user="nobody") == []


def test_the_same_code_is_kept_once_and_goes_with_its_last_submission(any_store):
    from sqlalchemy import func, select

    from leaderboard.store.models import Code

    def codes() -> int:
        with any_store.reading() as session:
            return session.scalar(select(func.count()).select_from(Code)) or 0

    ada, bob = person(any_store, "ada"), person(any_store, "bob")
    numbers = [submit(any_store, user, mode="test", code=CODE) for user in (ada, bob, ada)]
    assert codes() == 1
    for number, user in zip(numbers, (ada, bob, ada), strict=True):
        assert codes() == 1
        with any_store.writing() as session:
            submissions.delete(session, number, user)
    assert codes() == 0
