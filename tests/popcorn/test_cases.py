"""Case files: the official grammar, exactly, and messages that name the line."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popcorn.cases import Case, CaseError, combine_seed, parse_case, parse_cases

identifiers = st.from_regex(r"[a-zA-Z_]\w{0,12}", fullmatch=True)
values = st.integers(-(2**63), 2**63) | identifiers | st.booleans()


@given(st.dictionaries(identifiers, values, min_size=1, max_size=8))
def test_a_mapping_comes_back_as_a_runner_would_deliver_it(spec):
    case = Case.from_spec(spec)
    words = {"true": True, "false": False}
    assert case.spec == {key: str(v) if isinstance(v, bool) else words.get(v, v) for key, v in spec.items()}
    assert list(case.spec) == list(spec)
    assert parse_cases(case.text + "\n", "cases.txt") == [case]


@given(st.text(alphabet=string.ascii_letters + string.digits + ":;_+-. \t#é\"'", max_size=40))
def test_what_the_official_grammar_rejects_is_rejected_and_nothing_else(line):
    # The official evaluator: split at semicolons, every part must match this.
    part = re.compile(r"\s*([a-zA-Z_]\w*):\s*([a-zA-Z_]\w*|[+-]?[0-9]+)\s*")
    parts = [part.fullmatch(text) for text in line.split(";")]
    keys = [match[1] for match in parts if match]
    if all(parts) and len(set(keys)) == len(keys):
        assert list(parse_case(line, "x").spec) == keys
    else:
        with pytest.raises(CaseError):
            parse_case(line, "x")


def test_values_are_converted_as_officially():
    spec = parse_case("a: 1; b: -2; c: +3; d: true; e: false; f: True; g: False; h: bf16; _i: 007", "x").spec
    assert spec == {"a": 1, "b": -2, "c": 3, "d": True, "e": False, "f": "True", "g": "False", "h": "bf16", "_i": 7}
    assert type(spec["d"]) is bool


def test_the_text_is_the_line_byte_for_byte():
    line = " batchsize: 4;qseqlen:   1;  seed: 4220  "
    assert parse_cases(line, "x")[0].text == line


@pytest.mark.parametrize(
    "bad",
    ["", "   ", "# comment", "a: 1;", "a: 1;; b: 2", "a 1", "a: 1.5", "a: [1]", "a: x y", "1a: 2", "a : 1", "a: ", "a: 'x'"],
)
def test_a_malformed_line_is_named(bad):
    with pytest.raises(CaseError, match=re.escape("cases.txt, line 2")):
        parse_cases(f"a: 1\n{bad}\na: 2\n", "cases.txt")


def test_a_key_given_twice_is_an_error():
    with pytest.raises(CaseError, match="'seed' stands twice"):
        parse_case("seed: 1; kv: 2; seed: 3", "x")


def test_an_absurd_integer_is_an_error_and_not_a_string():
    with pytest.raises(CaseError, match="5000 digits"):
        parse_case("seed: " + "9" * 5000, "x")


def test_an_empty_file_has_no_cases():
    assert parse_cases("", "cases.txt") == []


@pytest.mark.parametrize("value", [1.5, [1], {"a": 1}, "two words", ""])
def test_what_cannot_be_written_on_the_wire_is_refused(value):
    with pytest.raises(CaseError):
        Case.from_spec({"key": value})


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**12))
def test_seeds_of_different_cases_stay_different_under_a_secret(a, b, secret):
    assert (combine_seed(a, secret) == combine_seed(b, secret)) == (a == b)
    assert combine_seed(a, secret) >= secret // 2


def test_the_combined_seed_is_the_published_formula():
    assert combine_seed(4220, 0) == 4220 + 4220 * 4221 // 2
    assert combine_seed(3, 5) == 3 + 8 * 9 // 2


def test_a_secret_seed_changes_the_draw_and_not_the_name():
    case = parse_case("n: 10; seed: 3", "x")
    secret = case.with_seed(5)
    assert secret.spec == {"n": 10, "seed": combine_seed(3, 5)}
    assert secret.text == case.text
    assert case.with_seed(None) == case
    assert parse_case("n: 10", "x").with_seed(5).spec == {"n": 10}
