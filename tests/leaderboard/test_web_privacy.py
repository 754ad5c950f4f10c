"""Who sees what: code and reports are their author's, actions need a form of our own, and no name becomes markup."""

import re
from dataclasses import replace

import pytest
from web_site import ADA, ADMIN, BEST, GRACE, OF_GRACE, RUNNING, WAITING, WRONG, demo_site, empty_site, hostile

from leaderboard.accounts import Identity, make_token, make_user
from leaderboard.boards import BoardPlan, put_board, read_plans
from leaderboard.jobs import Hold, add_run, claim, finish
from leaderboard.settings import Settings
from leaderboard.store.models import Submission
from leaderboard.submissions import Offer, accept, mark_hacked
from leaderboard.web.csrf import MOST_BYTES
from leaderboard.web.login import safe_goal
from scripts.leaderboard_demo import ROOT, add_runner

SECRET_LINE = "tuned by hand"  # stands in the code of every made-up submission
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return demo_site(tmp_path_factory.mktemp("site"))


@pytest.mark.parametrize("token", [None, GRACE, "unknown-token-0000000"])
def test_code_of_others_is_nowhere(site, token):
    page = site.get(f"/submission/{BEST}", token)
    assert page.status_code == 200
    assert SECRET_LINE not in page.text
    assert "demo_kernel" not in page.text
    for path in ("code", "gfx950"):
        assert site.get(f"/submission/{BEST}/{path}", token).status_code == 404
    assert site.get(f"/diff/{BEST}/14", token).status_code == 404


@pytest.mark.parametrize("token", [ADA, ADMIN])
def test_code_is_there_for_its_author_and_admins(site, token):
    assert SECRET_LINE in site.get(f"/submission/{BEST}", token).text
    answer = site.get(f"/submission/{BEST}/code", token)
    assert answer.text.startswith("#!POPCORN")
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert "attachment" in answer.headers["Content-Disposition"]


def test_a_difference_needs_both(site):
    assert site.get(f"/diff/{BEST}/{OF_GRACE}", ADA).status_code == 404
    assert site.get(f"/diff/{OF_GRACE}/{BEST}", ADA).status_code == 404
    page = site.page(f"/diff/14/{BEST}", ADA)
    assert len(page.all("tr", class_="added")) == len(page.all("tr", class_="removed")) == 1
    assert site.get(f"/submission/{BEST}/diff?from=14", ADA).headers["Location"] == f"/diff/14/{BEST}"
    assert site.get(f"/submission/{BEST}/diff?from=//evil.example", ADA).status_code == 404


def test_messages_and_samples_are_for_the_author(site):
    assert "mismatch at" not in site.get(f"/submission/{WRONG}").text
    assert "mismatch at" in site.get(f"/submission/{WRONG}", "demo-token-of-demo-linus").text
    assert site.page(f"/submission/{BEST}").all("section", class_="case") == []
    assert len(site.page(f"/submission/{BEST}", ADA).all("section", class_="case")) == 8


def secret_runs(site, token):
    links = site.page(f"/submission/{BEST}", token).all("nav", aria_label="Runs")[0].all("a")
    return [site.page(str(link.attributes["href"]).partition("#")[0], token) for link in links if "secret" in link.text()]


def test_secret_runs_are_shown_by_their_figures_alone(site):
    assert len(secret_runs(site, ADA)) == 3
    for page in secret_runs(site, ADA):
        assert page.all("section", class_="case") == []
    assert all(len(page.all("section", class_="case")) == 8 for page in secret_runs(site, ADMIN))


@pytest.mark.parametrize("token", [None, ADA, GRACE])
def test_recorded_runs_are_for_administrators(site, token):
    links = [str(link.attributes["href"]) for link in site.page("/history", ADMIN).all("a")]
    runs = [href for href in links if href.startswith("/history/")]
    assert len(runs) == 2
    for path in ("/history", *runs):
        assert site.get(path, ADMIN).status_code == 200
        assert site.get(path, token).status_code == 403
    assert "/history" not in site.get("/", token).text


def status_of(site, number):
    with site.store.reading() as session:
        found = session.get(Submission, number)
        return found and found.job.status


def test_an_action_needs_the_readers_own_form(site):
    path = f"/submission/{WAITING}/cancel"
    assert site.post(path).status_code == 401
    assert site.post(path, ADA).status_code == 403
    assert site.post(path, ADA, csrf="0" * 64).status_code == 403
    assert site.post(path, ADA, csrf=site.form_token(GRACE)).status_code == 403
    assert site.post(path, ADA, csrf=site.form_token(ADA) + "x" * MOST_BYTES).status_code == 403
    by_header = site.client.post(path, headers={"X-Popcorn-Cli-Id": ADA}, data={"csrf": ""})
    assert by_header.status_code == 403
    assert site.post(f"/submission/{WAITING}/publish", ADA, csrf=site.form_token(ADA)).status_code == 404
    assert status_of(site, WAITING) == "pending"
    answer = site.post(path, ADA, csrf=site.form_token(ADA))
    assert (answer.status_code, answer.headers["Location"]) == (303, f"/submission/{WAITING}")
    assert status_of(site, WAITING) == "failed"
    assert "cancelled by demo-ada" in site.get(f"/submission/{WAITING}").text


def test_signing_out_needs_a_form_of_ours(site):
    assert site.post("/logout", ADA).status_code == 403
    assert site.post("/logout", ADA, csrf=site.form_token(GRACE)).status_code == 403
    answer = site.post("/logout", ADA, csrf=site.form_token(ADA))
    assert (answer.status_code, "kernelproof=" in answer.headers["Set-Cookie"]) == (303, True)


def test_nobody_acts_on_what_is_not_theirs(site):
    for action in ("cancel", "delete"):
        assert site.post(f"/submission/{RUNNING}/{action}", ADA, csrf=site.form_token(ADA)).status_code == 404
    assert status_of(site, RUNNING) == "running"
    actions = [str(form.attributes["action"]) for form in site.page(f"/submission/{RUNNING}", ADA).all("form")]
    assert actions == ["/logout"]


def test_deleting_leads_to_ones_own_page(site):
    answer = site.post("/submission/24/delete", ADA, csrf=site.form_token(ADA))
    assert (answer.status_code, answer.headers["Location"]) == (303, "/users/demo-ada")
    assert site.get("/submission/24", ADA).status_code == 404


def test_the_form_that_signs_in(site):
    page = site.page("/login?failed=1&next=/queue")
    assert "unknown, revoked or expired" in page.all(id="problem")[0].text()
    assert page.all("input", name_="next")[0].attributes["value"] == "/queue"
    assert page.all("input", name_="token")[0].attributes["type"] == "password"
    assert "You are demo-ada" in site.page("/login", ADA).text()


ELSEWHERE = ("//evil.example", "https://evil.example", "/\\evil.example", "evil", "", "/\nx", "/\tx", "javascript:1")


@pytest.mark.parametrize("goal", ELSEWHERE)
def test_signing_in_leads_nowhere_else(goal):
    assert safe_goal(goal) == "/"


def test_signing_in_leads_back():
    assert safe_goal("/board/x/y?user=a") == "/board/x/y?user=a"


@pytest.fixture(scope="module")
def hostile_site(tmp_path_factory):
    """A store in which everything that others choose tries to become markup."""
    site = empty_site(tmp_path_factory.mktemp("hostile"))
    (plan,) = read_plans(ROOT / "configs")
    task = replace(plan.task, gpus=("G",), description=EVIL, ranking_by="geom")
    with site.store.writing() as session:
        token = make_token(session, "eve", token="token-of-eve-000001")
        make_token(session, "root", "admin", token="token-of-root-00001")
        eve, root = (Identity(make_user(session, name).id, name, role) for name, role in (("eve", "user"), ("root", "admin")))
        board = put_board(session, BoardPlan("b", plan.problem, task), "root")
        runner = add_runner(session, "node", "G")
        code = f"# {EVIL}\nx = {EVIL!r}\n".encode()
        name = "".join(sign for sign in EVIL if sign.isprintable() and sign != "/")
        for mode in ("test", "leaderboard"):
            kept = accept(session, eve, board, Offer("G", mode, f"{name}.py", code), Settings())
            job = claim(session, runner, 60)
            shown = hostile()
            file = replace(shown.submission, name=kept.file_name, sha256=kept.code_sha256)
            result = replace(shown, mode="test", submission=file)
            hold = Hold(job.lease, runner.user_id)
            add_run(session, job.id, hold, False, result)
            finish(session, job.id, hold, "failed", EVIL)
        mark_hacked(session, kept.id, EVIL, root)
    return site, token


PATHS = ("/", "/board/b", "/board/b/G", "/queue", "/submission/1", "/submission/2", "/diff/1/2", "/users/eve", "/history",
         "/board/b?user=%3Cscript%3E&status=%22%3E&since=%27", "/history?problem=%3Cimg%3E", "/login?next=%22%3E%3Cscript%3E",
         "/nowhere/%3Cscript%3E", "/board/%3Cscript%3E")  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_no_text_becomes_markup(hostile_site, path):
    site, token = hostile_site
    for who in (None, token, "token-of-root-00001"):
        text = site.get(path, who).text
        assert "<img" not in text
        assert re.findall(r"<script(?! src=\"/assets/site\.js)", text) == []
        assert "\u202e" not in text


def test_hostile_text_is_shown_as_it_is(hostile_site):
    site, token = hostile_site
    page = site.page("/submission/1", token)
    assert EVIL in page.all("pre", class_="source")[0].text().replace("\n", "")
    assert EVIL in site.page("/board/b").text()
