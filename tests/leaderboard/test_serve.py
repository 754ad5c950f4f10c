"""`python -m leaderboard serve` as a user starts it: a real evaluation from the submission to its report, and its end."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from people import DOUBLING, job_of, person, submit

from leaderboard import jobs
from leaderboard.__main__ import main
from leaderboard.accounts import LONGEST_TOKEN, SHORTEST_TOKEN, make_user
from leaderboard.embedded import EmbeddedRunner
from leaderboard.errors import BadRequest
from leaderboard.options import parser
from leaderboard.serve import listen, settings_of, submit_hint
from leaderboard.settings import Settings
from leaderboard.store.models import Runner
from scripts.stub_evaluation import DEVICE

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300.0


@contextlib.contextmanager
def served(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen, str, list[str]]]:
    """A server in a process of its own: the process, its address, its first lines."""
    command = [sys.executable, "-m", "leaderboard", "serve", "--port", "0", "--database", f"sqlite:///{folder / 's.sqlite'}"]
    command += ["--problems", str(DOUBLING), *options]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline() for _ in range(2)]
        found = re.fullmatch(r"listening on (http://127\.0\.0\.1:\d+)\n", lines[0])
        assert found, lines
        yield process, found[1], lines
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def hint_of(process: subprocess.Popen) -> str:
    """The command that the server prints when it knows its runner's device."""
    assert process.stdout is not None
    found = re.fullmatch(r"  submit:  (.+)\n", process.stdout.readline())
    assert found
    return found[1]


def wait_until(condition, what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.1)


def children(pid: int) -> list[int]:
    found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    for thread in Path(f"/proc/{pid}/task").iterdir():  # a child belongs to the thread that started it
        found += [int(child) for child in (thread / "children").read_text().split()]
    return sorted(set(found))


def test_from_submission_to_report_and_the_runner_ends_with_its_server(tmp_path):
    with served(tmp_path) as (process, url, lines), httpx.Client(base_url=url, timeout=60) as client:
        hint = hint_of(process)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
        done = subprocess.run(hint, shell=True, cwd=DOUBLING, env=environment, timeout=PATIENCE_S, stderr=subprocess.PIPE)
        assert done.returncode == 0, done.stderr.decode()
        client.headers["X-Popcorn-Cli-Id"] = re.findall(r"POPCORN_CLI_ID=(\S+)", hint)[0]
        found = client.get("/user/submissions/1").json()
        assert (found["job"]["status"], found["job"]["error"]) == ("succeeded", None)
        assert found["runs"][0]["result"]["test.0.status"] == "pass"
        assert "✅ Passed 1/1 tests" in found["runs"][0]["report"]

        link = re.search(r"/login/\S+", lines[1])
        assert link is not None
        entered = client.get(link[0], headers={"Accept": "text/html"})
        assert (entered.status_code, "HttpOnly" in entered.headers["set-cookie"]) == (303, True)
        assert client.get(link[0]).headers["location"] == "/login?failed=1"

        runners = children(process.pid)
        assert runners
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        wait_until(lambda: not any(Path(f"/proc/{runner}").exists() for runner in runners), "the runner ends too")


def test_a_server_that_is_told_to_end_ends(tmp_path):
    with served(tmp_path, "--runner", "none") as (process, url, _):
        assert httpx.get(f"{url}/health", timeout=60).json() == {"status": "ok"}
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize("open_registration", [True, False])
def test_the_hint_names_who_and_the_runners_gpu(open_registration):
    hint = submit_hint("http://h:1", Settings(open_registration=open_registration), "CPU")
    client_id = re.findall(r"POPCORN_CLI_ID=(\S+)", hint)[0]
    assert (SHORTEST_TOKEN <= len(client_id) <= LONGEST_TOKEN) is open_registration
    assert hint.endswith(" --gpu CPU")
    assert "--gpu" not in submit_hint("http://h:1", Settings(open_registration=open_registration))


def test_how_many_new_users_an_open_server_takes():
    assert settings_of(parser().parse_args(["serve", "--new-users-per-hour", "3"])).new_users_per_hour == 3


def test_administration_by_hand(tmp_path, capsys):
    def run(*arguments: str) -> str:
        assert main([*arguments, "--database", f"sqlite:///{tmp_path / 's.sqlite'}"]) == 0
        return capsys.readouterr().out

    assert re.fullmatch(r"kp_\S{43}\n", run("tokens", "create", "ada", "--role", "admin"))
    assert "ada                      admin    made " in run("tokens", "list")
    assert run("boards", "create", str(DOUBLING)) == "doubling\n"
    run("record", str(ROOT / "tests" / "support" / "results" / "h200-official-robust.json"))


def test_servers_that_share_a_database_leave_each_others_runners_alone(store):
    """Each has tokens and jobs of its own; the next server at the same address takes over both."""
    first, second, again = (EmbeddedRunner(store, f"http://127.0.0.1:{port}") for port in (8000, 8001, 8000))
    with store.writing() as session:
        lab = jobs.register(session, "a", "CPU", DEVICE, {}, make_user(session, first._user).id).id
    submit(store, person(store, "ada"), mode="test")
    with store.writing() as session:
        assert jobs.claim(session, session.get_one(Runner, lab), 60.0) is not None
    second._give_back_jobs()
    assert job_of(store, 1).status == "running"
    again._give_back_jobs()
    assert job_of(store, 1).status == "pending"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_small_answers_are_sent_at_once(host):
    """Without TCP_NODELAY every call on a kept connection took 40 ms."""
    try:
        listener = listen(host, 0)
    except BadRequest:
        pytest.skip(f"{host} is no address of this machine")
    with listener, socket.create_connection(listener.getsockname()[:2]), listener.accept()[0] as connection:
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_server_needs_no_torch():
    """A server for GPU machines elsewhere starts quickly, on a machine that has none."""
    tried = "import sys; sys.modules['torch'] = None; import leaderboard.serve, leaderboard.administer"
    subprocess.run([sys.executable, "-c", tried], cwd=ROOT, check=True, timeout=PATIENCE_S)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tokens", "revoke", "nobody"), "error: no user 'nobody'"),
        (("boards", "delete", "nothing"), "error: no leaderboard 'nothing'"),
        (("hacked", "7", "why"), "error: no submission 7"),
        (("serve", "--limit", "x=y"), "error: --limit x=y: not MODE=N"),
    ],
)
def test_mistakes_are_one_line(tmp_path, capsys, arguments, said):
    assert main([*arguments, "--database", f"sqlite:///{tmp_path / 's.sqlite'}"]) == 2
    heard = capsys.readouterr().err
    assert heard.startswith(said)
    assert heard.count("\n") == 1


def test_a_runner_without_a_token(monkeypatch, capsys):
    monkeypatch.delenv("KERNELPROOF_TOKEN", raising=False)
    assert main(["runner", "--server", "http://127.0.0.1:1"]) == 2
    assert "error: no token in --token or KERNELPROOF_TOKEN" in capsys.readouterr().err
