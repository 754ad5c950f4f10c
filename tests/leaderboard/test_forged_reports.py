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


@pytest.mark.parametrize("role", ["", "user", "runner"])
def test_only_runners_send_large_bodies(site, role):
    client = site.client("somebody", role) if role else site.client()
    answer = client.post("/runner/claim", json={"runner_id": 1, "more": "x" * 2_000_000})
    assert answer.status_code == (422 if role == "runner" else 413)
