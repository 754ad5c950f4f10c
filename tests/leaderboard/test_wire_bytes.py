"""The wire, byte by byte: what an unmodified popcorn client sends, and what it needs to find in the answer."""

import json
import socket
import threading
import time
from urllib.parse import urlsplit

import pytest
from people import CODE, LiveSite, claim, evaluate, finish, report, runner

from leaderboard import queries
from leaderboard.stages import Stage
from popcorn.http_models import Accepted, SubmissionDetail, SubmissionSummary, read
from popcorn.sse import SseParser
from scripts.stub_evaluation import stub_result

CLIENT_ID = "11111111-2222-4333-8444-555555555555"  # what /auth/init gives a client, which uses it at once


def exchange(site: LiveSite, request: bytes) -> bytes:
    """The server's answer to these bytes, until it closes the connection."""
    where = urlsplit(site.url)
    with socket.create_connection((where.hostname, where.port), timeout=60) as connection:
        connection.sendall(request)
        chunks = []
        while chunk := connection.recv(1 << 16):
            chunks.append(chunk)
    return b"".join(chunks)


def call(method: str, path: str, body: bytes = b"", kind: bytes = b"") -> bytes:
    """A request as the client's library writes it."""
    lines = [f"{method} {path} HTTP/1.1".encode(), f"x-popcorn-cli-id: {CLIENT_ID}".encode(), b"accept: */*", b"host: server"]
    lines += [b"content-type: " + kind] if kind else []
    lines += [f"content-length: {len(body)}".encode()] if body else []
    return b"\r\n".join([*lines, b"connection: close", b"", body])


def form(content: bytes, name: str = "submission.py") -> tuple[bytes, bytes]:
    """One part `file`, and its content type."""
    head = f'Content-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: application/octet-stream\r\n\r\n'
    return b"--b0undary\r\n" + head.encode() + content + b"\r\n--b0undary--\r\n", b"multipart/form-data; boundary=b0undary"


def post(path: str, content: bytes = CODE.encode()) -> bytes:
    return call("POST", path, *form(content))


def body_of(answer: bytes) -> bytes:
    """The body, its chunks joined."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head.lower():
        return body
    joined = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        joined, body = joined + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return joined


def json_of(answer: bytes, status: bytes = b"200 OK"):
    assert answer.startswith(b"HTTP/1.1 " + status), answer[:300]
    return json.loads(body_of(answer))


def run_everything(site: LiveSite) -> None:
    number = runner(site.store)
    while taken := claim(site.store, number):
        evaluate(site.store, taken, 1500.0)


def in_background(work, *args) -> threading.Thread:
    thread = threading.Thread(target=work, args=args)
    thread.start()
    return thread


def test_submit_as_the_client_does(site):
    accepted = json_of(exchange(site, post("/submission/doubling/CPU/leaderboard")), b"202 Accepted")
    assert accepted["status"] == "accepted"
    assert accepted["details"] == {"id": 1, "job_status_id": 1}
    needed = {"runner", "gpu", "queued_jobs", "running_jobs", "available_runners", "status", "error"}
    assert needed <= accepted["runner_queue"].keys()
    assert accepted["runner_queue"]["queued_jobs"] == 1
    assert "number 1 of 1" in accepted["runner_queue"]["status"]
    read(Accepted, accepted)


def test_names_come_lower_cased_and_gpus_verbatim(site):
    json_of(exchange(site, post("/submission/DOUBLING/cpu/test")), b"202 Accepted")


def test_polling_ends_with_both_scores_in_seconds(site):
    exchange(site, post("/submission/doubling/CPU/leaderboard"))
    waiting = json_of(exchange(site, call("GET", "/user/submissions/1")))
    assert (waiting["done"], waiting["job"]["status"], waiting["runs"]) == (False, "pending", [])
    run_everything(site)
    found = json_of(exchange(site, call("GET", "/user/submissions/1")))
    assert (found["done"], found["job"]["status"], found["job"]["error"]) == (True, "succeeded", None)
    assert found["code"] == CODE
    scores = {run["secret"]: run["score"] for run in found["runs"] if run["score"] is not None}
    assert scores == {False: 1500.0 / 1e9, True: 1507.0 / 1e9}
    assert {"start_time", "end_time", "mode", "secret", "runner", "score", "passed"} <= found["runs"][0].keys()
    public = next(run for run in found["runs"] if run["mode"] == "leaderboard" and not run["secret"])
    assert public["result"]["benchmark.0.mean"] == "1500.0"
    assert public["result"]["check"] == "pass"
    assert all(run["result"] is None for run in found["runs"] if run["secret"])
    read(SubmissionDetail, found)


def test_the_list_has_status_and_scores(site):
    exchange(site, post("/submission/doubling/CPU/leaderboard"))
    run_everything(site)
    exchange(site, post("/submission/doubling/CPU/test"))
    newest, oldest = json_of(exchange(site, call("GET", "/user/submissions?leaderboard=doubling&limit=10")))
    assert (newest["id"], newest["done"], newest["status"], newest["runs"]) == (2, False, "pending", [])
    assert (oldest["id"], oldest["done"], oldest["leaderboard_name"]) == (1, True, "doubling")
    assert oldest["file_name"] == "submission.py"
    assert [(run["gpu_type"], run["score"], run["secret"]) for run in oldest["runs"]] == [
        ("CPU", 1.5e-6, False), ("CPU", 1.507e-6, True),
    ]  # fmt: skip
    read(SubmissionSummary, newest)
    assert len(json_of(exchange(site, call("GET", "/user/submissions?limit=1")))) == 1


def test_a_failed_run_ends_polling_with_its_report(site):
    exchange(site, post("/submission/doubling/CPU/test", b"# stub: wrong\n"))
    taken = claim(site.store, runner(site.store))
    assert taken is not None
    evaluate(site.store, taken, fails=Stage("test"))
    found = json_of(exchange(site, call("GET", "/user/submissions/1")))
    assert found["job"]["status"] == "failed"
    assert found["job"]["error"].startswith("❌ Testing failed\n")
    assert "❌ size: 8; seed: 1\n> wrong: values differ" in found["job"]["error"]
    assert found["runs"][0]["result"]["test.0.status"] == "fail"


def test_events_are_frames_that_the_client_can_split(site):
    runs = in_background(lambda: (wait_for_a_job(site), run_everything(site)))
    answer = exchange(site, post("/doubling/CPU/profile"))
    runs.join()
    assert b"content-type: text/event-stream" in answer.partition(b"\r\n\r\n")[0].lower()
    body = body_of(answer)
    assert b"\r" not in body
    frames = body.removesuffix(b"\n\n").split(b"\n\n")
    for frame in frames:
        event, data = frame.split(b"\n")
        assert event.startswith(b"event: ")
        assert data.startswith(b"data: ")
        assert isinstance(json.loads(data.removeprefix(b"data: ")), dict)
    assert [frame.split(b"\n")[0] for frame in frames[:-1]] == [b"event: status"] * (len(frames) - 1)
    assert frames[0].split(b"\n")[1].startswith(b'data: {"message": "submission 1: ')
    assert frames[-1].split(b"\n")[0] in (b"event: result", b"event: error")


def test_a_result_event_has_every_field(site):
    runs = in_background(lambda: (wait_for_a_job(site), run_everything(site)))
    events = SseParser().feed(body_of(exchange(site, post("/doubling/CPU/leaderboard"))))
    runs.join()
    name, result = events[-1]
    assert name == "result"
    assert result["status"] == "success"
    public, secret = result["results"]
    assert public["success"] is True
    assert set(public["system"]) == {"gpu", "device_count", "cpu", "runtime", "platform", "torch", "hostname"}
    assert list(public["runs"]) == ["test", "benchmark", "leaderboard"]
    run = public["runs"]["leaderboard"]
    assert set(run) == {"start", "end", "compilation", "run", "profile"}
    assert set(run["run"]) == {"success", "passed", "command", "stdout", "stderr", "exit_code", "duration", "result"}
    assert run["run"]["result"]["benchmark.0.best"] == "1500.0"
    assert secret["runs"]["leaderboard"]["run"]["result"] == {}
    assert result["reports"][0].startswith("✅ Testing successful\n")
    assert len(result["reports"]) == 6


@pytest.mark.parametrize("ending", ["cancel", "failed"])
def test_what_broke_off_after_a_run_that_passed_is_an_error_event(site, ending):
    """`result` would say that all is well: what had passed until then is not the verdict."""
    exchange(site, post("/submission/doubling/CPU/leaderboard"))
    held = claim(site.store, runner(site.store))
    assert held is not None
    report(site.store, held, Stage("test"), stub_result(held.code, "test"))
    if ending == "cancel":
        json_of(exchange(site, call("POST", "/user/submissions/1/cancel")))
    else:
        finish(site.store, held, "failed", "the machine is on fire")
    name, error = SseParser().feed(body_of(exchange(site, call("GET", "/user/submissions/1/events"))))[-1]
    assert name == "error"
    assert ("cancelled by" if ending == "cancel" else "on fire") in error["detail"]


def test_events_are_ascii(site):
    """The client decodes chunk by chunk: a character that two chunks share would be lost."""
    exchange(site, post("/submission/doubling/CPU/test", b"# stub: wrong\n"))
    held = claim(site.store, runner(site.store))
    assert held is not None
    evaluate(site.store, held)
    frames = body_of(exchange(site, call("GET", "/user/submissions/1/events")))
    assert frames.isascii()
    assert b"\\u2705" in frames


def test_a_run_that_cannot_be_evaluated_is_an_error_event(site):
    def give_up() -> None:
        wait_for_a_job(site)
        taken = claim(site.store, runner(site.store))
        assert taken is not None
        finish(site.store, taken, "failed", "the device has fallen off")

    runs = in_background(give_up)
    name, error = SseParser().feed(body_of(exchange(site, post("/doubling/CPU/test"))))[-1]
    runs.join()
    assert (name, error["status"]) == ("error", "error")
    assert "the device has fallen off" in error["detail"]


def test_who_comes_back_gets_the_end(site):
    exchange(site, post("/submission/doubling/CPU/test"))
    run_everything(site)
    events = SseParser().feed(body_of(exchange(site, call("GET", "/user/submissions/1/events"))))
    assert [name for name, _ in events] == ["result"]


def wait_for_a_job(site: LiveSite) -> None:
    while True:
        with site.store.reading() as session:
            if queries.queue(session):
                return
        time.sleep(0.02)


def test_registration(site):
    state = json_of(exchange(site, call("GET", "/auth/init?provider=github")))
    assert list(state) == ["state"]
    assert len(state["state"]) == 36
    refused = json_of(exchange(site, call("GET", "/auth/init?provider=x")), b"400 Bad Request")
    assert refused["detail"].startswith("provider 'x'")


def test_leaderboards_and_gpus(site):
    (board,) = json_of(exchange(site, call("GET", "/leaderboards")))
    assert (board["name"], board["gpu_types"]) == ("doubling", ["CPU", "H200"])
    assert board["task"]["description"] == board["description"]
    assert json_of(exchange(site, call("GET", "/gpus/doubling"))) == ["CPU", "H200"]
    assert "no leaderboard 'x'" in json_of(exchange(site, call("GET", "/gpus/x")), b"404 Not Found")["detail"]


def test_delete(site):
    exchange(site, post("/submission/doubling/CPU/test"))
    assert json_of(exchange(site, call("DELETE", "/user/submissions/1"))) == {"status": "ok", "submission_id": 1}
    again = json_of(exchange(site, call("DELETE", "/user/submissions/1")), b"404 Not Found")
    assert again["detail"] == "no submission 1 of yours"


@pytest.mark.parametrize(
    ("path", "content", "status", "said"),
    [
        ("/submission/nothing/CPU/test", b"x = 1", b"404", "no leaderboard 'nothing'"),
        ("/submission/doubling/B200/test", b"x = 1", b"400", "has no GPU 'B200'; it has CPU, H200"),
        ("/submission/doubling/CPU/ranked", b"x = 1", b"400", "known are test, benchmark, leaderboard, profile"),
        ("/submission/doubling/CPU/test", b"torch.cuda.Stream()", b"400", "launch on the default queue"),
        ("/submission/doubling/CPU/test", b"\xff\xfe", b"400", "is not UTF-8"),
        ("/submission/doubling/CPU/test", b"  \n", b"400", "is empty"),
        ("/submission/doubling/CPU/test", b"#!POPCORN gpus A B\nx", b"400", "takes one name, not 2"),
        ("/nothing/CPU/profile", b"x = 1", b"404", "no leaderboard 'nothing'"),
    ],
)
def test_refusals_say_why(site, path, content, status, said):
    answer = exchange(site, post(path, content))
    assert answer.split(b" ")[1] == status
    assert said in json.loads(body_of(answer))["detail"]
