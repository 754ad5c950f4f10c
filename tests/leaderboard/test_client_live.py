"""python -m popcorn against the server itself: from a file to an exit code, with a runner at work meanwhile."""

import threading
import time

import pytest
from people import CODE, claim, evaluate, runner, token_of

from leaderboard.stages import Stage
from popcorn.__main__ import main
from popcorn.client_errors import Exit

PATIENCE_S = 600


@pytest.fixture
def shell(site, tmp_path, monkeypatch):
    """The environment of somebody's shell, and a file to submit."""
    monkeypatch.setenv("POPCORN_API_URL", site.url)
    monkeypatch.setenv("POPCORN_CLI_ID", token_of(site.store, "ada"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "submission.py"
    path.write_text(CODE)
    return path


def work(store, fails=None):
    """Evaluate the next job, as soon as there is one, in the background."""

    def wait():
        number, deadline_s = runner(store), time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            if held := claim(store, number):
                evaluate(store, held, 45_934.567, fails)
                return
            time.sleep(0.02)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_a_submission_that_passes(site, shell, capsys):
    worker = work(site.store)
    assert main(["submit", "--leaderboard", "doubling", "--gpu", "CPU", str(shell)]) == Exit.OK
    worker.join(PATIENCE_S)
    said = capsys.readouterr().out
    assert "Geomean score (public) on CPU: 45.934567 µs" in said
    assert said.count("run on CPU") == 6
    assert main(["list"]) == Exit.OK
    assert "succeeded" in capsys.readouterr().out
    assert main(["show", "1", "--code"]) == Exit.OK
    assert capsys.readouterr().out == CODE
    assert main(["delete", "1", "--force"]) == Exit.OK
    assert main(["show", "1"]) == Exit.NOT_FOUND


def test_a_failed_secret_run_is_no_success(site, shell, capsys):
    worker = work(site.store, Stage("leaderboard", secret=True))
    assert main(["submit", "--leaderboard", "doubling", "--gpu", "CPU", str(shell)]) == Exit.FAILED
    worker.join(PATIENCE_S)
    said = capsys.readouterr().out
    assert "✅ public leaderboard run" in said
    assert "❌ secret leaderboard run" in said
    assert "failed: Ranked run failed in the secret run" in said


def test_what_was_left_is_found_again(site, shell, capsys):
    command = ["submit", "--leaderboard", "doubling", "--gpu", "CPU", "--mode", "test", "--no-wait", str(shell)]
    assert main(command) == Exit.OK
    assert "Submission 1 to doubling on CPU, mode test, number 1 in the queue" in capsys.readouterr().out
    worker = work(site.store)
    assert main(["watch", "1"]) == Exit.OK
    worker.join(PATIENCE_S)


def test_a_profile_is_answered_by_the_call_itself(site, shell, capsys):
    worker = work(site.store)
    main(["submit", "--leaderboard", "doubling", "--gpu", "CPU", "--mode", "profile", str(shell)])
    worker.join(PATIENCE_S)
    assert "Profiling" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--leaderboard", "nobody", "--gpu", "CPU"], Exit.NOT_FOUND, "nobody"),
        (["--leaderboard", "doubling", "--gpu", "TPU"], Exit.REFUSED, "CPU"),
        (["--leaderboard", "doubling"], Exit.USAGE, "CPU, H200"),
    ],
)
def test_refusals_are_one_line(site, shell, capsys, options, code, said):
    assert main(["submit", *options, str(shell)]) == code
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert said in lines[0]


def test_a_token_that_is_too_short_is_refused(site, shell, capsys, monkeypatch):
    monkeypatch.setenv("POPCORN_CLI_ID", "x")
    assert main(["list"]) in (Exit.REFUSED, Exit.NOT_AUTHORISED)
    assert len(capsys.readouterr().err.splitlines()) == 1
