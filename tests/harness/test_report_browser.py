"""The page in a real browser: nothing in the console, nothing requested, nothing too wide, legible in both themes."""

import pytest
from page_checks import CONTRASTS, LEAST_CONTRAST
from report_results import STATES, hostile

from harness.report.page import render_html
from scripts.headless_chromium import Browser, chromium

pytestmark = pytest.mark.skipif(chromium() is None, reason="Debian's chromium is not installed (apt-get install chromium)")
RESULTS = {**STATES, "hostile": hostile()}


@pytest.fixture(scope="module")
def browser():
    with Browser() as opened:
        yield opened


@pytest.fixture(scope="module", params=RESULTS)
def page(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_html(RESULTS[request.param]), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [1200, 390])
def test_the_page_is_quiet_alone_and_fits(browser, page, width):
    browser.look(width)
    browser.open(page)
    assert browser.complaints() == []
    assert browser.requests() == [page.as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("document.scripts.length + document.images.length") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(browser, page, scheme):
    browser.look(scheme=scheme)
    browser.open(page)
    found = browser.evaluate(CONTRASTS)
    assert len(found) > 50
    assert [(round(ratio, 2), text) for ratio, text in found if ratio < LEAST_CONTRAST] == []


def background(browser: Browser) -> str:
    return browser.evaluate("getComputedStyle(document.body).backgroundColor")


def test_the_theme_follows_the_system_and_the_choice(browser, page):
    browser.look(scheme="light")
    browser.open(page)
    light = background(browser)
    browser.look(scheme="dark")
    dark = background(browser)
    assert light != dark
    for choice, color in (("light", light), ("dark", dark), ("auto", dark)):
        browser.evaluate(f"document.getElementById('theme-{choice}').click()")
        assert background(browser) == color


def test_print_is_light_and_leaves_out_what_cannot_be_pressed(browser, page):
    browser.look(scheme="dark", media="print")
    browser.open(page)
    assert background(browser) == "rgb(255, 255, 255)"
    assert browser.evaluate("[...document.querySelectorAll('nav, .themes')].some(e => e.checkVisibility())") is False


def test_tables_and_themes_are_reached_by_keyboard(browser, page):
    browser.look()
    browser.open(page)
    stops = "document.querySelectorAll('.scroll, [name=theme], a, summary')"
    reached = f"[...{stops}].every(e => (e.focus(), document.activeElement === e))"
    assert browser.evaluate(reached) is True


def test_pictures(browser, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(render_html(RESULTS["h200"]), encoding="utf-8")
    for name, look in {"light": {}, "dark": {"scheme": "dark"}, "narrow": {"width": 390}, "print": {"media": "print"}}.items():
        browser.look(**look)
        browser.open(path)
        browser.screenshot(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 20_000
    browser.pdf(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
