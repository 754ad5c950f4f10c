"""From what a CaseRun found, or how it failed, to the CaseResult."""

from harness.case_run import CaseRun, description_of
from harness.errors import BadOutput, CallFailed, DeviceFault, OutOfMemory, SubmissionRaised, WorkerTimedOut
from harness.floors import ReadFloor, floor_of
from harness.policies import Policy
from harness.problem import Problem
from harness.result import CaseResult, Device, Floor, Official, Status, Timing
from harness.stats import summarize
from harness.verdict import Verdict
from popcorn.cases import Case

STATUS_OF_FAILURE = {
    SubmissionRaised: Status.ERROR,
    DeviceFault: Status.DEVICE_ERROR,
    OutOfMemory: Status.OOM,
    WorkerTimedOut: Status.TIMEOUT,
}  # every other failure: crashed
RUNNER_LIMIT_NS = 120_000_000_000  # what an official runner grants for compiling a submission
MAX_RELATIVE_CI = 0.05


def failed_case(case: Case, error: CallFailed) -> CaseResult:
    """The record of a case whose call failed."""
    if isinstance(error, BadOutput):
        return CaseResult(dict(case.spec), Status.WRONG, official=Official(False, str(error)))
    status = STATUS_OF_FAILURE.get(type(error), Status.CRASHED)
    return CaseResult(dict(case.spec), status, message=str(error), detail=error.detail)


def skipped_case(case: Case, reason: str) -> CaseResult:
    """The record of a case that never ran."""
    return CaseResult(dict(case.spec), Status.SKIPPED, message=reason)


def finished_case(case: Case, run: CaseRun, problem: Problem, policy: Policy, device: Device, floors: ReadFloor) -> CaseResult:
    """The record of a case that has a verdict: complete, or interrupted while it was sampled."""
    verdict = run.verdict
    assert verdict is not None
    assert run.first is not None
    samples_ns = run.sampling.samples_ns if run.sampling and verdict.official.ok else []
    timing = summarize(samples_ns) if samples_ns else None
    floor, read_bytes = _floor(run, problem, verdict, device, floors) if timing else (None, None)
    status, message = _status(verdict, timing, floor, policy)
    backend, params = description_of(run.first)
    return CaseResult(
        dict(case.spec),
        status,
        message=message,
        official=verdict.official,
        strict=verdict.strict,
        timing=timing,
        min_bytes=read_bytes,
        floor=floor,
        backend=backend,
        params=params,
        compile_ns=run.first.sample.elapsed_ns,
        warnings=_warnings(run, timing, floor),
    )


def _floor(
    run: CaseRun, problem: Problem, verdict: Verdict, device: Device, floors: ReadFloor
) -> tuple[Floor | None, int | None]:
    """The floors, and the bytes read, for the mean of the contents that were used: ragged lengths change with the seed."""
    kv_format = verdict.strict.format if verdict.strict else None
    cheapest = [problem.min_bytes(case) for case in run.contents]
    read = [problem.min_bytes(case, kv_format) for case in run.contents]
    known = [(a, b) for a, b in zip(cheapest, read, strict=True) if a is not None and b is not None]
    if not known:
        return None, None
    cheapest_bytes, read_bytes = (sum(sizes) // len(known) for sizes in zip(*known, strict=True))
    return floor_of(read_bytes, cheapest_bytes, device, floors), read_bytes


def _status(verdict: Verdict, timing: Timing | None, floor: Floor | None, policy: Policy) -> tuple[Status, str]:
    if not verdict.ok:
        return Status.WRONG, ""
    if timing and floor and floor.refusal_ns:
        scored_ns = timing.median_ns if policy.statistic == "median" else timing.mean_ns
        if scored_ns < floor.refusal_ns:
            limit = f"below {floor.refusal_ns / 1e3:.2f} us, which the cheapest format needs at the datasheet's bandwidth"
            return Status.REFUSED, f"{scored_ns / 1e3:.2f} us is {limit}: not a cold measurement of the whole work"
    return Status.PASS, ""


def _warnings(run: CaseRun, timing: Timing | None, floor: Floor | None) -> tuple[str, ...]:
    """What is worth knowing about a case: value, limit, next step."""
    found = []
    verdict, sampling = run.verdict, run.sampling
    assert run.first is not None
    if verdict and verdict.strict and verdict.official.ok and not verdict.strict.ok:
        found.append("the official check accepts this output, the strict one does not: a stricter server will refuse it")
    if verdict and verdict.strict and verdict.strict.ok and not verdict.official.ok:
        found.append("the strict check accepts this output, the official one does not")
    if run.first.sample.elapsed_ns > RUNNER_LIMIT_NS // 2:
        seconds = run.first.sample.elapsed_ns / 1e9
        found.append(f"the first call took {seconds:.0f} s; a runner grants 120 s for compiling: compile at import, or less")
    if timing and sampling and sampling.exposed:
        found.append(f"launch latency shows in {sampling.exposed} of {timing.runs} samples: custom_kernel waits for the device")
    if timing and floor and floor.refusal_ns and timing.best_ns < floor.refusal_ns:
        limit_us = floor.refusal_ns / 1e3
        found.append(f"the best sample, {timing.best_ns / 1e3:.2f} us, is below the refusal floor of {limit_us:.2f} us")
    if timing and timing.ci95_ns[1] - timing.ci95_ns[0] > MAX_RELATIVE_CI * timing.median_ns:
        width = (timing.ci95_ns[1] - timing.ci95_ns[0]) / timing.median_ns
        found.append(f"the interval is {width:.0%} of the median after {timing.runs} samples; a larger --budget-s narrows it")
    return tuple(found)
