"""A Result as popcorn tells it: the text report, the evaluator's `key: value` lines, the objects of the wire.

A secret run is told by its counts alone: what a submission prints or raises there may quote the secret inputs.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from harness.figures import us
from harness.render_plain import failures, profile_lines
from harness.result import CaseResult, Result, State, Status
from popcorn.http_models import EvalResult, FullResult, RunResult, SystemInfo

NOUNS = {"test": "Testing", "benchmark": "Benchmarking", "leaderboard": "Ranked run", "profile": "Profiling"}
STARTS = {"test": "tests", "benchmark": "benchmarks", "leaderboard": "ranked benchmarks", "profile": "the profiler"}
REASONS = {Status.TIMEOUT: "timeout", Status.DEVICE_ERROR: "device error", Status.CRASHED: "crash", Status.OOM: "out of memory"}
STATISTICS = ("mean", "std", "err", "best", "worst")  # of a case's lines, in nanoseconds
MAX_REPORT_CHARS = 20_000
HIDDEN = "what happened inside a secret run is not told: it would tell the secret inputs"


def run_report(result: Result, mode: str) -> str:
    """The whole report of one run, for its author."""
    lines = [headline(result, mode), f"on {result.device.name}, torch {result.device.torch}", "", counts(result)]
    for case in result.cases:
        lines += _case_lines(case)
    if result.error:
        lines += ["", f"> {result.error}"]
    if result.score and result.score.value_ns is not None:
        how = f"{result.score.ranking_by} of the cases' {result.score.statistic}s"
        lines += ["", f"score: {us(result.score.value_ns)} µs ({how})"]
    lines += [f"note: {warning}" for warning in result.warnings]
    return _cut("\n".join(lines))


def secret_report(result: Result, mode: str) -> str:
    """What may be told of a run to those who may not see it whole."""
    return "\n".join([headline(result, mode), counts(result)])


def headline(result: Result, mode: str) -> str:
    """One line in the words that popcorn users know; nothing in it comes from the submission."""
    if result.ok:
        return f"✅ {NOUNS[mode]} successful"
    if result.state is not State.COMPLETE:
        ended = "the submission could not be loaded" if not result.cases and result.error else result.state.value
        return f"❌ Running {STARTS[mode]} failed ({ended})"
    reason = next((REASONS[case.status] for case in result.cases if case.status in REASONS), None)
    return f"❌ Running {STARTS[mode]} failed ({reason})" if reason else f"❌ {NOUNS[mode]} failed"


def counts(result: Result) -> str:
    """How many cases pass."""
    passed = sum(case.status is Status.PASS for case in result.cases)
    mark, kind = "✅" if passed == result.cases_total else "❌", "tests" if result.mode == "test" else "benchmarks"
    return f"## {mark} Passed {passed}/{result.cases_total} {kind}:"


def _case_lines(case: CaseResult) -> Iterator[str]:
    spec = "; ".join(f"{key}: {value}" for key, value in case.spec.items())
    yield f"{'✅' if case.status is Status.PASS else '❌'} {spec}"
    for line in [*failures(case), *case.detail.splitlines()]:
        yield f"> {line}"
    if case.timing:
        timing = case.timing
        yield f" ⏱ {us(timing.mean_ns)} ± {us(timing.err_ns)} µs, median {us(timing.median_ns)} µs"
        yield f" ⚡ {us(timing.best_ns)} µs 🐌 {us(timing.worst_ns)} µs"
    yield from profile_lines(case)
    yield from (f"note: {warning}" for warning in case.warnings)
    yield from (f"| {line}" for line in case.printed.splitlines())


def _cut(text: str) -> str:
    return text if len(text) <= MAX_REPORT_CHARS else text[:MAX_REPORT_CHARS] + "\n[... cut; the submission's page has it all]"


def pipe_lines(result: Result) -> dict[str, str]:
    """What an evaluator would have written into a runner's pipe: per-case results for clients that poll."""
    kind = "test" if result.mode == "test" else "benchmark"
    lines = {f"{kind}-count": str(result.cases_total)}
    for index, case in enumerate(result.cases):
        lines |= {f"{kind}.{index}.{name}": value for name, value in _pipe_case(case)}
    return {**lines, "check": "pass" if result.ok else "fail"}


def _pipe_case(case: CaseResult) -> Iterator[tuple[str, str]]:
    yield "spec", "; ".join(f"{key}: {value}" for key, value in case.spec.items())
    if case.status is not Status.PASS:
        yield "status", "fail"
        yield "error", "\n".join(failures(case)) or f"{case.message}\n{case.detail}".strip()
    elif case.timing is None:
        yield "status", "pass"
    else:
        yield "runs", str(case.timing.runs)
        yield from ((name, repr(getattr(case.timing, f"{name}_ns"))) for name in STATISTICS)


def full_result(runs: Sequence[tuple[Result, str]], secret: bool, system: Mapping[str, Any]) -> FullResult:
    """Popcorn's FullResult of the runs (Result, time of end) that were made together."""
    return FullResult(
        success=all(result.state is State.COMPLETE for result, _ in runs),
        error="" if secret else next((result.error for result, _ in runs if result.error), ""),
        system=SystemInfo(**system),
        runs={result.mode: _eval_result(result, end, secret) for result, end in runs},
    )


def _eval_result(result: Result, end: str, secret: bool) -> EvalResult:
    printed = "".join(case.printed for case in result.cases)
    run = RunResult(
        success=result.state is State.COMPLETE,
        passed=result.ok,
        command=f"eval.py --mode {result.mode}",
        stdout=HIDDEN if secret else printed,
        stderr="" if secret else result.error,
        exit_code=int(result.exit_code),
        duration=_duration_s(result, end),
        result={} if secret else pipe_lines(result),
    )
    return EvalResult(start=result.started_at, end=end, compilation=None, run=run)


def _duration_s(result: Result, end: str) -> float:
    """By two clocks: the runner's when it began, the server's when it was told of the end."""
    return max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(result.started_at)).total_seconds())
