"""Markup by construction: whatever the text, the page holds it as text."""

from html_tree import parse_html
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.report.markup import Html, tag
from harness.text import printable


@settings(deadline=None)
@given(st.text(), st.text())
def test_text_and_attributes_come_back_as_they_were(text, value):
    element = parse_html(tag("p", text, title=value)).children[0]
    assert element.name == "p"
    assert not element.children
    assert "".join(element.texts) == printable(text)
    assert element.attributes == {"title": printable(value)}


def test_children():
    assert tag("ul", [tag("li", 1), None, (tag("li", 2.5) for _ in range(2))]) == "<ul><li>1</li><li>2.5</li><li>2.5</li></ul>"
    assert tag("p", "a<b", Html("<br>")) == "<p>a&lt;b<br></p>"


def test_attributes():
    assert tag("input", checked=True, disabled=None, type="radio") == '<input checked type="radio">'
    assert tag("line", class_="grid", x1=1 / 3, aria_hidden="true") == '<line class="grid" x1="0.33" aria-hidden="true"></line>'


def test_strings_put_together_are_text_again():
    assert tag("p", tag("b", "x") + "!") == "<p>&lt;b&gt;x&lt;/b&gt;!</p>"
