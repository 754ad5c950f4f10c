"""What a credential is good for: a runner's lends a GPU, a browser's cookie reads, and each acts for nobody but its owner."""

import httpx
import pytest
from people import CODE, claim, person, runner, submit, token_of
from sqlalchemy import select

from leaderboard.store.models import Submission

CHANGES = (
    ("POST", "/submission/doubling/CPU/test"), ("POST", "/doubling/CPU/test"), ("DELETE", "/user/submissions/1"),
    ("POST", "/user/submissions/1/cancel"), ("POST", "/admin/stop"), ("POST", "/admin/start"),
    ("POST", "/admin/submissions/1/hacked"), ("DELETE", "/admin/submissions/1"), ("POST", "/admin/leaderboards"),
    ("DELETE", "/admin/leaderboards/doubling?force=true"), ("POST", "/runner/register"), ("POST", "/runner/claim"),
)  # fmt: skip


def browser(site, name: str, role: str) -> httpx.Client:
    """Somebody who has signed in."""
    client = site.client()
    client.cookies["kernelproof"] = token_of(site.store, name, role)
    return client


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_a_cookie_alone_changes_nothing(site, method, path):
    """Pages of other programs on this machine are of the same site: browsers send the cookie with their forms too."""
    submit(site.store, person(site.store, "root"), mode="test")
    body = {"files": {"file": ("submission.py", CODE.encode())}} if "doubling/CPU" in path else {}
    assert browser(site, "root", "admin").request(method, path, **body).status_code == 401
    with site.store.reading() as session:
        assert [kept.job.status for kept in session.scalars(select(Submission))] == ["pending"]


def test_a_cookie_reads(site):
    submit(site.store, person(site.store, "ada"), mode="test")
    client = browser(site, "ada", "user")
    assert client.get("/user/submissions/1").json()["code"] == CODE
    assert browser(site, "root", "admin").get("/admin/stats").status_code == 200


@pytest.mark.parametrize("path", ["/user/whoami", "/user/submissions", "/user/submissions/1", "/user/submissions/1/events"])
def test_a_runners_token_is_no_users(site, path):
    """Not even its own user's: it lies on a machine that runs what strangers send."""
    submit(site.store, person(site.store, "lab"), mode="test")
    lab = site.client("lab", "runner")
    assert lab.get(path).status_code == 403
    assert site.upload(lab, "test").status_code == 403
    assert lab.delete("/user/submissions/1").status_code == 403
    for page in ("/submission/1/code", "/submission/1/gfx950", "/diff/1/1"):
        assert lab.get(page).status_code == 404
    assert CODE.strip() not in lab.get("/submission/1").text


def test_a_runners_token_does_not_sign_in(site):
    for token in (token_of(site.store, "lab", "runner"), "unknown"):
        answer = site.client().post("/login", data={"token": token})
        assert (answer.headers["location"], "set-cookie" in answer.headers) == ("/login?failed=1", False)
    answer = site.client().post("/login", data={"token": token_of(site.store, "ada")})
    assert (answer.headers["location"], "HttpOnly" in answer.headers["set-cookie"]) == ("/", True)


def test_a_token_in_an_address_signs_nobody_in(site):
    token = token_of(site.store, "ada")
    assert site.client().get(f"/login/{token}").headers["location"] == "/login?failed=1"
    assert site.client().get("/user/whoami", headers={"X-Popcorn-Cli-Id": token}).status_code == 200


def test_a_lease_is_of_no_use_to_another_lab(site):
    submit(site.store, person(site.store, "ada"), mode="test")
    held = claim(site.store, runner(site.store))
    assert held is not None
    bodies = {
        "heartbeat": {},
        "runs": {"secret": False, "result": {}},
        "finish": {"outcome": "failed", "error": "x"},
        "release": {},
    }
    for what, body in bodies.items():
        answer = site.client("thief", "runner").post(
            f"/runner/jobs/{held.job_id}/{what}", json={"lease": held.hold.lease, **body}
        )
        assert answer.status_code in (400, 409), what
    own = site.client("lab", "runner")
    assert own.post(f"/runner/jobs/{held.job_id}/heartbeat", json={"lease": held.hold.lease}).status_code == 200
