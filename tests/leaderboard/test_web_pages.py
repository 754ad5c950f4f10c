"""Every page that a link leads to: well-formed, alone, readable without sight, and within the content security policy."""

import re
from itertools import pairwise
from urllib.parse import urljoin, urlsplit

import pytest
from web_site import ADA, ADMIN, BEST, BOARD, HACKED, RUNNING, WAITING, WRONG, demo_site, empty_site

from leaderboard.accounts import make_token
from leaderboard.web.layout import ADMIN_PLACES, PLACES

MOST_PAGES = 400
OWN_SCRIPT = re.compile(r"/assets/site\.js\?[0-9a-f]{12}")
# Compiled, downloaded, or of the kind of another page.
LOOKED_AT = f"({BEST}|{WRONG}|{HACKED}|{RUNNING}|{WAITING})"
NOT_FOLLOWED = re.compile(rf"/submission/\d+/(gfx950|code)$|/submission/(?!{LOOKED_AT}\b)|/submission/.*run=")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return demo_site(tmp_path_factory.mktemp("site"))


def crawl(site, token):
    """Path -> tree of everything that can be reached from the front page."""
    found, waiting = {}, ["/", *([f"/diff/14/{BEST}", f"/diff/{BEST}/{BEST}"] if token else [])]
    while waiting:
        path = waiting.pop()
        if path in found or NOT_FOLLOWED.search(path):
            continue
        found[path] = site.page(path, token)
        assert len(found) < MOST_PAGES
        for link in found[path].all("a"):
            href = str(link.attributes.get("href"))
            if href.startswith("data:") and "download" in link.attributes:
                continue
            target = urlsplit(urljoin(path, href))
            assert not target.scheme, (path, href)
            waiting.append(target.path + (f"?{target.query}" if target.query else ""))
    return found


@pytest.fixture(scope="module", params=[None, ADA, ADMIN], ids=["anybody", "author", "admin"])
def pages(request, site):
    return crawl(site, request.param)


def test_every_link_leads_somewhere_and_the_site_is_whole(pages):
    for path in (*(path for path, _ in PLACES), BOARD, f"/submission/{BEST}", "/users/demo-ada", "/queue"):
        assert path in pages


def test_every_fragment_is_on_its_page(pages):
    for path, page in pages.items():
        for link in page.all("a"):
            target = urlsplit(urljoin(path, str(link.attributes["href"])))
            whole = target.path + (f"?{target.query}" if target.query else "")
            if target.fragment and whole in pages:
                assert pages[whole].all(id=target.fragment), (path, link.attributes["href"])


def test_ids_are_unique(pages):
    for path, page in pages.items():
        ids = [element.attributes["id"] for element in page.all() if "id" in element.attributes]
        assert len(ids) == len(set(ids)), path


def test_nothing_is_inline_and_nothing_comes_from_elsewhere(pages):
    for path, page in pages.items():
        assert page.all("style") == [], path
        (script,) = page.all("script")
        assert OWN_SCRIPT.fullmatch(str(script.attributes["src"])), path
        for element in page.all():
            assert "style" not in element.attributes, (path, element.name)
            assert not [name for name in element.attributes if name.startswith("on")], (path, element.name)
            for name in ("src", "href", "action"):
                assert not urlsplit(element.attributes.get(name) or "").netloc, (path, name)


def test_the_policy_stands_on_every_answer(site):
    for path in ("/", BOARD, "/login", "/nowhere", "/assets/nothing"):
        policy = site.get(path).headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


def test_landmarks_and_headings(pages):
    for path, page in pages.items():
        assert len(page.all("h1")) == len(page.all("main")) == 1, path
        names = [nav.attributes.get("aria-label") for nav in page.all("nav")]
        assert all(names), path
        assert len(names) == len(set(names)), path
        levels = [int(element.name[1]) for element in page.all() if re.fullmatch("h[1-6]", element.name)]
        assert all(after <= before + 1 for before, after in pairwise(levels)), (path, levels)


def test_tables_have_captions_and_every_heading_a_scope(pages):
    for path, page in pages.items():
        for table in page.all("table"):
            assert len(table.all("caption")) == 1, path
            assert all(head.attributes.get("scope") in ("col", "row") for head in table.all("th")), path
            widths = {len([c for c in row.children if c.name in ("td", "th")]) for row in table.all("tr")}
            assert len(widths) == 1, (path, table.all("caption")[0].text(), widths)


def test_every_field_has_a_label(pages):
    for path, page in pages.items():
        for field in (*page.all("input"), *page.all("select")):
            if field.attributes.get("type") in ("hidden", "radio") or "hidden" in field.attributes:
                continue
            assert page.all("label", for_=str(field.attributes["id"])), (path, field.attributes)


def test_pictures_have_words(pages):
    for path, page in pages.items():
        inside = {id(inner) for outer in page.all("svg") for child in outer.children for inner in child.all("svg")}
        for picture in page.all("svg"):
            said = picture.attributes.get("aria-hidden") == "true" or picture.attributes.get("aria-label")
            assert said or id(picture) in inside, path


def test_where_one_is_can_be_heard(site):
    for path, _ in PLACES + ADMIN_PLACES:
        (here,) = site.page(path, ADMIN).all("nav", aria_label="Site")[0].all("a", aria_current="page")
        assert here.attributes["href"] == path


def test_empty_places_say_so(tmp_path):
    site = empty_site(tmp_path)
    with site.store.writing() as session:
        admin = make_token(session, "root", "admin")
    expected = {"/": "no leaderboard yet", "/queue": "No runner has joined", "/history": "Nothing has been recorded"}
    for path, said in expected.items():
        assert said in " ".join(element.text() for element in site.page(path, admin).all(class_="empty"))


def test_errors_are_pages_for_browsers_and_json_for_programs(site):
    numbers = ("9999", "abc", "9" * 30, "-1", "1.5", "%00")
    for path in ("/nowhere", "/board/nobody", f"{BOARD}X", "/users/x", *(f"/submission/{number}" for number in numbers)):
        answer = site.get(path)
        assert answer.status_code == 404, path
        assert "<h1" in answer.text, path
        answer = site.get(path, accept="application/json")
        assert answer.status_code == 404, path
        assert isinstance(answer.json()["detail"], str), path


def test_assets_may_be_kept_for_ever_and_are_what_they_say(site):
    page = site.page("/")
    addresses = [link.attributes["href"] for link in page.all("link")] + [page.all("script")[0].attributes["src"]]
    kinds = [site.get(str(address)).headers["Content-Type"].partition(";")[0] for address in addresses]
    assert sorted(kinds) == ["image/svg+xml", "text/css", "text/javascript"]
    assert "immutable" in site.get(str(addresses[0])).headers["Cache-Control"]


@pytest.mark.parametrize(("cookie", "chosen"), [("dark", "dark"), ("light", "light"), ("x", "auto"), ("", "auto")])
def test_the_theme_is_remembered(site, cookie, chosen):
    answer = site.client.get("/", headers={"Cookie": f"theme={cookie}", "Accept": "text/html"})
    checked = re.findall(r'id="theme-(\w+)" value="\w+" checked', answer.text)
    assert checked == [chosen]
