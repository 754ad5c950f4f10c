"""The JSON objects that popcorn clients and servers exchange, as frozen records. Scores are SECONDS on the wire.

`to_json` writes a record; `read` takes what a server sent: unknown keys are passed over, as clients do, and a missing key
that is needed is a WireError that names it. Times are ISO 8601.
"""

import dataclasses
import types
import typing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from popcorn.errors import PopcornError

MODES = ("test", "benchmark", "leaderboard", "profile")
# A job in one of these ends a client's wait with the job's error.
FAILED_STATUSES = frozenset({"failed", "timed_out", "hacked"})
FINAL_STATUSES = FAILED_STATUSES | {"succeeded"}

Record = TypeVar("Record")


class WireError(PopcornError):
    """An answer that is not in the popcorn format; the message names the key."""


@dataclass(frozen=True)
class RunnerQueue:
    """What a submission waits for."""

    runner: str | None
    gpu: str
    queued_jobs: int
    running_jobs: int
    available_runners: int
    status: str
    error: str | None = None
    position: int | None = None  # ours: the submission's own place, from 1


@dataclass(frozen=True)
class JobIds:
    """The numbers that an accepted submission gets."""

    id: int
    job_status_id: int


@dataclass(frozen=True)
class Accepted:
    """202: the submission is kept and will be run."""

    details: JobIds
    runner_queue: RunnerQueue
    status: str = "accepted"


@dataclass(frozen=True)
class RunSummary:
    """A run in a list."""

    gpu_type: str
    score: float | None
    mode: str | None = None  # ours, as are the next two
    secret: bool | None = None
    passed: bool | None = None


@dataclass(frozen=True)
class SubmissionSummary:
    """A submission in a list."""

    id: int
    leaderboard_name: str
    file_name: str
    submission_time: str
    done: bool
    runs: tuple[RunSummary, ...] = ()
    status: str | None = None  # ours, as is the next
    error: str | None = None


@dataclass(frozen=True)
class RunDetail:
    """A run of one submission. `result` holds the evaluator's `key: value` lines, without those of a secret run."""

    start_time: str
    end_time: str | None
    mode: str
    secret: bool
    runner: str | None
    score: float | None
    passed: bool
    result: dict[str, str] | None = None
    report: str | None = None  # ours


@dataclass(frozen=True)
class JobState:
    """How far a submission's job is."""

    status: str | None
    error: str | None
    last_heartbeat: str | None

    @property
    def is_final(self) -> bool:
        """Whether nothing more will happen."""
        return self.status in FINAL_STATUSES


@dataclass(frozen=True)
class SubmissionDetail:
    """One submission, as its author sees it."""

    id: int
    leaderboard_id: int
    leaderboard_name: str
    file_name: str
    user_id: int | str
    submission_time: str
    done: bool
    code: str | None
    runs: tuple[RunDetail, ...] = ()
    job: JobState | None = None
    runner_queue: RunnerQueue | None = None


@dataclass(frozen=True)
class SystemInfo:
    """The machine that evaluated."""

    gpu: str = ""
    device_count: int = 1
    cpu: str = ""
    runtime: str = ""  # CUDA, ROCm or CPU
    platform: str = ""
    torch: str = ""
    hostname: str = ""


@dataclass(frozen=True)
class CompileResult:
    """What a compiler said; None in a Python task."""

    nvcc_found: bool
    nvcc_version: str
    success: bool
    command: str
    stdout: str
    stderr: str
    exit_code: int


@dataclass(frozen=True)
class RunResult:
    """One start of the evaluator."""

    success: bool  # it ran to its end
    passed: bool  # and every case passed
    command: str
    stdout: str
    stderr: str
    exit_code: int
    duration: float  # seconds
    result: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class EvalResult:
    """One mode of an evaluation."""

    start: str
    end: str
    compilation: CompileResult | None
    run: RunResult | None
    profile: dict[str, Any] | None = None


@dataclass(frozen=True)
class FullResult:
    """All modes of one evaluation, by name."""

    success: bool
    error: str
    system: SystemInfo
    runs: dict[str, EvalResult] = field(default_factory=dict)


@dataclass(frozen=True)
class StatusEvent:
    """SSE `status`: a line that says what is going on."""

    message: str


@dataclass(frozen=True)
class ResultEvent:
    """SSE `result`: the end of a run that was evaluated, whatever its verdict."""

    status: str
    results: tuple[FullResult, ...]
    reports: tuple[str, ...]


@dataclass(frozen=True)
class ErrorEvent:
    """SSE `error`: the end of a run that could not be evaluated."""

    status: str
    detail: str
    status_code: int | None = None
    raw_error: str | None = None


def to_json(value: Any) -> Any:
    """Plain JSON of a record. A field that is None stays: clients index."""
    if dataclasses.is_dataclass(value):
        return {item.name: to_json(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    return [to_json(item) for item in value] if isinstance(value, list | tuple) else value


def read(cls: type[Record], data: Any, where: str = "answer") -> Record:
    """The record that a JSON value describes. Raises WireError naming the key that is missing or of the wrong type."""
    if not isinstance(data, dict):
        raise WireError(f"{where}: a {type(data).__name__} where an object belongs")
    hints, values = typing.get_type_hints(cls), {}
    for item in dataclasses.fields(cls):  # type: ignore[arg-type] -- every record here is a dataclass
        if item.name in data:
            values[item.name] = _value(hints[item.name], data[item.name], f"{where}.{item.name}")
        elif item.default is item.default_factory is dataclasses.MISSING and not _may_be_none(hints[item.name]):
            raise WireError(f"{where}: the key {item.name!r} is missing")
        elif item.default is item.default_factory is dataclasses.MISSING:
            values[item.name] = None
    return cls(**values)


def _may_be_none(hint: Any) -> bool:
    return type(None) in typing.get_args(hint)


def _value(hint: Any, data: Any, where: str) -> Any:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        if data is None and _may_be_none(hint):
            return None
        choices = [choice for choice in typing.get_args(hint) if choice is not type(None)]
        return data if len(choices) > 1 and isinstance(data, tuple(choices)) else _value(choices[0], data, where)
    if dataclasses.is_dataclass(hint):
        return read(typing.cast(type, hint), data, where)
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        return tuple(_value(inner, item, f"{where}[{index}]") for index, item in enumerate(_expect(list, data, where)))
    if typing.get_origin(hint) is dict:
        inner = typing.get_args(hint)[1]
        return {key: _value(inner, item, f"{where}.{key}") for key, item in _expect(dict, data, where).items()}
    return data if hint is Any else _expect(hint, data, where)


def _expect(kind: Any, data: Any, where: str) -> Any:
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if not isinstance(data, kind) or isinstance(data, bool) is not (kind is bool):
        raise WireError(f"{where}: {type(data).__name__} where {getattr(kind, '__name__', kind)} belongs")
    return data
