"""Two saved Results side by side: weaker than an interleaved run, because the machine may have changed in between."""

from collections.abc import Iterator
from dataclasses import replace

from harness.compare import compare_cases, compare_timings
from harness.errors import CannotCompare
from harness.labels import case_label
from harness.result import CaseResult, Result

WEAKER = (
    "these runs were not interleaved: clocks, heat and neighbours may differ between them, which no interval shows; "
    "eval.py --baseline FILE measures both in turn"
)


def compare_results(result: Result, baseline: Result) -> tuple[Result, list[str]]:
    """`result` reduced to the cases that both have timed, each with its comparison; and what should be known about that.

    Raises CannotCompare, with the reason for each, if there is no such case.
    """
    theirs = {_key(case): case for case in baseline.cases}
    cases, reasons = [], []
    for case in result.cases:
        try:
            cases.append(_compared(case, theirs.pop(_key(case), None)))
        except CannotCompare as error:
            reasons.append(f"{case_label(case.spec)}: {error}")
    reasons += [f"{case_label(case.spec)}: only in the baseline" for case in theirs.values()]
    if not cases:
        raise CannotCompare(f"no case can be compared; measure both with the same --cases ({_first(reasons)})")
    compared = replace(
        result, cases=tuple(cases), cases_total=len(cases), score=None, warnings=(), baseline=baseline.submission,
        comparison=compare_cases(cases),
    )  # fmt: skip
    return compared, [WEAKER, *_differences(result, baseline), *reasons]


def _first(reasons: list[str], shown: int = 3) -> str:
    rest = len(reasons) - shown
    return "; ".join(reasons[:shown]) + (f"; and {rest} more" if rest > 0 else "")


def _key(case: CaseResult) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(case.spec.items()))


def _compared(case: CaseResult, other: CaseResult | None) -> CaseResult:
    if other is None:
        raise CannotCompare("not in the baseline")
    if case.timing is None or other.timing is None:
        raise CannotCompare(f"{'this run' if case.timing is None else 'the baseline'} has no time for it")
    return replace(case, comparison=compare_timings(case.timing, other.timing, interleaved=False), warnings=())


def _differences(result: Result, baseline: Result) -> Iterator[str]:
    pairs = {
        "device": (result.device.name, baseline.device.name),
        "driver": (result.device.driver, baseline.device.driver),
        "torch": (result.device.torch, baseline.device.torch),
        "policy": (result.policy, baseline.policy),
        "mode": (result.mode, baseline.mode),
        "harness": (result.harness_version, baseline.harness_version),
    }
    for name, (this, other) in pairs.items():
        if this != other:
            yield f"the {name} differs: {this} here, {other} in the baseline"
