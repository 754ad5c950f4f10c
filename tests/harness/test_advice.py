"""Every warning: when it is given, when not, and that it names the value and what to do. The docs list them all."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from terminal_results import H200

from harness import advice
from harness.advice import CASE_RULES, END_RULES, LOADED_RULES, START_RULES, advise, busy_machine, outliers, refused_by_server
from harness.result import CaseResult, Conditions, Floor, Official, Result, Status, Strict
from harness.stats import summarize

DOCS = Path(__file__).parents[2] / "docs" / "warnings.md"
QUIET = [10_000 + step % 7 for step in range(50)]
CASE = CaseResult(
    {"size": 4}, Status.PASS, official=Official(True), strict=Strict(True), timing=summarize(QUIET),
    floor=Floor(4000.0, 5000.0, 2000.0), compile_ns=10**9, conditions=Conditions(1900, 1950, 1980, (), 0, 0),
)  # fmt: skip
SECOND_NS = 10**9


def case_with(**changes) -> CaseResult:
    return replace(CASE, **changes)


def with_samples(samples_ns) -> CaseResult:
    return case_with(timing=summarize(samples_ns))


def only(case: CaseResult) -> str:
    (message,) = advise(CASE_RULES, case)
    return message


def test_nothing_to_say_about_a_quiet_case():
    assert advise(CASE_RULES, CASE) == ()


def test_nothing_to_say_about_a_case_that_failed_to_run():
    assert advise(CASE_RULES, CaseResult({"size": 4}, Status.CRASHED, "gone")) == ()


def test_official_passes_and_strict_does_not():
    message = only(case_with(status=Status.WRONG, strict=Strict(False)))
    assert message.startswith("the official check accepts this output, the strict one does not: a leaderboard would take it")


def test_strict_passes_and_official_does_not():
    message = only(case_with(status=Status.WRONG, official=Official(False), timing=None, floor=None))
    assert message.startswith("the strict check accepts this output, the official one does not: a leaderboard would refuse it")


@pytest.mark.parametrize(("took_ns", "warned"), [(59 * SECOND_NS, False), (61 * SECOND_NS, True)])
def test_first_call(took_ns, warned):
    found = advise(CASE_RULES, case_with(compile_ns=took_ns))
    assert found == (("the first call took 61 s; a runner grants 120 s: compile less, or at import",) if warned else ())


def test_launch_latency():
    seen = replace(CASE.conditions or Conditions(), exposed_samples=7)
    assert only(case_with(conditions=seen)).startswith("launch latency shows in 7 of 50 samples")


def test_a_sample_below_the_refusal_floor():
    message = only(case_with(timing=summarize([1_500, *QUIET])))
    assert message.startswith("the best sample, 1.500 us, is below the refusal floor of 2.000 us")


@pytest.mark.parametrize(("refusal_ns", "warned"), [(9_500.0, True), (9_000.0, False)])
def test_near_the_refusal_floor(refusal_ns, warned):
    found = advise(CASE_RULES, case_with(floor=Floor(refusal_ns=refusal_ns)))
    assert bool(found) is warned
    assert not warned or "10.00 us is 5% above the refusal floor of 9.500 us" in found[0]


@pytest.mark.parametrize(("runs", "warned"), [(1, True), (5, True), (6, False)])
def test_too_few_samples_for_an_interval(runs, warned):
    found = advise(CASE_RULES, with_samples([10_000] * runs))
    assert found == ((f"{runs} samples; a 95 % interval needs 6: raise --budget-s",) if warned else ())


@pytest.mark.parametrize(("width", "factor"), [(0.055, "1.2"), (0.075, "2.2"), (0.16, "10"), (0.4, "64")])
def test_a_slightly_wide_interval_asks_for_more_than_once_the_budget(width, factor):
    case = with_samples([10_000] * 20)
    assert case.timing is not None
    wide = replace(case, timing=replace(case.timing, ci95_ns=(10_000.0, 10_000.0 * (1 + width))))
    assert f"raise --budget-s about {factor} times" in only(wide)


def test_a_wide_interval_says_how_much_longer():
    message = only(with_samples([10_000, 12_000] * 10))
    assert re.match(r"the interval is 1\d% of the median after 20 samples \(warned above 5%\): raise --budget-s", message)


def test_outliers_name_their_number_and_the_worst():
    message = only(with_samples([*QUIET, 30_000, 40_000]))
    assert message.startswith("2 of 52 samples are outliers (warned above 2%), the worst 4.0 times the median: ")


def test_one_outlier_in_a_hundred_is_nothing():
    assert advise(CASE_RULES, with_samples([*QUIET, *QUIET, 30_000])) == ()


def test_throttled():
    seen = Conditions(1200, 1210, 1980, ("heat", "power cap"), 0, 0)
    assert only(case_with(conditions=seen)).startswith("the device was throttled at 1200 of 1980 MHz (heat, power cap): ")


def test_clock_moved():
    message = only(case_with(conditions=Conditions(1500, 1980, 1980)))
    assert message.startswith("the core clock moved between 1500 and 1980 MHz (24%, warned above 3%): lock it")


@pytest.mark.parametrize(("others", "words"), [(1, "another process has"), (3, "3 other processes have")])
def test_not_alone(others, words):
    assert only(case_with(conditions=Conditions(other_processes=others))).startswith(f"{words} memory on this device")


def test_unknown_bandwidth():
    assert advise(START_RULES, H200) == ()
    (message,) = advise(START_RULES, replace(H200, device=replace(H200.device, peaks=None)))
    assert "configs/devices.yml does not know this device" in message


def loaded_in(seconds: int) -> Result:
    return replace(H200, submission=replace(H200.submission, load_ns=seconds * SECOND_NS))


def test_import_time():
    assert advise(LOADED_RULES, loaded_in(59)) == ()
    assert advise(LOADED_RULES, loaded_in(61)) == (
        "importing the submission took 61 s; a runner grants 120 s: compile less, or lazily",
    )


def test_import_and_first_calls_together():
    slow = replace(loaded_in(50), cases=tuple(replace(case, compile_ns=20 * SECOND_NS) for case in H200.cases))
    (message,) = advise(END_RULES, slow)
    assert message.startswith("import and first calls took 210 s together")
    assert advise(END_RULES, H200) == ()


@pytest.mark.parametrize(
    ("content", "name", "rule"),
    [
        (b"x" * 1_000_001, "a.py", "size"),
        (b"#\n# a str" + b"eam of bytes\n", "a.py", "word"),
        (b"#!POPCORN gpu\n", "a.py", "directive"),
        (b"\xff", "a.py", "encoding"),
        (b"", "a.txt", "extension"),
    ],
)
def test_what_a_server_would_refuse(content, name, rule):
    found = refused_by_server(content, name)
    assert [message for message in found if message.startswith(f"a popcorn server would refuse {name} ({rule}): ")]


def test_a_busy_machine():
    assert busy_machine(1.0, 2) == []
    assert busy_machine(7.25, 2) == [
        "7.2 processes want these 2 cores (warned above 0.5 a core): times include waiting; end other work or wait for it"
    ]


def test_a_file_that_a_server_takes():
    assert refused_by_server(b"import torch\n", "a.py") == []


@given(st.lists(st.integers(100, 10**6), min_size=1, max_size=60), st.integers(2, 50))
def test_outliers_lie_far_above_the_median_and_scale_with_the_unit(samples_ns, factor):
    found = outliers(samples_ns)
    assert all(value > 1.05 * sorted(samples_ns)[len(samples_ns) // 2 - 1 + len(samples_ns) % 2] for value in found)
    assert len(found) < len(samples_ns) / 2 + 1
    assert outliers([factor * value for value in samples_ns]) == [factor * value for value in found]


def test_every_warning_names_a_value_and_a_next_step():
    rules = (*CASE_RULES, *START_RULES, *LOADED_RULES, *END_RULES)
    assert len({rule.name for rule in rules}) == len(rules)
    assert all(rule.when and rule.remedy for rule in rules)


@pytest.mark.parametrize("rule", [*CASE_RULES, *START_RULES, *LOADED_RULES, *END_RULES], ids=lambda rule: rule.name)
def test_the_documentation_lists_the_rule(rule):
    assert f"| {rule.name} | {rule.when} | {rule.remedy} |" in DOCS.read_text(encoding="utf-8")


def test_limits_in_the_documentation_are_the_ones_in_force():
    assert (advice.OUTLIER_SIGMAS, advice.MIN_OUTLIER_EXCESS, advice.MAX_OUTLIERS) == (10.0, 0.05, 0.02)
    assert "10 x 1.4826 x MAD" in DOCS.read_text(encoding="utf-8")
