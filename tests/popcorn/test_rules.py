"""What the server would refuse is found beforehand, with the line where there is one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popcorn.rules import BANNED_WORD, MAX_BYTES, check_submission

FINE = b"#!POPCORN leaderboard amd-mixed-mla\n#!POPCORN gpu MI355X\n\ndef custom_kernel(data):\n    return data\n"


def rules(content, name="submission.py"):
    return {violation.rule: violation for violation in check_submission(content, name)}


def test_a_good_submission_has_no_violations():
    for name in ("submission.py", "kernel.cu", "kernel.cuh", "kernel.cpp"):
        assert check_submission(FINE, name) == []


def test_the_size_limit_is_inclusive():
    padding = b"#" * (MAX_BYTES - len(FINE))
    assert rules(FINE + padding) == {}
    assert "1,000,001 bytes" in rules(FINE + padding + b"#")["size"].message


LINES = ["x = 1", "a" + BANNED_WORD, BANNED_WORD.upper(), "# cudaStreamCreate", "Str eam"]


@given(st.lists(st.sampled_from(LINES), max_size=20))
def test_every_line_with_the_word_is_named(lines):
    found = rules("\n".join(lines).encode()).get("word")
    expected = tuple(i for i, line in enumerate(lines, start=1) if BANNED_WORD in line.lower())
    assert (found.lines if found else ()) == expected


def test_many_lines_with_the_word_are_counted_and_not_listed():
    assert "line 1, 2, 3, 4, 5 and 3 more" in rules(f"{BANNED_WORD}\n".encode() * 8)["word"].message


def test_bytes_that_are_not_utf8_are_placed():
    found = rules(FINE + b"x = '\xe9'\n")["encoding"]
    assert (found.lines, "0xe9" in found.message) == ((6,), True)


@pytest.mark.parametrize("name", ["submission.txt", "submission", "submission.py.bak", "kernel.hip"])
def test_the_extension(name):
    assert name in rules(FINE, name)["extension"].message


def test_directives_that_the_server_refuses():
    assert rules(b"# hello\n#!POPCORN gpu A B\n")["directive"].lines == (2,)
    assert "directive" not in rules(b"\n#!POPCORN nonsense\n")


def test_all_violations_are_reported_at_once():
    content = b"#!POPCORN nonsense\n" + BANNED_WORD.encode() + b"\n" + b"#" * MAX_BYTES
    assert set(rules(content, "a.txt")) == {"size", "extension", "word", "directive"}


@given(st.binary(max_size=200), st.text(max_size=20))
def test_no_file_whatever_makes_it_raise(content, name):
    check_submission(content, name)
