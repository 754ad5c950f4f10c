"""From what a CaseRun found, or how it failed, to the CaseResult."""

from dataclasses import dataclass

from harness.case_run import CaseRun, description_of
from harness.errors import BadOutput, CallFailed, DeviceFault, OutOfMemory, SubmissionRaised, WorkerTimedOut
from harness.floors import ReadFloor, floor_of
from harness.policies import Policy
from harness.problem import Problem
from harness.result import CaseResult, Device, Floor, Official, Profile, Status, Timing
from harness.session import Called
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


def failed_case(case: Case, error: CallFailed, printed: str) -> CaseResult:
    """The record of a case whose call failed."""
    if isinstance(error, BadOutput):
        return CaseResult(dict(case.spec), Status.WRONG, official=Official(False, str(error)), printed=printed)
    status = STATUS_OF_FAILURE.get(type(error), Status.CRASHED)
    return CaseResult(dict(case.spec), status, message=str(error), detail=error.detail, printed=printed)


def skipped_case(case: Case, reason: str) -> CaseResult:
    """The record of a case that never ran."""
    return CaseResult(dict(case.spec), Status.SKIPPED, message=reason)


@dataclass(frozen=True)
class Assembler:
    """Builds the records of one evaluation's cases."""

    problem: Problem
    policy: Policy
    device: Device
    read_floor: ReadFloor

    def finished(self, case: Case, run: CaseRun, profile: Profile | None = None) -> CaseResult:
        """The record of a case that has a verdict: complete, or interrupted while it was sampled."""
        verdict, first = run.verdict, run.first
        assert verdict is not None
        assert first is not None
        samples_ns = run.sampling.samples_ns if run.sampling and verdict.official.ok else []
        timing = summarize(samples_ns) if samples_ns else None
        floor, read_bytes = self._floor(run, verdict) if timing else (None, None)
        status, message = self._status(verdict, timing, floor)
        backend, params = description_of(first)
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
            compile_ns=first.sample.elapsed_ns,
            profile=profile,
            printed=run.printed,
            warnings=_warnings(run, verdict, first, timing, floor),
        )

    def _floor(self, run: CaseRun, verdict: Verdict) -> tuple[Floor | None, int | None]:
        """The floors, and the bytes read, for the mean of the contents that were used: ragged lengths change with the seed."""
        kv_format = verdict.strict.format if verdict.strict else None
        cheapest = [self.problem.min_bytes(case) for case in run.contents]
        read = [self.problem.min_bytes(case, kv_format) for case in run.contents]
        known = [(a, b) for a, b in zip(cheapest, read, strict=True) if a is not None and b is not None]
        if not known:
            return None, None
        cheapest_bytes, read_bytes = (sum(sizes) // len(known) for sizes in zip(*known, strict=True))
        return floor_of(read_bytes, cheapest_bytes, self.device, self.read_floor), read_bytes

    def _status(self, verdict: Verdict, timing: Timing | None, floor: Floor | None) -> tuple[Status, str]:
        if not verdict.ok:
            return Status.WRONG, ""
        if timing and floor and floor.refusal_ns:
            scored_ns = timing.median_ns if self.policy.statistic == "median" else timing.mean_ns
            if scored_ns < floor.refusal_ns:
                limit = f"below {floor.refusal_ns / 1e3:.2f} us, which the cheapest format needs at the datasheet's bandwidth"
                return Status.REFUSED, f"{scored_ns / 1e3:.2f} us is {limit}: not a cold measurement of the whole work"
        return Status.PASS, ""


def _warnings(run: CaseRun, verdict: Verdict, first: Called, timing: Timing | None, floor: Floor | None) -> tuple[str, ...]:
    """What is worth knowing about a case: value, limit, next step."""
    found, sampling = [], run.sampling
    if verdict.strict and verdict.official.ok is not verdict.strict.ok:
        accepts, refuses = ("official", "strict") if verdict.official.ok else ("strict", "official")
        found.append(f"the {accepts} check accepts this output, the {refuses} one does not")
    if first.sample.elapsed_ns > RUNNER_LIMIT_NS // 2:
        seconds = first.sample.elapsed_ns / 1e9
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
