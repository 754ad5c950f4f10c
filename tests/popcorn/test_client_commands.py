"""python -m popcorn against a server that speaks the wire: what is sent, what is printed, how it exits."""

import json
from dataclasses import replace
from email.parser import BytesParser
from email.policy import HTTP

import pytest
from popcorn_server import BREAK, PopcornServer

from popcorn import follow
from popcorn.__main__ import main
from popcorn.client_errors import Exit
from popcorn.http_models import JobState, RunDetail, SubmissionDetail, to_json
from popcorn.sse import sse_frame

CODE = "#!POPCORN leaderboard mixed-mla\n#!POPCORN gpu H200\ndef custom_kernel(data):\n    return data\n"
ACCEPTED = 202, {
    "details": {"id": 17, "job_status_id": 3}, "status": "accepted",
    "runner_queue": {
        "runner": "lab", "gpu": "H200", "queued_jobs": 2, "running_jobs": 1, "available_runners": 1, "status": "ok",
        "error": None, "position": 2,
    },
}  # fmt: skip
TEST_RESULT = {
    "test-count": "2", "test.0.spec": "size: 1", "test.0.status": "pass", "test.1.spec": "size: 2", "test.1.status": "fail",
    "test.1.error": "mismatch\\nat 0", "check": "fail",
}  # fmt: skip
BENCHMARK_RESULT = {
    "benchmark-count": "1", "benchmark.0.spec": "size: 3", "benchmark.0.mean": "2000.0", "benchmark.0.err": "10",
    "benchmark.0.best": "1900", "benchmark.0.worst": "2500", "check": "pass",
}  # fmt: skip
AT = "2026-01-02T03:04:05Z"
PUBLIC = RunDetail(AT, AT, "leaderboard", False, "H200", 4.5934567e-05, True, BENCHMARK_RESULT)
SECRET = replace(PUBLIC, secret=True, score=4.6e-05, result=None)
WAITING = SubmissionDetail(17, 1, "mixed-mla", "submission.py", 5, AT, False, CODE, (), JobState("pending", None, None))
DONE = replace(WAITING, done=True, runs=(PUBLIC, SECRET), job=JobState("succeeded", None, None))
LOST = replace(PUBLIC, passed=False, result=TEST_RESULT)
FAILED = replace(DONE, runs=(LOST,), job=JobState("failed", "tests failed\nmore", None))
SHOW = "GET /user/submissions/17"
EVENTS = "GET /user/submissions/17/events"


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.setattr(follow, "RETRY_S", 0.0)
    monkeypatch.setattr(follow, "POLL_S", 0.0)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("POPCORN_CLI_ID", raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with PopcornServer() as started:
        monkeypatch.setenv("POPCORN_API_URL", started.url)
        yield started


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "submission.py"
    path.write_text(CODE)
    return path


def test_submit_sends_the_file_as_the_wire_asks(server, file, monkeypatch):
    monkeypatch.setenv("POPCORN_CLI_ID", "token-of-alice")
    server.answer("POST /submission/mixed-mla/H200/leaderboard", ACCEPTED)
    server.answer(SHOW, to_json(DONE))
    assert main(["submit", str(file)]) == Exit.OK
    call = server.calls[0]
    assert call.headers["X-Popcorn-Cli-Id"] == "token-of-alice"
    form = BytesParser(policy=HTTP).parsebytes(f"Content-Type: {call.headers['Content-Type']}\r\n\r\n".encode() + call.body)
    (part,) = form.iter_parts()  # pyright: ignore[reportAttributeAccessIssue]
    assert part.get_param("name", header="content-disposition") == "file"
    assert part.get_filename() == "submission.py"
    assert part.get_payload(decode=True) == CODE.encode()


def test_the_leaderboards_name_is_sent_in_lower_case_and_the_gpus_verbatim(server, file):
    server.answer("POST /submission/mixed-mla/MI355X%2F8/test", ACCEPTED)
    server.answer(SHOW, to_json(DONE))
    assert main(["submit", str(file), "--leaderboard", "Mixed-MLA", "--gpu", "MI355X/8", "--mode", "test"]) == Exit.OK


def test_without_directives_the_only_leaderboard_and_gpu_are_taken(server, tmp_path):
    path = tmp_path / "plain.py"
    path.write_text("x = 1\n")
    server.answer("GET /leaderboards", [{"name": "one"}])
    server.answer("GET /gpus/one", ["A", "B"])
    assert main(["submit", str(path)]) == Exit.USAGE
    server.answer("GET /gpus/one", ["A"])
    server.answer("POST /submission/one/A/leaderboard", ACCEPTED)
    assert main(["submit", str(path), "--no-wait"]) == Exit.OK


def test_scores_keep_their_digits_and_both_are_told(server, file, capsys):
    server.answer("POST /submission/mixed-mla/H200/leaderboard", ACCEPTED)
    said = sse_frame("status", {"message": "leaderboard: case 1 of 1"})
    server.answer(EVENTS, said + sse_frame("result", {"status": "succeeded"}))
    server.answer(SHOW, to_json(WAITING), to_json(DONE))
    assert main(["submit", str(file)]) == Exit.OK
    said = capsys.readouterr()
    assert "Submission 17 to mixed-mla on H200, mode leaderboard, number 2 in the queue" in said.out
    assert "Geomean score (public) on H200: 45.934567 µs" in said.out
    assert "Geomean score (secret) on H200: 46 µs" in said.out
    assert "✅ size: 3" in said.out
    assert "⏱ 2 ± 0.01 µs" in said.out
    assert "leaderboard: case 1 of 1" in said.err


def test_a_server_without_events_is_polled_and_tells_cases_too(server, capsys):
    server.answer(SHOW, to_json(WAITING), to_json(WAITING), to_json(FAILED))
    assert main(["watch", "17"]) == Exit.FAILED
    said = capsys.readouterr().out
    assert "❌ size: 2" in said
    assert "> mismatch" in said
    assert said.rstrip().endswith("Submission 17: failed: tests failed")
    assert server.paths().count(EVENTS) == 1
    assert server.paths().count(SHOW) == 3


@pytest.mark.parametrize("trouble", [BREAK, (500, {"detail": "oops"}), (429, {"detail": "slow down"}), (502, "not json")])
def test_trouble_on_the_way_loses_nothing(server, capsys, trouble):
    server.answer(EVENTS, BREAK, sse_frame("status", {"message": "x"}))
    server.answer(SHOW, trouble, to_json(WAITING), trouble, trouble, to_json(DONE))
    assert main(["watch", "17"]) == Exit.OK
    said = capsys.readouterr()
    assert said.err.count("Nothing is lost") == 2
    assert said.out.count("public leaderboard run") == 1


def test_a_run_is_told_once(server, capsys):
    half = replace(WAITING, runs=(PUBLIC,), job=JobState("running", None, None))
    server.answer(SHOW, to_json(half), to_json(half), to_json(DONE))
    assert main(["watch", "17"]) == Exit.OK
    said = capsys.readouterr().out
    assert said.count("public leaderboard run") == said.count("secret leaderboard run") == 1


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (replace(DONE, runs=(PUBLIC, replace(SECRET, passed=False))), Exit.FAILED),  # `succeeded` is not enough
        (replace(DONE, runs=()), Exit.FAILED),
        (replace(FAILED, done=False), Exit.FAILED),
        (replace(FAILED, job=JobState("timed_out", "too long", None)), Exit.TIMED_OUT),
        (replace(DONE, job=JobState("hacked", "reads the clock", None)), Exit.FAILED),
        (replace(DONE, job=None), Exit.OK),
    ],
)
def test_the_exit_code_tells_how_it_ended(server, end, code):
    server.answer(SHOW, to_json(end))
    assert main(["watch", "17"]) == code
    assert main(["show", "17"]) == code


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (BREAK, Exit.UNREACHABLE, "no answer from"),
        ((401, {"detail": "no token"}), Exit.NOT_AUTHORISED, "POPCORN_CLI_ID"),
        ((404, {"detail": "no submission 17"}), Exit.NOT_FOUND, "no submission 17"),
        ((429, {"detail": "12 in an hour; wait 30 s"}), Exit.RATE_LIMITED, "wait 30 s"),
        ((413, {"detail": [{"msg": "too large"}]}), Exit.REFUSED, "too large"),
        ((500, {"detail": "oops"}), Exit.SERVER_FAULT, "oops"),
        ((302, {}), Exit.PROTOCOL, "redirects to http://elsewhere.invalid/"),
        ({"id": "seventeen"}, Exit.PROTOCOL, "answer"),
        ([], Exit.PROTOCOL, "list where an object belongs"),
    ],
)
def test_errors_are_one_line_with_their_own_code(server, capsys, answer, code, said):
    server.answer(SHOW, answer)
    assert main(["show", "17"]) == code
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert said in lines[0]


def test_nobody_listens(monkeypatch, capsys):
    with PopcornServer() as gone:
        monkeypatch.setenv("POPCORN_API_URL", gone.url)
    assert main(["list"]) == Exit.UNREACHABLE
    assert "is the server running" in capsys.readouterr().err


def test_a_file_that_every_server_refuses_is_not_sent(server, file, capsys):
    file.write_text("# torch.cuda.Stream\n")
    assert main(["submit", str(file)]) == Exit.REFUSED
    assert server.calls == []
    assert "line 1" in capsys.readouterr().err
    assert main(["submit", str(file.parent / "missing.py")]) == Exit.USAGE


def test_a_lost_answer_to_an_upload_says_how_to_find_out(server, file, capsys):
    server.answer("POST /submission/mixed-mla/H200/leaderboard", BREAK)
    assert main(["submit", str(file)]) == Exit.UNREACHABLE
    assert "popcorn list" in capsys.readouterr().err


def test_profile_listens_to_the_run_itself(server, file, capsys):
    result = {"status": "succeeded", "results": [], "reports": ["done"]}
    well = sse_frame("status", {"message": "profiling"}) + sse_frame("result", result)
    badly = sse_frame("error", {"status": "error", "detail": "no GPU"})
    server.answer("POST /mixed-mla/H200/profile", well, badly, b": nothing\n\n")
    command = ["submit", str(file), "--mode", "profile"]
    assert main([*command, "--output", str(file.parent / "out.json")]) == Exit.OK
    assert json.loads((file.parent / "out.json").read_text())["reports"] == ["done"]
    assert main(command) == Exit.FAILED
    assert "no GPU" in capsys.readouterr().out
    assert main(command) == Exit.UNREACHABLE


def test_list_tells_status_and_both_scores(server, capsys):
    runs = [{"gpu_type": "H200", "score": 4.5e-05, "secret": False}, {"gpu_type": "H200", "score": 4.6e-05, "secret": True}]
    row = {"id": 17, "leaderboard_name": "m", "file_name": "s.py", "submission_time": AT, "done": True, "runs": runs}
    rows = [{**row, "status": "timed_out"}, {**row, "id": 18, "runs": []}]
    server.answer("GET /user/submissions?leaderboard=m&limit=3", rows)
    assert main(["list", "--leaderboard", "m", "--limit", "3"]) == Exit.OK
    said = capsys.readouterr().out
    assert "timed out" in said
    assert "H200 public 45 µs, H200 secret 46 µs" in said
    server.answer("GET /user/submissions?limit=20", [])
    assert main(["list"]) == Exit.OK


def test_an_existing_output_is_kept(server, file, capsys):
    server.answer(SHOW, to_json(DONE))
    path = file.parent / "out.json"
    assert main(["show", "17", "--output", str(path)]) == Exit.OK
    assert json.loads(path.read_text())["id"] == 17
    assert main(["show", "17", "--output", str(path)]) == Exit.USAGE


def test_delete_asks_or_is_told_not_to(server, monkeypatch, capsys):
    server.answer("DELETE /user/submissions/17", {"status": "ok", "submission_id": 17})
    assert main(["delete", "17"]) == Exit.USAGE  # nobody to ask
    assert server.calls == []
    assert main(["delete", "17", "--force"]) == Exit.OK
    assert server.paths() == ["DELETE /user/submissions/17"]


def test_ctrl_c_says_how_to_come_back(server, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    server.answer(SHOW, to_json(WAITING))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follow._Waiter, "wait", interrupt)
        assert main(["watch", "17"]) == Exit.INTERRUPTED
    assert "python -m popcorn watch 17" in capsys.readouterr().err


def test_nothing_that_a_server_says_reaches_the_terminal_raw(server, capsys):
    evil = "\x1b[2J\u202e"
    run = replace(PUBLIC, report=f"report {evil}", runner=evil)
    end = replace(DONE, file_name=evil, leaderboard_name=evil, runs=(run,), job=JobState("failed", evil, None))
    server.answer(EVENTS, sse_frame("status", {"message": evil}))
    server.answer(SHOW, to_json(replace(end, done=False, job=JobState("running", None, None))), to_json(end))
    main(["watch", "17"])
    main(["show", "17"])
    server.answer(SHOW, (404, {"detail": evil}))
    main(["show", "17"])
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert "\u202e" not in said.out + said.err
