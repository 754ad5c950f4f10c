"""Warnings that help: each names the value, the limit and the next step.

One rule a function, from a record to a message or None. docs/reading-results.md lists them; a test holds it to this file.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from harness.figures import us
from harness.labels import case_label
from harness.result import CaseResult, Result, Status
from popcorn.rules import check_submission

RUNNER_LIMIT_S = 120  # what an official runner grants for compiling a submission
SLOW_S = RUNNER_LIMIT_S / 2  # a runner may be half as fast as this machine
MIN_SAMPLES = 6  # the range of 5 samples encloses the median with 93.75 % probability only: no 95 % interval exists
MAX_RELATIVE_CI = 0.05
OUTLIER_SIGMAS, SIGMA_PER_MAD = 10.0, 1.4826  # MAD of a normal distribution: sigma / 1.4826
MIN_OUTLIER_EXCESS = 0.05  # of the median: quantized clocks make the MAD zero
MAX_OUTLIERS = 0.02
NEAR_REFUSAL = 1.1
MAX_CLOCK_CHANGE = 0.03
MAX_LOAD_PER_CORE = 0.5
Record = TypeVar("Record")


@dataclass(frozen=True)
class Rule(Generic[Record]):
    """One warning: when it is given and what it asks for, as the documentation says it, and the function that finds it."""

    name: str
    when: str
    remedy: str
    find: Callable[[Record], str | None]


def outliers(samples_ns: Sequence[int]) -> list[int]:
    """The samples far above the median: by 10 robust standard deviations (1.4826 MAD), and by 5 % of the median."""
    values = np.asarray(samples_ns, dtype=np.float64)
    median_ns = float(np.median(values))
    sigma_ns = SIGMA_PER_MAD * float(np.median(np.abs(values - median_ns)))
    limit_ns = median_ns + max(OUTLIER_SIGMAS * sigma_ns, MIN_OUTLIER_EXCESS * median_ns)
    return [value for value in samples_ns if value > limit_ns]


def _verdicts_differ(case: CaseResult) -> str | None:
    if case.official is None or case.strict is None or case.official.ok is case.strict.ok:
        return None
    if case.official.ok:
        why = "a leaderboard would take it, and it is wrong: find what it skips before you rely on its time"
        return f"the official check accepts this output, the strict one does not: {why}"
    return "the strict check accepts this output, the official one does not: a leaderboard would refuse it; see its message"


def _slow_first_call(case: CaseResult) -> str | None:
    if case.compile_ns is None or case.compile_ns < SLOW_S * 1e9:
        return None
    return f"the first call took {case.compile_ns / 1e9:.0f} s; a runner grants {RUNNER_LIMIT_S} s: compile less, or at import"


def _launch_shows(case: CaseResult) -> str | None:
    exposed = case.conditions.exposed_samples if case.conditions else None
    if not exposed or case.timing is None:
        return None
    counted = f"launch latency shows in {exposed} of {case.timing.runs} samples"
    return f"{counted}: custom_kernel waits for the device; leave out .item(), .cpu() and synchronize()"


def _best_below_floor(case: CaseResult) -> str | None:
    refusal_ns = case.floor.refusal_ns if case.floor else None
    if case.timing is None or not refusal_ns or case.timing.best_ns >= refusal_ns or case.status is Status.REFUSED:
        return None
    best = f"the best sample, {us(case.timing.best_ns)} us, is below the refusal floor of {us(refusal_ns)} us"
    return f"{best}: that call did not read its input cold; look for work done ahead or results kept"


def _near_refusal(case: CaseResult) -> str | None:
    refusal_ns = case.floor.refusal_ns if case.floor else None
    if case.timing is None or not refusal_ns or not 1 <= case.timing.median_ns / refusal_ns < NEAR_REFUSAL:
        return None
    above = case.timing.median_ns / refusal_ns - 1
    return (
        f"{us(case.timing.median_ns)} us is {above:.0%} above the refusal floor of {us(refusal_ns)} us (warned below "
        f"{NEAR_REFUSAL - 1:.0%}): closer than kernels come; check configs/devices.yml and that all of the input is read"
    )


def _few_samples(case: CaseResult) -> str | None:
    if case.timing is None or case.timing.runs >= MIN_SAMPLES:
        return None
    return f"{case.timing.runs} samples; a 95 % interval needs {MIN_SAMPLES}: raise --budget-s"


def _wide_interval(case: CaseResult) -> str | None:
    timing = case.timing
    if timing is None or timing.runs < MIN_SAMPLES:
        return None
    width = (timing.ci95_ns[1] - timing.ci95_ns[0]) / max(timing.median_ns, 1.0)
    if width <= MAX_RELATIVE_CI:
        return None
    more = (width / MAX_RELATIVE_CI) ** 2  # the width shrinks with the root of the number of samples
    factor = f"{more:.1f}" if more < 10 else f"{more:.0f}"
    remedy = f"raise --budget-s about {factor} times, or quiet the machine" if more < 100 else "quiet the machine"
    found = f"the interval is {width:.0%} of the median after {timing.runs} samples"
    return f"{found} (warned above {MAX_RELATIVE_CI:.0%}): {remedy}"


def _has_outliers(case: CaseResult) -> str | None:
    timing = case.timing
    if timing is None or timing.runs < MIN_SAMPLES:
        return None
    found = outliers(timing.samples_ns)
    if len(found) <= MAX_OUTLIERS * timing.runs:
        return None
    count = f"{len(found)} of {timing.runs} samples are outliers (warned above {MAX_OUTLIERS:.0%})"
    effect = f"the median stands, the official mean is {timing.mean_ns / timing.median_ns - 1:+.1%} off it"
    return f"{count}, the worst {max(found) / timing.median_ns:.1f} times the median: {effect}; close what else runs and repeat"


def _throttled(case: CaseResult) -> str | None:
    seen = case.conditions
    if seen is None or not seen.throttled:
        return None
    clock = f" at {seen.core_low_mhz} of {seen.core_limit_mhz} MHz" if seen.core_low_mhz and seen.core_limit_mhz else ""
    return f"the device was throttled{clock} ({', '.join(seen.throttled)}): let it cool, or lock a clock that it can hold"


def _clock_moved(case: CaseResult) -> str | None:
    seen = case.conditions
    if seen is None or not seen.core_low_mhz or not seen.core_high_mhz:
        return None
    change = 1 - seen.core_low_mhz / seen.core_high_mhz
    if change <= MAX_CLOCK_CHANGE:
        return None
    moved = f"the core clock moved between {seen.core_low_mhz} and {seen.core_high_mhz} MHz ({change:.0%}, warned above "
    return f"{moved}{MAX_CLOCK_CHANGE:.0%}): lock it (nvidia-smi -lgc MHZ, rocm-smi --setperfdeterminism MHZ)"


def _not_alone(case: CaseResult) -> str | None:
    others = case.conditions.other_processes if case.conditions else None
    if not others:
        return None
    what = "another process has" if others == 1 else f"{others} other processes have"
    return f"{what} memory on this device: times may include its work; nvidia-smi or rocm-smi --showpids names it"


def _no_bandwidth(result: Result) -> str | None:
    if result.device.peaks is not None:
        return None
    is_cpu = result.device.kind == "cpu"
    why = "a CPU has no datasheet bandwidth" if is_cpu else "configs/devices.yml does not know this device: add its bandwidth"
    return f"no roofline and no refusal floor: {why}; times are compared with a measured cold read only"


def _slow_import(result: Result) -> str | None:
    load_ns = result.submission.load_ns
    if load_ns is None or load_ns < SLOW_S * 1e9:
        return None
    return f"importing the submission took {load_ns / 1e9:.0f} s; a runner grants {RUNNER_LIMIT_S} s: compile less, or lazily"


def _slow_together(result: Result) -> str | None:
    calls = {case_label(case.spec): case.compile_ns or 0 for case in result.cases}
    total_ns = (result.submission.load_ns or 0) + sum(calls.values())
    if total_ns < RUNNER_LIMIT_S * 1e9 or not calls:
        return None
    slowest = max(calls, key=calls.__getitem__)
    return (
        f"import and first calls took {total_ns / 1e9:.0f} s together; a runner that grants {RUNNER_LIMIT_S} s for all may "
        f"stop: the dearest is {slowest} with {calls[slowest] / 1e9:.0f} s"
    )


def refused_by_server(content: bytes, name: str) -> list[str]:
    """What a popcorn server would refuse about a file, before it runs anything."""
    violations = check_submission(content, name)
    return [f"a popcorn server would refuse {name} ({violation.rule}): {violation.message}" for violation in violations]


def busy_machine(load: float, cores: int) -> list[str]:
    """What is wrong with timing on a CPU while `load` processes want to run (the average over the last minute)."""
    if load <= MAX_LOAD_PER_CORE * cores:
        return []
    limit = f"warned above {MAX_LOAD_PER_CORE:g} a core"
    return [f"{load:.1f} processes want these {cores} cores ({limit}): times include waiting; end other work or wait for it"]


CASE_RULES: tuple[Rule[CaseResult], ...] = (
    Rule("verdicts differ", "one check accepts the output and the other does not", "trust the strict one", _verdicts_differ),
    Rule("slow first call", f"the first call takes over {SLOW_S:.0f} s", "compile less, or at import", _slow_first_call),
    Rule("launch latency", "custom_kernel waits for the device", "leave out synchronizing calls", _launch_shows),
    Rule("sample below the floor", "one sample is below the refusal floor", "look for kept results", _best_below_floor),
    Rule("near the refusal floor", "the median is within 10 % of it", "check the datasheet, and what is read", _near_refusal),
    Rule("few samples", f"fewer than {MIN_SAMPLES} samples", "raise --budget-s", _few_samples),
    Rule("wide interval", "the 95 % interval is over 5 % of the median", "raise --budget-s, quiet the machine", _wide_interval),
    Rule("outliers", "over 2 % of the samples are outliers", "close other programs, repeat", _has_outliers),
    Rule("throttled", "the driver reports a limit of power, heat or supply", "cool, or lock a lower clock", _throttled),
    Rule("clock moved", "the core clock moved by over 3 % while sampling", "lock the clock", _clock_moved),
    Rule("not alone", "another process has memory on the device", "end it, or use another device", _not_alone),
)
START_RULES: tuple[Rule[Result], ...] = (
    Rule("no roofline", "the device's bandwidth is unknown", "add it to configs/devices.yml", _no_bandwidth),
)
LOADED_RULES: tuple[Rule[Result], ...] = (
    Rule("slow import", f"the import takes over {SLOW_S:.0f} s", "compile less, or lazily", _slow_import),
)
END_RULES: tuple[Rule[Result], ...] = (
    Rule("slow together", f"import and first calls take over {RUNNER_LIMIT_S} s", "compile less", _slow_together),
)


def advise(rules: Sequence[Rule[Record]], record: Record) -> tuple[str, ...]:
    """The messages of the rules that apply to a record."""
    return tuple(message for rule in rules if (message := rule.find(record)))
