"""The HTML page of a Result: one file that runs no script and loads nothing, so nothing that a submission says can act."""

import base64
import hashlib
from pathlib import Path

from harness.report.markup import Html, join, tag
from harness.report.page_case import case_section
from harness.report.page_head import head_of_page
from harness.report.page_parts import section
from harness.report.page_tables import cases_table, glossary_section, raw_section
from harness.report.page_tail import device_section, reproduce_section, warnings_section
from harness.report.plot_floors import floors_plot
from harness.report.words import headline
from harness.result import Result, State

STYLE = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
RELOAD_S = 5  # while the run goes on
THEMES = (("auto", "Auto"), ("light", "Light"), ("dark", "Dark"))


def render_html(result: Result) -> str:
    """The whole page as text."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy()),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="refresh", content=RELOAD_S) if result.state is State.RUNNING else None,
        tag("link", rel="icon", href="data:,"),
        tag("title", f"{result.problem}: {headline(result)}"),
        tag("style", Html(STYLE)),
    )
    skip = tag("a", "Skip to the cases", href="#cases", class_="skip")
    page = tag("body", skip, _themes(), head_of_page(result), tag("main", sections(result)), _foot(result))
    return f"<!doctype html>\n{tag('html', head, page, lang='en')}\n"


def _policy() -> str:
    """No script, no network, and only our own style: a second wall behind the escaping."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


def _themes() -> Html:
    """A choice that the style sheet alone reads."""
    choices = [
        tag("label", tag("input", type="radio", name="theme", id=f"theme-{key}", checked=True if key == "auto" else None), name)
        for key, name in THEMES
    ]
    return tag("fieldset", tag("legend", "Theme"), choices, class_="themes")


def sections(result: Result) -> Html:
    """What the links of `head_of_page` lead to."""
    cases = result.cases
    none_yet = tag("p", f"No case has run{' yet' if result.state is State.RUNNING else ''}.", class_="quiet")
    overview = (floors_plot(cases), cases_table(cases)) if cases else none_yet
    return join(
        (
            section("cases", "Cases", overview),
            warnings_section(result),
            section("details", "Case by case", [case_section(index, case) for index, case in enumerate(cases)] or none_yet),
            device_section(result.device),
            reproduce_section(result),
            raw_section(cases) if cases else section("raw", "Raw numbers", none_yet),
            glossary_section(cases),
        )
    )


def _foot(result: Result) -> Html:
    note = "One file: no scripts, nothing loaded from a network."
    return tag("footer", tag("p", f"Kernelproof {result.harness_version}. ", note))
