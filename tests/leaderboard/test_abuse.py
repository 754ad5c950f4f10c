"""Requests that no honest client makes: refused with a reason, nothing kept, nobody else disturbed."""

import contextlib
import gzip
import socket
import threading
import time
from dataclasses import replace
from urllib.parse import quote, urlsplit

import httpx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from people import CODE, Claimed, LiveSite, claim, evaluate, person, runner, submit
from sqlalchemy import select

from leaderboard import submissions
from leaderboard.api.guard import RUNNER_BODY_BYTES
from leaderboard.errors import BadRequest, Closed, Conflict, LimitReached, NotFound, StoreError
from leaderboard.settings import Settings
from leaderboard.store.columns import utc_now
from leaderboard.store.models import Audit, Code, Leaderboard, Run, Submission, Token
from popcorn.rules import MAX_BYTES


def count(store, table) -> int:
    with store.reading() as session:
        return len(session.scalars(select(table)).all())


def test_the_largest_file_is_taken_and_one_byte_more_is_not(site):
    client = site.client("ada")
    largest = "#" * MAX_BYTES
    assert site.upload(client, "test", largest).status_code == 202
    answer = site.upload(client, "test", largest + "#")
    assert (answer.status_code, "at most 1,000,000" in answer.json()["detail"]) == (400, True)
    answer = site.upload(client, "test", largest * 2)
    assert answer.status_code == 413
    assert count(site.store, Code) == 1


@pytest.mark.parametrize(
    ("path", "limit"), [("/submission/doubling/CPU/test", MAX_BYTES), ("/runner/claim", RUNNER_BODY_BYTES)]
)
def test_an_announced_flood_is_refused_before_it_comes(site, path, limit):
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {2 * limit}\r\n\r\n"
    assert raw(site, head.encode()).startswith(b"HTTP/1.1 413 ")


def test_a_flood_without_announcement_is_cut_off(site):
    where, sent = urlsplit(site.url), 0
    with socket.create_connection((where.hostname, where.port), timeout=30) as connection, contextlib.suppress(OSError):
        connection.sendall(b"POST /submission/doubling/CPU/test HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        while sent < 200 * MAX_BYTES:
            connection.sendall(b"10000\r\n" + b"x" * (1 << 16) + b"\r\n")
            sent += 1 << 16
    assert sent < 200 * MAX_BYTES
    assert site.client().get("/health").status_code == 200


class TestSlowClients:
    """A body that dawdles is given up; while it does, others are served."""

    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(body_timeout_s=5.0)  # an honest body is there in time even on a busy machine

    def test_they_are_given_up_and_hold_nobody_up(self, site):
        head = b"POST /submission/doubling/CPU/test HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
        with contextlib.ExitStack() as stack:
            bodiless = [stack.enter_context(self._saying(site, head + b"x")) for _ in range(100)]
            headless = [stack.enter_context(self._saying(site, said)) for said in (b"", head[:20]) for _ in range(5)]
            later = stack.enter_context(self._saying(site, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"))
            assert later.recv(1 << 12).startswith(b"HTTP/1.1 200 ")
            later.sendall(head[:20])
            assert site.upload(site.client("ada"), "test").status_code == 202
            for connection in bodiless:
                assert connection.recv(100).startswith(b"HTTP/1.1 408 ")
            for connection in [*headless, later]:
                while connection.recv(1 << 12):
                    pass

    @staticmethod
    def _saying(site, first: bytes) -> socket.socket:
        where = urlsplit(site.url)
        connection = socket.create_connection((where.hostname, where.port), timeout=60)
        connection.sendall(first)
        return connection


MULTIPART = {"Content-Type": "multipart/form-data; boundary=b"}


@pytest.mark.parametrize("path", ["/submission/doubling/CPU/test", "/doubling/CPU/test"])
@pytest.mark.parametrize(
    "how",
    [
        {"json": {"file": "x"}},
        {"data": {"file": "no file, a field"}},
        {"files": {"other": ("a.py", b"x")}},
        {"content": b"\x00\xff", "headers": {"Content-Type": "multipart/form-data; boundary=b"}},
        {"content": b"x", "headers": {"Content-Type": "multipart/form-data"}},
        {"content": gzip.compress(b"x" * 50_000_000), "headers": {**MULTIPART, "Content-Encoding": "gzip"}},
        {"content": b"--b\r\n" + b'Content-Disposition: form-data; name="a"\r\n\r\n\r\n--b\r\n' * 10_000, "headers": MULTIPART},
        {"content": b""},
    ],
)
def test_bodies_that_are_no_upload(site, path, how):
    answer = site.client("ada").post(path, **how)
    assert 400 <= answer.status_code < 500
    assert isinstance(answer.json()["detail"], str)
    assert count(site.store, Submission) == 0


BAD_NAMES = [
    "../../etc/passwd.py", "..\\evil.py", "/abs.py", "a/b.py", "nul\0.py", "line\nbreak.py", "tab\t.py", "x" * 300 + ".py",
    ".py", "", "noext", "a.cu", "a.py.exe", "é" * 127 + ".py", "txt.\u202eyp.py", "\x9bc1.py", "two\u2028lines.py",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
def test_file_names_that_are_none(store, name):
    ada, offer = person(store, "ada"), submissions.Offer("CPU", "test", name, b"x = 1")
    with store.writing() as session:
        board = session.scalars(select(Leaderboard)).one()
        with pytest.raises(BadRequest):
            submissions.accept(session, ada, board, offer, Settings())


@pytest.mark.parametrize("name", ["a.py", "x" * 252 + ".py", "é" * 126 + ".py", "-c.py", "$(reboot) `id`;.py", "日本.py"])
def test_file_names_that_are_odd_and_honest(store, name):
    ada, offer = person(store, "ada"), submissions.Offer("CPU", "test", name, b"x = 1")
    with store.writing() as session:
        board = session.scalars(select(Leaderboard)).one()
        assert submissions.accept(session, ada, board, offer, Settings()).file_name == name


def test_html_in_a_name_comes_back_as_text(site):
    name = "<img src=x onerror=alert(1)>.py"
    client = site.client("ada")
    assert client.post("/submission/doubling/CPU/test", files={"file": (name, CODE.encode())}).status_code == 202
    assert client.get("/user/submissions/1").json()["file_name"] == name
    for path in ("/", "/queue", "/board/doubling", "/submission/1", "/users/ada"):
        answer = client.get(path, headers={"Accept": "text/html"})
        assert answer.status_code == 200
        assert "<img src=x" not in answer.text


@pytest.mark.parametrize("path", ["/<script>alert(1)</script>", "/board/<script>x", "/submission/<b>", "/users/<b>"])
def test_html_in_an_address_comes_back_as_text(site, path):
    answer = site.client().get(path, headers={"Accept": "text/html"})
    assert answer.status_code == 404
    assert "<script>" not in answer.text
    assert "<b>" not in answer.text


@pytest.mark.parametrize("path", ["/", "/health", "/nothing", "/user/submissions", "/submission/doubling/CPU/test"])
def test_every_answer_has_the_headers(site, path):
    headers = site.client().get(path).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"
    assert "server" not in headers


def test_forged_numbers(site):
    mine, other = site.client("ada"), site.client("eve")
    site.upload(mine, "test")
    for number in ("1", "0", "-1", "99999999999999999999999", "1e3", "abc", "%00", "1;DROP TABLE jobs", "1/../2"):
        for call in (other.get, other.delete):
            assert call(f"/user/submissions/{number}").status_code in (400, 404, 405, 422), number
    assert other.post("/user/submissions/1/cancel").status_code == 404
    assert other.get("/user/submissions/1/events").status_code == 404
    assert mine.get("/user/submissions/1").json()["job"]["status"] == "pending"


@pytest.mark.parametrize("token", ["x", "short", "a" * 300, "' OR 1=1 --"])
def test_tokens_that_could_be_guessed_make_no_user(site, token):
    answer = site.client().get("/user/whoami", headers={"X-Popcorn-Cli-Id": token})
    assert answer.status_code == 400
    assert count(site.store, Token) == 0


def test_many_first_calls_with_one_id_make_one_user(site):
    headers, found = {"X-Popcorn-Cli-Id": "0123456789abcdef-new"}, []

    def call() -> None:
        found.append(site.client().get("/user/whoami", headers=headers).json()["name"])

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert count(site.store, Token) == 1


class TestClosedServer:
    """Only tokens made here count."""

    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(open_registration=False)

    def test_nobody_enrols(self, site):
        answer = site.client().get("/user/whoami", headers={"X-Popcorn-Cli-Id": "0123456789abcdef-new"})
        assert answer.status_code == 401
        assert "tokens create NAME" in answer.json()["detail"]
        assert site.client().get("/auth/init?provider=github").status_code == 403
        assert site.client("ada").get("/user/whoami").json() == {"name": "ada", "role": "user"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/admin/start"), ("POST", "/admin/stop"), ("GET", "/admin/stats"), ("GET", "/admin/audit"),
        ("GET", "/admin/submissions/1"), ("DELETE", "/admin/submissions/1"), ("POST", "/admin/submissions/1/hacked"),
        ("POST", "/admin/leaderboards"), ("DELETE", "/admin/leaderboards/doubling"), ("POST", "/runner/register"),
        ("POST", "/runner/claim"), ("GET", "/runner/problems/0"), ("POST", "/runner/jobs/1/heartbeat"),
        ("POST", "/runner/jobs/1/runs"), ("POST", "/runner/jobs/1/finish"), ("POST", "/runner/jobs/1/release"),
    ],
)  # fmt: skip
def test_roles(site, method, path):
    body = {} if method == "GET" else {"json": {}}
    assert site.client().request(method, path, **body).status_code == 401
    assert site.client("ada").request(method, path, **body).status_code == 403
    if path.startswith("/admin"):
        assert site.client("lab", "runner").request(method, path, **body).status_code == 403


def test_concurrent_deletes(any_store):
    ada = person(any_store, "ada")
    number, found = submit(any_store, ada, mode="test"), []

    def delete() -> None:
        try:
            with any_store.writing() as session:
                submissions.delete(session, number, ada)
            found.append("deleted")
        except NotFound:
            found.append("gone")

    threads = [threading.Thread(target=delete) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == ["deleted"] + ["gone"] * 7


def test_deleted_while_a_runner_reports(any_store):
    """Either comes first, and neither is a fault of the database."""
    ada, lab, faults = person(any_store, "ada"), runner(any_store), []

    def report_runs(held: Claimed) -> None:
        try:
            evaluate(any_store, held)
        except Conflict:
            pass
        except Exception as fault:
            faults.append(fault)

    for _ in range(5):
        number = submit(any_store, ada)
        held = claim(any_store, lab)
        assert held is not None
        reporting = threading.Thread(target=report_runs, args=(held,))
        reporting.start()
        with any_store.writing() as session:
            submissions.delete(session, number, ada)
        reporting.join()
    assert faults == []
    assert count(any_store, Run) == count(any_store, Submission) == 0


def test_the_hourly_limit_counts_what_was_deleted_too(store):
    ada, bob = person(store, "ada"), person(store, "bob")
    settings = replace(Settings(), limits_per_hour={"test": 2, "benchmark": 1, "leaderboard": 1, "profile": 1})
    for _ in range(2):
        number = submit(store, ada, mode="test", settings=settings)
        with store.writing() as session:
            submissions.delete(session, number, ada)
    with pytest.raises(LimitReached, match="2 test submissions to doubling in the last hour, and 2 are allowed") as caught:
        submit(store, ada, mode="test", settings=settings)
    assert 3500 < caught.value.retry_after_s <= 3600
    submit(store, ada, mode="benchmark", settings=settings)
    submit(store, bob, mode="test", settings=settings)


class TestLimits:
    """What a client is told."""

    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(max_unfinished=1, max_waiting_clients=0)

    def test_429(self, site):
        client = site.client("ada")
        assert site.upload(client, "test").status_code == 202
        answer = site.upload(client, "test")
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "30")
        assert "1 of your submissions wait or run, and 1 may" in answer.json()["detail"]
        answer = client.get("/user/submissions/1/events")
        assert (answer.status_code, "already wait for results" in answer.json()["detail"]) == (429, True)


class TestEventFloods:
    """Places for event connections are taken at once, and given back however a connection ends."""

    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(max_waiting_clients=2)

    def test_a_burst_gets_no_more_than_its_places(self, site):
        client, headers, codes = site.client("ada"), {}, []
        assert site.upload(client, "test").status_code == 202
        headers, release = dict(client.headers), threading.Event()

        def listen() -> None:
            with httpx.stream("GET", f"{site.url}/user/submissions/1/events", headers=headers, timeout=60) as answer:
                codes.append(answer.status_code)
                release.wait(60)

        threads = [threading.Thread(target=listen) for _ in range(12)]
        for thread in threads:
            thread.start()
        until(lambda: len(codes) == 12)
        release.set()
        for thread in threads:
            thread.join()
        assert sorted(codes) == [200] * 2 + [429] * 10
        until(lambda: self._status(site, headers) == 200)

    def test_what_is_refused_takes_no_place(self, site):
        client = site.client("ada")
        for _ in range(5):
            assert client.get("/user/submissions/7/events").status_code == 404
            assert client.post("/doubling/CPU/none", files={"file": ("submission.py", b"x = 1")}).status_code == 400
        assert site.upload(client, "test").status_code == 202
        assert self._status(site, dict(client.headers)) == 200

    @staticmethod
    def _status(site, headers) -> int:
        with httpx.stream("GET", f"{site.url}/user/submissions/1/events", headers=headers, timeout=60) as answer:
            return answer.status_code


def until(condition) -> None:
    give_up = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def test_limits_hold_for_calls_at_the_same_time(any_store):
    ada, found = person(any_store, "ada"), []

    def call() -> None:
        try:
            found.append(submit(any_store, ada, mode="test", settings=Settings(max_unfinished=3)))
        except LimitReached:
            found.append(0)

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(number > 0 for number in found) == 3


def test_where_the_database_lies_is_not_told(site, monkeypatch):
    def broken(*_: object) -> None:
        raise StoreError(f"{site.store.url}: disk I/O error")

    monkeypatch.setattr("leaderboard.api.popcorn_routes.gpus_of", broken)
    answer = site.client().get("/gpus/doubling")
    assert (answer.status_code, "try again later" in answer.json()["detail"]) == (503, True)
    assert "sqlite" not in answer.text


@pytest.mark.parametrize("address", ["/users/%00", "/board/a%00b", "/users/ada?user=%00", "/gpus/%00"])
def test_an_address_with_a_nul(site, address):
    assert site.client().get(address).status_code == 404


def test_the_deadline_and_the_stop(site):
    admin, client = site.client("root", "admin"), site.client("ada")
    assert admin.post("/admin/stop").json()["accepting"] is False
    assert "stopped" in site.upload(client, "test").json()["detail"]
    admin.post("/admin/start")
    assert site.upload(client, "test").status_code == 202
    with site.store.writing() as session:
        session.scalars(select(Leaderboard)).one().deadline = utc_now()
    answer = site.upload(client, "test")
    assert (answer.status_code, "deadline of doubling has passed" in answer.json()["detail"]) == (403, True)
    with pytest.raises(Closed):
        submit(site.store, person(site.store, "bob"))


@pytest.mark.parametrize("directory", ["../..", "/etc", "support/../../..", "nul\0"])
def test_leaderboards_are_made_of_the_servers_folders_alone(site, directory):
    answer = site.client("root", "admin").post("/admin/leaderboards", json={"directory": directory})
    assert answer.status_code == 400


def test_administration(site):
    admin = site.client("root", "admin")
    made = admin.post("/admin/leaderboards", json={"directory": "support/problems/vectoradd"})
    assert made.status_code == 200
    name = made.json()["leaderboard"]
    assert site.client().get(f"/gpus/{name}").status_code == 200
    site.upload(site.client("ada"), "test")
    assert admin.get("/admin/stats").json()["jobs"] == {"pending": 1}
    assert admin.get("/admin/submissions/1").json()["code"] == CODE
    assert admin.delete("/admin/leaderboards/doubling").status_code == 409
    assert admin.delete("/admin/leaderboards/doubling?force=true").status_code == 200
    assert admin.get("/admin/submissions/1").status_code == 404
    assert admin.delete(f"/admin/leaderboards/{name}").status_code == 200
    actions = [line["action"] for line in admin.get("/admin/audit").json()]
    assert actions == ["delete leaderboard", "delete leaderboard", "submit", "create leaderboard", "create leaderboard"]


def test_tokens_are_kept_as_hashes(site):
    client = site.client("ada")
    token = client.headers["X-Popcorn-Cli-Id"]
    client.get("/user/whoami")
    with site.store._engine.connect() as connection:
        dump = "\n".join(connection.connection.iterdump())  # type: ignore[attr-defined] -- sqlite3's own
    assert token not in dump
    assert count(site.store, Audit) >= 0


@hypothesis_settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.sampled_from(["GET", "POST", "DELETE", "PUT"]))
def test_no_address_is_a_fault_of_the_server(site, path, method):
    answer = site.client().request(method, "/" + quote(path, safe="/?=&"))
    assert answer.status_code < 500


def raw(site: LiveSite, request: bytes) -> bytes:
    """The first bytes of the answer to these."""
    where = urlsplit(site.url)
    with socket.create_connection((where.hostname, where.port), timeout=30) as connection:
        connection.sendall(request)
        return connection.recv(1000)
