"""The page: well-formed, alone, escaped, and complete for every status and state."""

import base64
import hashlib
import json
import re
from itertools import pairwise

import pytest
from html_tree import Element, parse_html
from report_results import ALL_STATUSES, EVERY_STATUS, FAILED, H200, HOSTILE, INTERRUPTED, PROFILED, RUNNING, STATES, hostile

from harness.report.page import STYLE, render_html
from harness.result import Status, result_from_json, result_to_json
from harness.text import printable

PAGES = {name: parse_html(render_html(result)) for name, result in {**STATES, "hostile": hostile()}.items()}
SECTIONS = ["cases", "warnings", "details", "device", "reproduce", "raw", "glossary"]
every_page = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES.keys())


@every_page
def test_nothing_is_loaded_and_nothing_runs(page: Element):
    assert not page.all("script")
    elements = page.all()
    for element in elements:
        assert not [name for name in element.attributes if name.startswith("on") or name in ("src", "srcset", "style")], element
    links = [element.attributes["href"] or "" for element in elements if "href" in element.attributes]
    assert all(link.startswith(("#", "data:,", "data:application/json;base64,")) for link in links)
    assert "url(" not in STYLE
    assert "@import" not in STYLE


@every_page
def test_the_policy_forbids_all_but_the_pages_own_style(page: Element):
    policy = page.all("meta", http_equiv="Content-Security-Policy")[0].attributes["content"] or ""
    assert "default-src 'none'" in policy
    digest = base64.b64encode(hashlib.sha256(page.all("style")[0].texts[0].encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy


@every_page
def test_headings_form_an_outline(page: Element):
    levels = [int(element.name[1]) for element in page.all() if re.fullmatch("h[1-6]", element.name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(deeper - level <= 1 for level, deeper in pairwise(levels))


@every_page
def test_anchors_and_labels_lead_somewhere(page: Element):
    ids = [element.attributes["id"] for element in page.all() if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    wanted = [element.attributes["href"] or "" for element in page.all("a")]
    labels = [element.attributes["aria-labelledby"] for element in page.all("section")]
    assert {link[1:] for link in wanted if link.startswith("#")} | set(labels) <= set(ids)


@every_page
def test_pictures_and_tables_speak(page: Element):
    for picture in page.all("svg"):
        nested = "viewbox" in picture.attributes
        assert nested or picture.attributes.get("aria-hidden") or picture.attributes.get("aria-label")
    for table in page.all("table"):
        assert table.all("caption")
        assert all(cell.attributes.get("scope") for cell in table.all("th"))
    for region in page.all(class_="scroll"):
        assert region.attributes.get("tabindex") == "0"
        assert region.attributes.get("aria-label")


@every_page
def test_sections_stand_in_order(page: Element):
    main = page.all("main")[0]
    assert [section.attributes["id"] for section in main.children if section.name == "section"] == SECTIONS


@pytest.mark.parametrize("name", STATES)
def test_a_section_per_case(name):
    cases = PAGES[name].all("section", class_="case")
    assert [case.attributes["id"] for case in cases] == [f"case-{n + 1}" for n in range(len(STATES[name].cases))]


@pytest.mark.parametrize("status", Status)
def test_every_status_is_named(status):
    index = next(index for index, case in enumerate(ALL_STATUSES) if case.status is status)
    page, case = PAGES["every status"], ALL_STATUSES[index]
    section = page.all("section", id=f"case-{index + 1}")[0]
    if status not in (Status.PASS, Status.WRONG):
        assert status.value.replace("_", " ") in section.text()
    assert case.message in section.text()
    assert bool(section.all(class_="reason")) is (status is not Status.PASS)
    assert bool(section.all(class_="samples")) is (case.timing is not None)


def test_official_and_strict_stand_side_by_side():
    section = PAGES["every status"].all("section", id="case-3")[0]
    chips = section.all("p", class_="chips")[0].children
    assert [(chip.texts[0], "pass" in (chip.attributes["class"] or "").split()) for chip in chips] == [
        ("official pass", True),
        ("strict fail", False),
    ]


def test_a_running_page_reloads_itself_and_a_finished_one_does_not():
    assert PAGES["running"].all("meta", http_equiv="refresh")
    assert PAGES["running"].all("progress")[0].attributes == {"max": "10", "value": "3", "aria-label": "cases done"}
    for name in set(PAGES) - {"running", "started"}:
        assert not PAGES[name].all("meta", http_equiv="refresh"), name


@pytest.mark.parametrize(
    ("result", "title"),
    [
        (H200, "46.33 µs"),
        (EVERY_STATUS, "No score"),
        (RUNNING, "No score yet"),
        (INTERRUPTED, "No score"),
        (FAILED, "No score"),
    ],
)
def test_the_title_is_the_score(result, title):
    heading = parse_html(render_html(result)).all("h1")[0].all(class_="score")[0]
    assert " ".join(heading.text().split()) == title


def test_what_is_hostile_stays_text():
    page, shown = PAGES["hostile"], printable(HOSTILE)
    assert not page.all("img")
    assert page.text().count("onerror=alert(2)") >= 25
    assert page.all("title")[0].texts == [f"{shown}: Failed: {shown}"]
    assert "\u202e" not in page.text()
    assert "\x1b" not in page.text()


def test_details_of_another_form_are_no_plot():
    assert not PAGES["hostile"].all(class_="heads")
    assert PAGES["h200"].all(class_="heads")


def test_a_head_that_is_not_finite_is_marked():
    figure = PAGES["every status"].all("section", id="case-1")[0].all(class_="heads")[0]
    hints = [bar.all("title")[0].text() for bar in figure.all("rect")]
    assert hints == ["head 0: 0.001", "head 1: 0.002", "head 2: not finite", "head 3: 0.003"]


def test_how_to_reproduce():
    text = PAGES["every status"].all("section", id="reproduce")[0].text()
    assert "python eval.py --cases 'my cases.txt' --seed ***" in text
    assert "size: 1; seed: 1\nsize: 2; seed: 1\n" in text
    assert "abc1234" in text
    assert "changes that were not committed" in text
    assert "The seed was secret" in text
    assert "secret" not in PAGES["h200"].all("section", id="reproduce")[0].text()


@pytest.mark.parametrize("name", STATES)
def test_the_result_lies_in_the_page(name):
    link = PAGES[name].all("a", download="result.json")[0].attributes["href"] or ""
    data = json.loads(base64.b64decode(link.partition(",")[2]))
    assert data == result_to_json(STATES[name])
    assert result_to_json(result_from_json(data)) == data


def test_columns_without_anything_to_say_are_left_out():
    def heads(name: str) -> list[str]:
        return [head.text() for head in PAGES[name].all("section", id="cases")[0].all("thead")[0].all("th")]

    assert heads("h200") == [
        "case", "official", "strict", "reads", "median [95 %] µs", "mean ± err µs", "GB/s", "% of roofline",
        "% of measured floor", "strict error", "backend",
    ]  # fmt: skip
    assert heads("tested") == ["case", "official", "strict", "reads", "strict error", "backend"]
    assert {"status", "why"} <= set(heads("every status"))


def test_a_comparison_shows_above_in_the_table_and_in_the_plot():
    page = PAGES["compared"]
    assert "Faster than old.py: 0.800 x its time [0.780, 0.830]" in page.all("header")[0].text()
    cases = page.all("section", id="cases")[0]
    assert "0.800 [0.780, 0.830] faster" in [cell.text() for cell in cases.all("td")]
    hints = [mark.all("title") for mark in cases.all("circle", class_="baseline")]
    assert [hint[0].text() for hint in hints if hint] == ["baseline's median 2.500 µs"]
    assert not PAGES["h200"].all("circle", class_="baseline")


def test_conditions_stand_with_the_case():
    text = PAGES["compared"].all("section", id="case-1")[0].text()
    for said in ("1755 to 1980 MHz of 1980 MHz", "power cap", "Other processes on the device"):
        assert said in text


def test_a_profile_is_a_table():
    table = next(t for t in PAGES["profiled"].all("section", id="case-1")[0].all("table"))
    assert PROFILED.cases[0].profile
    assert [cell.text() for cell in table.all("tbody")[0].all("td")] == ["0.900", "90%", "3", "0.100", "10%", "6"]
    assert "results/t.json" in table.all("caption")[0].text()
