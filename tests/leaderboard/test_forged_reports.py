"""Runners that report what no evaluation finds: refused with a reason, and nobody's page breaks."""

import contextlib
from dataclasses import replace

import pytest
from people import Claimed, claim, finish, person, report, runner, submit

from harness.result import Score
from leaderboard import queries
from leaderboard.errors import BadRequest
from leaderboard.stages import Stage, stages
from scripts.stub_evaluation import stub_result


def held(store, mode: str = "leaderboard") -> Claimed:
    submit(store, person(store, "ada"), mode=mode)
    taken = claim(store, runner(store))
    assert taken is not None
    return taken


@pytest.mark.parametrize("value_ns", [0.0, -1.0, float("inf"), float("nan")])
def test_a_score_is_a_time(store, value_ns):
    """Gaps are ratios to the best: one of zero would be everybody's fault page."""
    taken = held(store)
    for stage in stages("leaderboard")[:2]:
        report(store, taken, stage, stub_result(taken.code, stage.mode))
    forged = replace(stub_result(taken.code, "leaderboard"), score=Score("geom", "median", value_ns))
    with pytest.raises(BadRequest, match="is no time"):
        report(store, taken, Stage("leaderboard"), forged)
    finish(store, taken)
    with store.reading() as session:
        assert queries.ranking(session, "doubling", "CPU") == []


@pytest.mark.parametrize("started_at", ["", "yesterday", "2026-11-30T07:00:00", "9" * 5000])
def test_a_start_is_a_time(store, started_at):
    taken = held(store, "test")
    with pytest.raises(BadRequest, match="no ISO 8601 time"):
        report(store, taken, Stage("test"), replace(stub_result(taken.code, "test"), started_at=started_at))


@pytest.mark.parametrize("started_at", ["2001-01-01T00:00:00+00:00", "2999-12-31T23:59:59-12:00"])
def test_a_runners_clock_may_be_wrong(site, started_at):
    """Leases go by the server's clock; what the runner says of its own is shown and decides nothing."""
    client = site.client("ada")
    site.upload(client, "test")
    taken = claim(site.store, runner(site.store))
    assert taken is not None
    report(site.store, taken, Stage("test"), replace(stub_result(taken.code, "test"), started_at=started_at))
    assert finish(site.store, taken) == "succeeded"
    for path in ("/user/submissions/1", "/user/submissions/1/events", "/submission/1", "/board/doubling", "/queue"):
        assert client.get(path).status_code == 200, path


@pytest.mark.parametrize("said", ["\0", "\ud800", "a" * 1_000_000])
def test_no_text_is_a_fault_of_the_database(any_store, said):
    """A fault would be answered 5xx, and a runner would repeat the report for an hour."""
    taken = held(any_store, "test")
    with contextlib.suppress(BadRequest):  # where this database cannot hold it
        assert finish(any_store, taken, "failed", said) == "failed"


def call(site, what: str, **body) -> int:
    taken = held(site.store, "test")
    return site.client("lab", "runner").post(f"/runner/jobs/{taken.job_id}/{what}", json=body).status_code


@pytest.mark.parametrize("lease", ["", "é", "x" * 100_000, "0" * 32])
@pytest.mark.parametrize("what", ["heartbeat", "release"])
def test_forged_leases(site, what, lease):
    assert call(site, what, lease=lease) == 409


@pytest.mark.parametrize(
    "progress",
    [{"case": 1}, {"mode": {"a": 1}}, {"extra": "x"}, {"phase": "x" * 1000}, {"case": -1}, {"case": 10**30}, {"case": "<b>"}],
)
def test_forged_progress(site, progress):
    honest = {"mode": "test", "secret": False, "case": 1, "cases": 1, "phase": "sampling", "passed": 0}
    forged = progress if progress == {"case": 1} else {**honest, **progress}
    assert call(site, "heartbeat", lease="", progress=forged) == 422
    assert call(site, "heartbeat", lease="", progress=honest) == 409


NO_JSON = {
    "lists": b"[" * 200_000,
    "objects": b'{"runner_id": ' * 100_000,
    "infinite": b'{"runner_id": 1e999}',
    "large": b'{"runner_id": ' + b"9" * 9999 + b"}",
}


@pytest.mark.parametrize("body", NO_JSON.values(), ids=NO_JSON.keys())
def test_json_that_is_none(site, body):
    answer = site.client("lab", "runner").post("/runner/claim", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)


@pytest.mark.parametrize("role", ["", "user", "runner"])
def test_only_runners_send_large_bodies(site, role):
    client = site.client("somebody", role) if role else site.client()
    answer = client.post("/runner/claim", json={"runner_id": 1, "more": "x" * 2_000_000})
    assert answer.status_code == (422 if role == "runner" else 413)
