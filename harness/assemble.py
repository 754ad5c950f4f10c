"""From what a CaseRun found, or how it failed, to the CaseResult."""

from dataclasses import dataclass, replace

from harness.advice import CASE_RULES, advise
from harness.case_run import CaseRun, description_of
from harness.compare import compare_timings
from harness.errors import BadOutput, CallFailed, CannotCompare, DeviceFault, OutOfMemory, SubmissionRaised, WorkerTimedOut
from harness.floors import ReadFloor, floor_of
from harness.policies import Policy
from harness.problem import Problem
from harness.result import CaseResult, Comparison, Conditions, Device, Floor, Official, Profile, Status, Timing
from harness.stats import summarize
from harness.verdict import Verdict
from popcorn.cases import Case

STATUS_OF_FAILURE = {
    SubmissionRaised: Status.ERROR,
    DeviceFault: Status.DEVICE_ERROR,
    OutOfMemory: Status.OOM,
    WorkerTimedOut: Status.TIMEOUT,
}  # every other failure: crashed


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
    refuses: bool = True  # times below the refusal floor

    def finished(
        self, case: Case, run: CaseRun, profile: Profile | None = None, conditions: Conditions | None = None
    ) -> CaseResult:
        """The record of a case that has a verdict: complete, or interrupted while it was sampled."""
        verdict, first = run.verdict, run.first
        assert verdict is not None
        assert first is not None
        samples_ns = run.sampling.samples_ns if run.sampling and verdict.official.ok else []
        timing = summarize(samples_ns) if samples_ns else None
        floor, read_bytes = self._floor(run, verdict) if timing else (None, None)
        status, message = self._status(verdict, timing, floor)
        backend, params = description_of(first)
        found = CaseResult(
            dict(case.spec),
            status,
            message=message,
            official=verdict.official,
            strict=verdict.strict,
            timing=timing,
            min_bytes=read_bytes,
            floor=floor,
            bound_ns=run.sampling.ledger.bound_ns if timing and run.sampling else None,
            backend=backend,
            params=params,
            compile_ns=first.sample.elapsed_ns,
            profile=profile,
            printed=run.printed,
            conditions=conditions if timing else None,
        )
        comparison, why_not = self._comparison(run, timing)
        found = replace(found, comparison=comparison)
        return replace(found, warnings=(*why_not, *advise(CASE_RULES, found)))

    def _comparison(self, run: CaseRun, timing: Timing | None) -> tuple[Comparison | None, list[str]]:
        """The comparison with the baseline, or why there is none."""
        if run.rival is None or timing is None:
            return None, []
        sampling = run.rival.contestant.sampling
        try:
            if not run.rival.competes or sampling is None:
                raise CannotCompare(run.rival.failure or "was not measured")
            return compare_timings(timing, summarize(sampling.samples_ns), interleaved=True), []
        except CannotCompare as error:
            return None, [f"no comparison: the baseline {error}"]

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
        if self.refuses and timing and floor and floor.refusal_ns:
            scored_ns = timing.median_ns if self.policy.statistic == "median" else timing.mean_ns
            if scored_ns < floor.refusal_ns:
                limit = f"below {floor.refusal_ns / 1e3:.2f} us, which the cheapest format needs at the datasheet's bandwidth"
                return Status.REFUSED, f"{scored_ns / 1e3:.2f} us is {limit}: not a cold measurement of the whole work"
        return Status.PASS, ""
