"""The queue: whose turn it is, who holds a job, and that every end is a true one."""

from dataclasses import replace
from datetime import timedelta

import pytest
from people import CODE, Claimed, claim, evaluate, finish, job_of, person, report, runner, submit

from harness.result import State
from leaderboard import jobs, queries, submissions
from leaderboard.errors import BadRequest, Conflict, NotFound
from leaderboard.stages import Stage, stages
from leaderboard.store.columns import utc_now
from leaderboard.store.models import Job
from scripts.stub_evaluation import stub_result


def held(store, number: int | None = None) -> Claimed:
    """The next job, which must be there."""
    taken = claim(store, number or runner(store))
    assert taken is not None
    return taken


def expire(store, taken: Claimed) -> None:
    """Let a lease run out."""
    with store.writing() as session:
        session.get_one(Job, taken.job_id).lease_expires_at = utc_now() - timedelta(seconds=1)


def reap(store) -> list[int]:
    with store.writing() as session:
        return jobs.reap(session)


def test_users_take_turns(any_store):
    ada, bob, eve = (person(any_store, name) for name in ("ada", "bob", "eve"))
    for user in (ada, ada, ada, ada, bob, bob, eve):
        submit(any_store, user, mode="test")
    number, served = runner(any_store), []
    with any_store.reading() as session:
        announced = [(row.user, row.job.position) for row in queries.queue(session)]
    while taken := claim(any_store, number):
        evaluate(any_store, taken)
        served.append(taken.submission_id)
    assert served == [1, 5, 7, 2, 6, 3, 4]
    assert announced == [("ada", 1), ("bob", 2), ("eve", 3), ("ada", 4), ("bob", 5), ("ada", 6), ("ada", 7)]


def test_who_was_served_long_ago_goes_first(store):
    ada, bob = person(store, "ada"), person(store, "bob")
    submit(store, ada, mode="test")
    evaluate(store, held(store))
    first, second = submit(store, ada, mode="test"), submit(store, bob, mode="test")
    assert [held(store).submission_id for _ in range(2)] == [second, first]


def test_a_runner_gets_jobs_of_its_device_alone(any_store):
    ada = person(any_store, "ada")
    submit(any_store, ada, gpu="CPU", mode="test")
    wanted = submit(any_store, ada, gpu="h200", mode="test")
    assert held(any_store, runner(any_store, gpu="H200")).submission_id == wanted
    assert claim(any_store, runner(any_store, gpu="H200")) is None


def test_a_job_is_given_to_one_runner(any_store):
    submit(any_store, person(any_store, "ada"), mode="test")
    assert claim(any_store, runner(any_store)) is not None
    assert claim(any_store, runner(any_store)) is None


@pytest.mark.parametrize("mode", ["test", "benchmark", "leaderboard"])
def test_everything_passes(any_store, mode):
    number = submit(any_store, person(any_store, "ada"), mode=mode)
    assert evaluate(any_store, held(any_store)) == "succeeded"
    job = job_of(any_store, number)
    assert (job.status, job.error, job.progress) == ("succeeded", "", None)
    assert job.ended_at is not None


@pytest.mark.parametrize("stage", stages("leaderboard"))
def test_any_failed_stage_fails_the_job(store, stage):
    number = submit(store, person(store, "ada"))
    assert evaluate(store, held(store), fails=stage) == "failed"
    error = job_of(store, number).error
    assert error.startswith("❌ ")
    assert ("in the secret run" in error.splitlines()[0]) is stage.secret
    assert ("values differ" in error) is not stage.secret


def test_done_without_its_runs_is_no_success(store):
    number = submit(store, person(store, "ada"))
    taken = held(store)
    for stage in stages("leaderboard")[:-1]:
        report(store, taken, stage, stub_result(CODE, stage.mode))
    assert finish(store, taken) == "failed"
    assert "did not end" in job_of(store, number).error


def test_a_timeout_keeps_what_was_measured(store):
    ada = person(store, "ada")
    number = submit(store, ada, mode="benchmark")
    taken, partial = held(store), stub_result(CODE, "benchmark")
    report(store, taken, Stage("benchmark"), replace(partial, state=State.INTERRUPTED, cases_total=3))
    assert finish(store, taken, "timed_out", "timeout: 60 s") == "timed_out"
    with store.reading() as session:
        found = queries.submission(session, number, ada)
    assert found is not None
    assert [len(run.cases) for run in found.runs] == [1]
    assert found.job.error.startswith("❌ timeout: 60 s\n")


def test_a_silent_runner_loses_the_job_and_its_reports_are_refused(any_store):
    number = submit(any_store, person(any_store, "ada"), mode="test")
    lost = held(any_store)
    report(any_store, lost, Stage("test"), stub_result(CODE, "test"))
    expire(any_store, lost)
    assert reap(any_store) == [lost.job_id]
    again = held(any_store)
    assert again.job_id == lost.job_id
    for late in (lambda: finish(any_store, lost), lambda: report(any_store, lost, Stage("test"), stub_result(CODE, "test"))):
        with pytest.raises(Conflict, match="no longer yours"):
            late()
    assert evaluate(any_store, again) == "succeeded"
    with any_store.reading() as session:
        found = queries.submission(session, number, None)
    assert found is not None
    assert [run.attempt for run in found.runs] == [1, 2]


def test_the_claim_itself_finds_lost_jobs(store):
    submit(store, person(store, "ada"), mode="test")
    lost = held(store)
    expire(store, lost)
    assert held(store).job_id == lost.job_id


def test_a_job_that_kills_its_runners_is_given_up(store):
    number = submit(store, person(store, "ada"), mode="test")
    for _ in range(jobs.MAX_LOSSES):
        expire(store, held(store))
        reap(store)
    job = job_of(store, number)
    assert job.status == "failed"
    assert "given up after 3 attempts" in job.error
    assert claim(store, runner(store)) is None


def test_a_heartbeat_keeps_the_job(store):
    submit(store, person(store, "ada"), mode="test")
    taken = held(store)
    expire(store, taken)
    progress = {"mode": "test", "case": 1, "cases": 1, "phase": "checking"}
    with store.writing() as session:
        jobs.heartbeat(session, taken.job_id, taken.hold, 60.0, progress)
    assert reap(store) == []
    with store.reading() as session:
        assert [row.job.progress for row in queries.queue(session)] == [progress]


def test_a_released_job_is_not_held_against_it(store):
    submit(store, person(store, "ada"), mode="test")
    for _ in range(5):
        taken = held(store)
        with store.writing() as session:
            jobs.release(session, taken.job_id, taken.hold)
    assert evaluate(store, held(store)) == "succeeded"


def test_reports_that_come_twice_count_once(any_store):
    number = submit(any_store, person(any_store, "ada"), mode="test")
    taken = held(any_store)
    for _ in range(2):
        report(any_store, taken, Stage("test"), stub_result(CODE, "test"))
    assert [finish(any_store, taken) for _ in range(2)] == ["succeeded"] * 2
    with any_store.reading() as session:
        found = queries.submission(session, number, None)
    assert found is not None
    assert len(found.runs) == 1


@pytest.mark.parametrize(
    ("stage", "result"),
    [
        (Stage("benchmark"), stub_result(CODE, "benchmark")),
        (Stage("test", secret=True), stub_result(CODE, "test")),
        (Stage("test"), stub_result("other code", "test")),
    ],
)
def test_a_run_that_nobody_asked_for(store, stage, result):
    submit(store, person(store, "ada"), mode="test")
    with pytest.raises(BadRequest, match="no such run"):
        report(store, held(store), stage, result)


def test_cancelled_while_it_waits_and_while_it_runs(any_store):
    ada = person(any_store, "ada")
    waiting, running = submit(any_store, ada, mode="test"), submit(any_store, ada, mode="test")
    with any_store.writing() as session:
        submissions.cancel(session, waiting, ada)
    taken = held(any_store)
    assert taken.submission_id == running
    with any_store.writing() as session:
        submissions.cancel(session, running, ada)
    with pytest.raises(Conflict, match="no longer yours"):
        evaluate(any_store, taken)
    for number in (waiting, running):
        assert (job_of(any_store, number).status, job_of(any_store, number).error) == ("failed", "cancelled by ada")
    with pytest.raises(Conflict, match="already ended"), any_store.writing() as session:
        submissions.cancel(session, running, ada)


def test_deleted_while_it_runs(any_store):
    ada = person(any_store, "ada")
    number = submit(any_store, ada)
    taken = held(any_store)
    report(any_store, taken, Stage("test"), stub_result(CODE, "test"))
    with any_store.writing() as session:
        submissions.delete(session, number, ada)
    with pytest.raises(Conflict, match="no longer yours"):
        evaluate(any_store, taken)
    with any_store.reading() as session:
        assert queries.submission(session, number, ada) is None
    assert submit(any_store, ada) > number


def test_a_stopped_server_gives_its_runners_time(store):
    submit(store, person(store, "ada"), mode="test")
    expire(store, held(store))
    with store.writing() as session:
        jobs.renew_leases(session, 60.0)
    assert reap(store) == []


def test_one_must_be_registered(store):
    with pytest.raises(NotFound, match="register again"):
        claim(store, 77)
