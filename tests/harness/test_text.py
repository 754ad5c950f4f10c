"""What a submission says is shown, and never obeyed, by terminals, files and pipes."""

import json

from hypothesis import given
from hypothesis import strategies as st

from harness.text import printable, printable_all

texts = st.text(st.characters() | st.characters(categories=["Cs", "Cc"]), max_size=60)


@given(texts)
def test_the_result_can_be_written_and_has_no_control_characters(text):
    shown = printable(text)
    shown.encode("utf-8")
    assert all(character in "\n\t" or ord(character) >= 32 for character in shown)
    assert len(shown.split("\n")) == len(shown.splitlines() or [""]) + shown.endswith("\n")


@given(st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=60))
def test_ordinary_text_stays_as_it_is(text):
    assert printable(text + "\n\tend") == text + "\n\tend"


def test_escapes_are_shown():
    assert printable("\x1b[2K\rPASS\x00\ud800") == "\\x1b[2K\nPASS\\x00\\ud800"


json_values = st.recursive(texts | st.none(), lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=8)


@given(json_values)
def test_every_string_of_a_json_value(value):
    json.dumps(printable_all(value), ensure_ascii=False).encode("utf-8")
