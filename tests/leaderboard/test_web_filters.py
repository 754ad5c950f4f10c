"""Lists that an address asks for: what fits, page by page, and nonsense passed over."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from web_site import ADA, BOARD, demo_site

from leaderboard.web import filters as module
from leaderboard.web.filters import filters_of


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return demo_site(tmp_path_factory.mktemp("site"))


def numbers(page):
    """The submissions of the list, as they stand there."""
    section = page.all("section", id="submissions")[0]
    return [int(row.all("th")[0].text().strip().removeprefix("#")) for row in section.all("tbody")[0].all("tr")]


def cells(page, column):
    section = page.all("section", id="submissions")[0]
    return [row.children[column].text().split()[-1] for row in section.all("tbody")[0].all("tr")]


def test_filters_leave_out(site):
    everything = numbers(site.page(BOARD))
    assert everything == sorted(everything, reverse=True)
    failed = numbers(site.page(f"{BOARD}?status=failed"))
    assert failed == [10, 3]
    assert set(cells(site.page(f"{BOARD}?user=demo-ada&mode=leaderboard"), 2)) == {"demo-ada"}
    assert numbers(site.page(f"{BOARD}?user=demo-ada&mode=benchmark")) == [24]


def test_days_are_whole_and_both_count(site):
    with site.store.reading() as session:
        from leaderboard.queries import submissions

        row = next(row for row in submissions(session, leaderboard="demo-mixed-mla") if row.id == 19)
    day = f"{row.submitted_at.astimezone(UTC):%Y-%m-%d}"
    found = numbers(site.page(f"{BOARD}?since={day}&until={day}"))
    assert 19 in found
    assert 1 not in found


def test_what_is_asked_for_stands_in_the_form(site):
    page = site.page(f"{BOARD}?user=demo-ada&status=succeeded&since=2026-01-02")
    form = page.all("form", class_="filters")[0]
    assert form.all("input", name_="user")[0].attributes["value"] == "demo-ada"
    assert form.all("input", name_="since")[0].attributes["value"] == "2026-01-02"
    assert [option.attributes["value"] for option in form.all("option") if "selected" in option.attributes] == ["succeeded", ""]


def test_nothing_fits(site):
    page = site.page(f"{BOARD}?user=nobody")
    assert "No submission fits" in page.text()


def test_pages_join(site, monkeypatch):
    everything = numbers(site.page(BOARD))
    monkeypatch.setattr(module, "PAGE_ROWS", 7)
    found, path = [], f"{BOARD}?mode="
    while path:
        page = site.page(path.partition("#")[0])
        found += numbers(page)
        older = [link for link in page.all("a") if link.text().strip() == "Older"]
        path = str(older[0].attributes["href"]) if older else ""
    assert found == everything


def test_a_list_that_is_paged_does_not_change_under_the_reader(site):
    assert site.page(f"{BOARD}").all("main", data_live="/live")
    assert not site.page(f"{BOARD}?before=10").all("main", data_live="/live")


def asked(query: str):
    return filters_of(Request({"type": "http", "query_string": query.encode(), "headers": []}))


@given(st.text(max_size=30), st.sampled_from(["status", "mode", "since", "until", "before"]))
def test_nonsense_counts_as_not_given(value, name):
    found = asked(f"{name}={value}").query()
    assert found["status"] is None or found["status"] in module.STATUS_WORDS
    assert found["mode"] is None or found["mode"] in module.MODES
    assert found["before_id"] is None or 0 <= found["before_id"] < 2**63


def test_the_last_day_is_included():
    found = asked("since=2026-01-02&until=2026-01-02").query()
    assert (found["since"], found["until"]) == (datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))


def test_a_users_own_list(site):
    page = site.page("/users/demo-ada?status=succeeded", ADA)
    assert numbers(page) == [19, 14, 8, 5, 1]
