"""Result v1: what an evaluation found. Terminal, JSON, pipe, web page and database row are views of it.

A case's status decides which of its fields exist; a record that breaks the rule cannot be built. docs/result-schema.md.
"""

import json
import math
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness.errors import Exit, RecordError
from harness.files import replace_file
from harness.records import from_json, to_json

SCHEMA_VERSION = 1
Scalar = bool | int | float | str


class Status(StrEnum):
    """How a case ended."""

    PASS = "pass"  # every verdict passes
    WRONG = "wrong"  # an output came back and a verdict fails
    REFUSED = "refused"  # the output is right, the time is below what physics allows
    ERROR = "error"  # custom_kernel raised
    DEVICE_ERROR = "device_error"  # the device faulted
    OOM = "oom"  # out of host or device memory
    CRASHED = "crashed"  # the worker's process died, or broke the protocol
    TIMEOUT = "timeout"  # no answer in time; the worker was killed
    SKIPPED = "skipped"  # never ran


JUDGED = frozenset({Status.PASS, Status.WRONG, Status.REFUSED})
EXIT_OF_STATUS = {
    Status.PASS: Exit.OK,
    Status.WRONG: Exit.VERDICT_FAILED,
    Status.REFUSED: Exit.REFUSED,
    Status.ERROR: Exit.VERDICT_FAILED,
    Status.DEVICE_ERROR: Exit.DEVICE_ERROR,
    Status.OOM: Exit.VERDICT_FAILED,
    Status.CRASHED: Exit.VERDICT_FAILED,
    Status.TIMEOUT: Exit.TIMEOUT,
    Status.SKIPPED: Exit.VERDICT_FAILED,
}
# When cases end differently, the exit code is the first of these that occurred.
EXIT_PRECEDENCE = (Exit.DEVICE_ERROR, Exit.TIMEOUT, Exit.VERDICT_FAILED, Exit.REFUSED, Exit.OK)


class State(StrEnum):
    """How far an evaluation got; a file left by a crash says `running`."""

    RUNNING = "running"
    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    FAILED = "failed"  # ended by `error`: the submission did not load, the problem refused a case


@dataclass(frozen=True)
class Official:
    """The verdict of the problem's check_implementation: would the leaderboard accept it?"""

    ok: bool
    message: str = ""


@dataclass(frozen=True)
class Strict:
    """The verdict against the fp64 oracles. `details` holds what else the problem's judge reports."""

    ok: bool
    message: str = ""
    format: str | None = None  # what the output says the kernel read: bf16, fp8, mxfp4, ...
    rel_l2_worst: float | None = None
    cosine_worst: float | None = None
    max_abs: float | None = None
    nan_count: int | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Timing:
    """What the samples of one case say; every figure in nanoseconds of device (CPU: host) time for one call."""

    median_ns: float
    ci95_ns: tuple[float, float]  # bootstrap 95 % interval of the median
    mean_ns: float
    err_ns: float  # standard error of the mean: std / sqrt(runs)
    std_ns: float  # Bessel's n - 1
    best_ns: float
    worst_ns: float
    runs: int
    samples_ns: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.runs != len(self.samples_ns) or not self.samples_ns:
            raise ValueError(f"runs is {self.runs} with {len(self.samples_ns)} samples")


@dataclass(frozen=True)
class Floor:
    """Three floors, never mixed (docs/policies.md): physics for this format, this device's cold read, what is refused."""

    roofline_ns: float | None = None
    measured_ns: float | None = None
    refusal_ns: float | None = None


@dataclass(frozen=True)
class ProfileRow:
    """One operator or kernel; times are its own, per call of custom_kernel."""

    name: str
    count: int  # in all profiled calls
    device_ns: int
    host_ns: int


@dataclass(frozen=True)
class Profile:
    """What torch.profiler saw; `trace` is the path of the chrome trace (chrome://tracing, ui.perfetto.dev)."""

    calls: int
    trace: str
    rows: tuple[ProfileRow, ...]


@dataclass(frozen=True)
class Conditions:
    """The device while a case was sampled; None where nothing tells."""

    core_low_mhz: int | None = None
    core_high_mhz: int | None = None
    core_limit_mhz: int | None = None
    throttled: tuple[str, ...] = ()  # the driver's reasons
    other_processes: int | None = None  # with memory on the device
    exposed_samples: int | None = None  # that launch latency is part of


class Change(StrEnum):
    """What a ratio's interval says (docs/policies.md)."""

    FASTER = "faster"
    SAME = "same"
    SLOWER = "slower"
    AMBIGUOUS = "ambiguous"


@dataclass(frozen=True)
class Comparison:
    """The submission's time over the baseline's, below 1: faster. Of one case by medians, of a run by their geomean."""

    ratio: float
    ci95: tuple[float, float]  # bootstrap
    change: Change
    interleaved: bool  # both ran in one evaluation, sample by sample
    baseline: Timing | None = None  # of one case


@dataclass(frozen=True)
class CaseResult:
    """One case. `message` is one line; `detail` holds the author's traceback and the rest of a long message."""

    spec: dict[str, Scalar]
    status: Status
    message: str = ""
    detail: str = ""
    official: Official | None = None
    strict: Strict | None = None
    timing: Timing | None = None
    min_bytes: int | None = None
    floor: Floor | None = None
    bound_ns: float | None = None  # what a call took at most by the referee's own clock: the median over the samples
    backend: str | None = None
    params: dict[str, Any] | None = None
    compile_ns: int | None = None  # the first call, which compiles and plans
    profile: Profile | None = None
    comparison: Comparison | None = None
    conditions: Conditions | None = None
    printed: str = ""  # stdout and stderr of the submission, the last 16 KiB; of the import too in the first case
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if problem := _illegal(self):
            raise ValueError(f"a case with status {self.status.value!r} {problem}")

    @property
    def official_ok(self) -> bool:
        """Whether the leaderboard's own check accepts the case."""
        return self.official is not None and self.official.ok


def _illegal(case: CaseResult) -> str | None:
    """Why the fields do not fit the status, or None."""
    verdicts = [verdict.ok for verdict in (case.official, case.strict) if verdict is not None]
    if case.status not in JUDGED:
        if verdicts or case.timing or case.floor or case.profile or case.comparison:
            return "has no verdict, no timing, no floor, no comparison and no profile"
        return None if case.message else "needs a message"
    if case.official is None:
        return "needs the official verdict"
    if all(verdicts) is (case.status is Status.WRONG):
        return "must have a failed verdict" if all(verdicts) else "must have no failed verdict"
    if case.timing and not case.official.ok:
        return "whose official verdict fails has no timing"
    if case.comparison and not case.timing:
        return "and a comparison needs timing"
    if case.status is Status.REFUSED and not (case.timing and case.floor and case.floor.refusal_ns and case.message):
        return "needs timing, the refusal floor and a message"
    return None


@dataclass(frozen=True)
class Clocks:
    """Clock rates in MHz when the run began."""

    core_mhz: int | None = None
    memory_mhz: int | None = None
    core_max_mhz: int | None = None


@dataclass(frozen=True)
class Peaks:
    """Datasheet figures (configs/devices.yml)."""

    bandwidth_bytes_per_s: float
    bf16_flops: float | None = None
    fp8_flops: float | None = None
    fp4_flops: float | None = None


@dataclass(frozen=True)
class Device:
    """Where the times were taken."""

    name: str
    kind: str  # cpu, cuda, hip
    arch: str
    driver: str | None = None
    torch: str | None = None
    memory_bytes: int | None = None
    last_level_cache_bytes: int | None = None
    clocks: Clocks = field(default_factory=Clocks)
    peaks: Peaks | None = None


@dataclass(frozen=True)
class Score:
    """`ranking_by` over the cases' `statistic`; None when a case did not pass or was not timed."""

    ranking_by: str  # geom, mean, last
    statistic: str  # median (robust), mean (official)
    value_ns: float | None = None


@dataclass(frozen=True)
class Submission:
    """The file that was evaluated."""

    name: str
    sha256: str
    size_bytes: int
    load_ns: int | None = None  # import time in the worker, torch already imported


@dataclass(frozen=True)
class Result:
    """One evaluation, complete or as far as it got."""

    schema_version: int
    problem: str
    mode: str
    policy: str
    cases_from: str  # official, smoke, a file's name, command line
    command: tuple[str, ...]
    started_at: str  # ISO 8601, UTC
    harness_version: str
    containment: tuple[str, ...]
    submission: Submission
    device: Device
    state: State = State.RUNNING
    cases_total: int = 0
    cases: tuple[CaseResult, ...] = ()
    score: Score | None = None
    baseline: Submission | None = None
    comparison: Comparison | None = None  # of all cases
    error: str = ""
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.schema_version != SCHEMA_VERSION:
            raise ValueError(f"schema_version {self.schema_version} is not {SCHEMA_VERSION}, the one this harness reads")

    @property
    def ok(self) -> bool:
        """Whether the evaluation is complete and every case passed both verdicts."""
        done = self.state is State.COMPLETE and len(self.cases) == self.cases_total > 0
        return done and all(case.status is Status.PASS for case in self.cases)

    @property
    def exit_code(self) -> Exit:
        """The command line's exit code; of a `failed` evaluation the error that ended it knows a better one."""
        if self.state is State.INTERRUPTED:
            return Exit.INTERRUPTED
        codes = {EXIT_OF_STATUS[case.status] for case in self.cases}
        worst = next((code for code in EXIT_PRECEDENCE if code in codes), Exit.OK)
        return worst if worst is not Exit.OK or (self.state is State.COMPLETE and self.cases) else Exit.VERDICT_FAILED


def result_to_json(result: Result) -> dict[str, Any]:
    """The documented JSON object; a case's timing stands flat among its fields."""
    data = to_json(result)
    data["ok"] = result.ok
    for case in data["cases"]:
        case.update(case.pop("timing", {}))
    return data


def result_from_json(data: Any) -> Result:
    """The Result of a JSON object. Raises RecordError naming the key that is wrong."""
    if not isinstance(data, dict) or data.get("schema_version") != SCHEMA_VERSION:
        raise RecordError("result", f"not a Result with schema_version {SCHEMA_VERSION}")
    data = {key: value for key, value in data.items() if key != "ok"}
    if isinstance(data.get("cases"), list):
        data["cases"] = [_nest_timing(case) for case in data["cases"]]
    return from_json(Result, data)


def _nest_timing(case: Any) -> Any:
    names = Timing.__dataclass_fields__
    if not isinstance(case, dict) or not names.keys() & case.keys():
        return case
    timing = {name: case[name] for name in names if name in case}
    return {**{key: value for key, value in case.items() if key not in names}, "timing": timing}


def result_text(result: Result) -> str:
    """The Result as the text of a JSON file."""
    return json.dumps(result_to_json(result), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def write_result(result: Result, path: Path) -> None:
    """Replace the file at `path` atomically: readers see the old Result or the new one, never a part."""
    replace_file(path, result_text(result))


def read_result(path: Path) -> Result:
    """The Result in the file at `path`. Raises RecordError."""
    try:
        return result_from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise RecordError(str(path), f"cannot be read as JSON ({error})") from None


def score_of(cases: tuple[CaseResult, ...], ranking_by: str, statistic: str) -> Score:
    """The score over complete cases: geom or mean of their medians or means, or the last one's."""
    timed = [case.timing for case in cases if case.timing and case.status is not Status.REFUSED]
    if not cases or len(timed) != len(cases):
        return Score(ranking_by, statistic)
    values = [getattr(timing, f"{statistic}_ns") for timing in timed]
    if ranking_by == "last":
        return Score(ranking_by, statistic, values[-1])
    if ranking_by == "mean":
        return Score(ranking_by, statistic, math.fsum(values) / len(values))
    return Score(ranking_by, statistic, math.exp(math.fsum(map(math.log, values)) / len(values)))
