"""The site in a real browser: nothing in the console, nothing from elsewhere, legible, usable by keyboard, live."""

import socket
import threading
import time

import pytest
import uvicorn
from web_site import ADA, ADMIN, BEST, CONTRASTS, LEAST_CONTRAST, RUNNING, WAITING, WRONG, demo_site

from leaderboard.store.models import Job
from scripts.headless_chromium import Browser, chromium

pytestmark = pytest.mark.skipif(chromium() is None, reason="Debian's chromium is not installed (apt-get install chromium)")
PATIENCE_S = 600
PATHS = {
    "overview": "/", "board": "/board/demo-mixed-mla/DEMO", "nobody yet": "/board/demo-nobody-yet", "queue": "/queue",
    "best": f"/submission/{BEST}", "wrong": f"/submission/{WRONG}", "running": f"/submission/{RUNNING}",
    "user": "/users/demo-ada", "difference": f"/diff/14/{BEST}", "history": "/history", "sign in": "/login?failed=1",
}  # fmt: skip
READERS = {"history": ADMIN, "sign in": None}  # everywhere else it is ada


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address and the store of a site that is served to other processes."""
    made = demo_site(tmp_path_factory.mktemp("site"))
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(made.client.app, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}", made.store
    server.should_exit = True
    thread.join(PATIENCE_S)
    listener.close()


@pytest.fixture(scope="module")
def browser(site):
    with Browser() as opened:
        yield opened


def show(browser, site, name):
    """One of PATHS, to the reader that it is for."""
    browser.call("Network.clearBrowserCookies")
    if token := READERS.get(name, ADA):
        browser.call("Network.setCookie", name="kernelproof", value=token, url=site[0])
    browser.visit(site[0] + PATHS[name])


def until(browser, expression):
    """Whether an expression becomes true in time."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        if browser.evaluate(expression):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("name", PATHS)
def test_pages_are_quiet_alone_and_fit(browser, site, name, width):
    browser.look(width)
    show(browser, site, name)
    assert browser.complaints() == []
    assert all(url.startswith(site[0] + "/") for url in browser.requests())
    assert browser.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PATHS)
def test_text_has_contrast(browser, site, name, scheme):
    browser.look(scheme=scheme)
    show(browser, site, name)
    found = browser.evaluate(CONTRASTS)
    assert len(found) > 10
    assert [(round(ratio, 2), text) for ratio, text in found if ratio < LEAST_CONTRAST] == []


def background(browser) -> str:
    return browser.evaluate("getComputedStyle(document.body).backgroundColor")


def test_a_theme_that_was_chosen_stays(browser, site):
    browser.look(scheme="light")
    browser.visit(site[0] + "/")
    light = background(browser)
    browser.evaluate("document.getElementById('theme-dark').click()")
    dark = background(browser)
    assert dark != light
    browser.visit(site[0] + "/queue")
    assert background(browser) == dark
    browser.evaluate("document.getElementById('theme-auto').click()")
    assert background(browser) == light


def press(browser, key, code):
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)


def test_the_keyboard_reaches_the_content_first(browser, site):
    browser.look()
    show(browser, site, "board")
    press(browser, "Tab", 9)
    assert browser.evaluate("document.activeElement.className") == "skip"
    press(browser, "Enter", 13)
    assert until(browser, "location.hash === '#main'")


@pytest.mark.parametrize("name", ["board", "best", "queue"])
def test_everything_that_acts_can_be_focused_and_shows_it(browser, site, name):
    browser.look()
    show(browser, site, name)
    kinds = "a[href]:not([tabindex='-1']), button, input:not([type=hidden]), select, summary, .scroll"
    stops = f'[...document.querySelectorAll("{kinds}")].filter(e => e.checkVisibility())'
    assert browser.evaluate(f"{stops}.every(e => (e.focus(), document.activeElement === e))") is True


def test_a_live_page_follows_the_queue(browser, site):
    browser.look()
    show(browser, site, "queue")
    assert browser.evaluate("document.querySelectorAll('#waiting tbody tr').length") == 3
    with site[1].writing() as session:
        job = session.query(Job).filter_by(submission_id=WAITING).one()
        job.status, job.error, job.ended_at = "failed", "cancelled by demo-ada", job.created_at
        session.query(Job).filter_by(submission_id=RUNNING).one().heartbeat_at = job.created_at
    assert until(browser, "document.querySelectorAll('#waiting tbody tr').length === 2")
    assert browser.complaints() == []


def test_a_page_without_scripts_is_whole(browser, site):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        show(browser, site, "board")
        tree = browser.call("DOM.getDocument")["root"]["nodeId"]
        assert browser.call("DOM.querySelector", nodeId=tree, selector="#ranking tbody tr")["nodeId"]
        assert browser.call("DOM.querySelector", nodeId=tree, selector="noscript meta[http-equiv=refresh]")["nodeId"]
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def refreshed(browser, expression):
    """The value of an expression after the page has fetched itself again."""
    after = f"refresh(document.getElementById('main')).then(() => {expression})"
    return browser.call("Runtime.evaluate", expression=after, awaitPromise=True, returnByValue=True)["result"]["value"]


def test_a_form_that_is_being_filled_in_stays(browser, site):
    browser.look()
    show(browser, site, "board")
    browser.evaluate("document.getElementById('field-user').value = 'gra'")
    browser.evaluate("document.querySelector('#ranking caption').textContent = 'old'")
    assert refreshed(browser, "document.querySelector('#ranking caption').textContent") == "old"
    browser.evaluate("document.getElementById('field-user').value = ''")
    assert refreshed(browser, "document.querySelector('#ranking caption').textContent") != "old"


def test_what_was_unfolded_stays_unfolded(browser, site):
    browser.look(390)
    show(browser, site, "board")
    browser.evaluate("document.getElementById('excluded').open = true")
    browser.evaluate("document.querySelector('.scroll').scrollLeft = 40")
    browser.evaluate("document.querySelector('#ranking caption').textContent = 'old'")
    state = "[document.getElementById('excluded').open, document.querySelector('.scroll').scrollLeft]"
    assert refreshed(browser, state) == [True, 40]
    assert browser.evaluate("document.querySelector('#ranking caption').textContent") != "old"
