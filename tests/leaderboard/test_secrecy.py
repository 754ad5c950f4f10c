"""What must not be told: the secret seed, what happens in a secret run, other people's code."""

import json
from dataclasses import replace

import pytest
from people import CODE, claim, evaluate, finish, person, report, runner, submit

from harness.result import CaseResult, Status, result_to_json
from leaderboard import queries
from leaderboard.accounts import Identity
from leaderboard.runner import evaluate as evaluation
from leaderboard.stages import Stage, stages
from leaderboard.store.models import Base
from scripts.stub_evaluation import stub_result

MARK = "INPUTS-OF-THE-SECRET-RUN"
OWN = "# my own secret algorithm\n"


def a_talkative_secret_run(store) -> int:
    """A submission whose secret run prints and raises what it was given."""
    number = submit(store, person(store, "ada"), code=CODE + OWN)
    held = claim(store, runner(store))
    assert held is not None
    for stage in stages("leaderboard")[:3]:
        report(store, held, stage, stub_result(held.code, stage.mode))
    said = CaseResult({"size": 8, "seed": 1}, Status.ERROR, f"ValueError: {MARK}", detail=f"line: {MARK}", printed=MARK)
    report(store, held, Stage("test", True), replace(stub_result(held.code, "test"), cases=(said,), error=MARK))
    assert finish(store, held) == "failed"
    return number


def everything_about(site, number: int, name: str, role: str = "user") -> str:
    """All that somebody can read: the API and the pages."""
    client = site.client(name, role)
    own, page = f"/user/submissions/{number}", f"/submission/{number}"
    paths = ["/user/submissions", own, f"{own}/events", "/leaderboards", page, f"{page}/code", "/", "/queue", "/history"]
    paths += ["/board/doubling", "/users/ada"]
    return "\n".join(client.get(path).text for path in paths)


def test_an_author_does_not_learn_what_happened_in_the_secret_run(site):
    number = a_talkative_secret_run(site.store)
    said = everything_about(site, number, "ada")
    assert OWN.strip() in said
    assert "in the secret run" in said
    assert MARK not in said


def test_an_administrator_does(site):
    number = a_talkative_secret_run(site.store)
    with site.store.reading() as session:
        found = queries.submission(session, number, Identity(0, "root", "admin"))
    assert found is not None
    assert MARK in "".join(run.report for run in found.runs)


@pytest.mark.parametrize("name", ["", "eve"])
def test_nobody_else_sees_code_or_reports(site, name):
    ada = person(site.store, "ada")
    number = submit(site.store, ada, mode="test", code=CODE + OWN)
    held = claim(site.store, runner(site.store))
    assert held is not None
    assert evaluate(site.store, held, fails=Stage("test")) == "failed"  # the stub's report quotes the code
    assert "values differ, the code was" in everything_about(site, number, "ada")
    said = everything_about(site, number, name)
    assert OWN.strip() not in said
    assert "the code was" not in said
    assert "Testing failed" in said  # the verdict is public


def test_a_runners_task_has_no_seed(site):
    submit(site.store, person(site.store, "ada"))
    lab = site.client("lab", "runner")
    number = lab.post("/runner/register", json={"name": "r", "gpu": "CPU", "device": DEVICE, "system": {}}).json()["runner_id"]
    task = lab.post("/runner/claim", json={"runner_id": number}).json()
    assert "seed" not in json.dumps({key: value for key, value in task.items() if key != "code"})


DEVICE = {"name": "Stub device", "kind": "cpu", "arch": "none"}


def test_the_seed_is_drawn_by_the_evaluating_process_and_leaves_no_trace(monkeypatch, tmp_path):
    """A real evaluation under a known secret seed: none of its events has it, nor what it makes of the cases' own seeds."""
    import io

    import torch
    from people import DOUBLING

    from leaderboard.problems import pack_problem
    from leaderboard.runner.request import EvaluationRequest
    from popcorn.cases import combine_seed

    secret, seen = 1_987_654_321, []
    monkeypatch.setattr(evaluation.secrets, "randbits", lambda bits: secret)
    monkeypatch.setattr(evaluation, "evaluate", lambda request, events: seen.append(request) or stub_result(code, request.mode))
    monkeypatch.setattr(evaluation, "select_device", lambda name: torch.device("cpu"))
    code, out = (DOUBLING / "submission.py").read_text(), io.StringIO()
    problem, _ = pack_problem(DOUBLING)
    evaluation._evaluate(EvaluationRequest(problem, "submission.py", code, stages("leaderboard")), evaluation.Events(out))
    assert [request.seed for request in seen] == [None, None, None, secret, secret, secret]
    assert [request.cases_from for request in seen] == ["smoke"] * 3 + ["smoke, secret seed"] * 3
    assert [json.loads(line)["kind"] for line in out.getvalue().splitlines()] == ["stage", "result"] * 6
    for number in (secret, combine_seed(4, secret)):
        assert str(number) not in out.getvalue()


def test_no_table_has_a_place_for_a_secret_seed():
    names = [f"{table}.{column}" for table, kept in Base.metadata.tables.items() for column in kept.columns.keys()]  # noqa: SIM118
    assert not [name for name in names if "seed" in name]
    assert "seed" not in result_to_json(stub_result(CODE, "test"))
