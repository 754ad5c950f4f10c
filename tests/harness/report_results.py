"""Results to render: a real one, one with every status, and one whose every text is hostile."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.result import (
    CaseResult,
    Change,
    Clocks,
    Comparison,
    Conditions,
    Device,
    Floor,
    Official,
    Peaks,
    Profile,
    ProfileRow,
    Result,
    Score,
    State,
    Status,
    Strict,
    Submission,
    Timing,
    read_result,
)

H200 = read_result(Path(__file__).parent.parent / "support" / "results" / "h200-official-robust.json")

HOSTILE = (
    "</title></style></pre><script>alert(1)</script><img src=x onerror=alert(2)>\" '|`x``y` @everyone https://evil.example "
    "&amp; \u202e\x1b[2J"
)

TIMING = Timing(2000.0, (1900.0, 2100.0), 2010.0, 5.0, 15.8, 1800.0, 2500.0, 4, (1800, 2500, 1900, 2100))
FLOOR = Floor(1000.0, 1500.0, 500.0)
HEADS = {"error_per_head": [0.001, 0.002, None, 0.003]}


def timing_of(samples_ns: Sequence[int]) -> Timing:
    """The figures of samples, with the whole range as the interval."""
    median, low, high = statistics.median(samples_ns), min(samples_ns), max(samples_ns)
    return Timing(median, (low, high), median, 0.0, 0.0, low, high, len(samples_ns), tuple(samples_ns))


def case(size: int, status: Status, message: str = "", **fields: object) -> CaseResult:
    """A case of two keys."""
    return CaseResult({"size": size, "seed": 1}, status, message, **fields)  # pyright: ignore[reportArgumentType]


JUDGED = (
    case(
        1, Status.PASS, official=Official(True, "Maximum error: 0.01"), timing=TIMING, floor=FLOOR, min_bytes=8_000_000,
        strict=Strict(True, "", "fp8", rel_l2_worst=0.0021, cosine_worst=0.999998, max_abs=0.5, nan_count=0, details=HEADS),
        backend="triton", params={"num_kv_splits": 16, "tile": [16, 64]}, compile_ns=2_650_000_000, printed="hello\n",
    ),
    case(
        2, Status.WRONG, official=Official(False, "mismatch at (0, 0)"),
        strict=Strict(False, "3 of 4 rows fail", nan_count=7),
    ),
    case(
        3, Status.WRONG, official=Official(True), strict=Strict(False, "1 of 4 rows fails"), timing=TIMING, floor=FLOOR,
        warnings=("the official check accepts this output, the strict one does not",),
    ),
    case(
        4, Status.REFUSED, "0.400 us is below 0.500 us", official=Official(True), strict=Strict(True, format="mxfp4"),
        timing=Timing(400.0, (400.0, 400.0), 400.0, 0.0, 0.0, 400.0, 400.0, 2, (400, 400)), floor=FLOOR,
    ),
)  # fmt: skip
LOST = (Status.ERROR, Status.DEVICE_ERROR, Status.OOM, Status.CRASHED, Status.TIMEOUT, Status.SKIPPED)
ALL_STATUSES = (
    *JUDGED,
    *(case(5 + i, lost, f"it ended as {lost.value}", detail="kernels/a.py:3, in f") for i, lost in enumerate(LOST)),
)
DEVICE = Device(
    "NVIDIA H200", "cuda", "sm_90", "580.1", "2.11", 150 << 30, 60 << 20, Clocks(1200, 3201, 1980), Peaks(4.8e12, 989e12)
)

EVERY_STATUS = Result(
    schema_version=1,
    problem="toy",
    mode="benchmark",
    policy="robust",
    cases_from="cases.txt",
    command=("eval.py", "--cases", "my cases.txt", "--seed", "***"),
    started_at="2026-01-02T03:04:05+00:00",
    harness_version="0.1.0+abc1234-dirty",
    containment=("process",),
    submission=Submission("s.py", "ab" * 32, 12_345, 200_000_000),
    device=DEVICE,
    state=State.COMPLETE,
    cases_total=len(ALL_STATUSES),
    cases=ALL_STATUSES,
    score=Score("geom", "median"),
    warnings=("careful: 12 of 10; do less",),
)
RUNNING = replace(EVERY_STATUS, state=State.RUNNING, cases=ALL_STATUSES[:3], warnings=())
STARTED = replace(RUNNING, cases=(), score=None)
INTERRUPTED = replace(RUNNING, state=State.INTERRUPTED)
FAILED = replace(STARTED, state=State.FAILED, error="SyntaxError: line 3")
COMPARED_CASE = replace(
    JUDGED[0],
    comparison=Comparison(0.8, (0.78, 0.83), Change.FASTER, True, timing_of([2500, 2510, 2490])),
    conditions=Conditions(1755, 1980, 1980, ("power cap",), 2),
)
COMPARED = replace(
    EVERY_STATUS,
    cases=(COMPARED_CASE,),
    cases_total=1,
    score=Score("geom", "median", 2000.0),
    baseline=Submission("old.py", "cd" * 32, 999),
    comparison=Comparison(0.8, (0.78, 0.83), Change.FASTER, True),
    warnings=(),
)
TESTED = replace(
    EVERY_STATUS, mode="test", cases_total=1, cases=(replace(JUDGED[0], timing=None, floor=None, min_bytes=None),), warnings=()
)
PROFILE = Profile(3, "results/t.json", (ProfileRow("mla_kernel", 3, 900, 50), ProfileRow("copy", 6, 100, 70)))
PROFILED = replace(TESTED, mode="profile", cases=(replace(TESTED.cases[0], profile=PROFILE),))
STATES = {
    "h200": H200,
    "every status": EVERY_STATUS,
    "running": RUNNING,
    "started": STARTED,
    "interrupted": INTERRUPTED,
    "failed": FAILED,
    "compared": COMPARED,
    "tested": TESTED,
    "profiled": PROFILED,
}


def hostile() -> Result:
    """A Result in which everything that a submission, a folder or a command line chooses tries to break out."""
    judged = replace(
        JUDGED[0],
        spec={"size": HOSTILE, "seed": 1},
        official=Official(True, HOSTILE),
        strict=Strict(True, format=HOSTILE, rel_l2_worst=0.1, details={"error_per_head": HOSTILE}),
        backend=HOSTILE,
        params={HOSTILE: HOSTILE},
        printed=HOSTILE,
        warnings=(HOSTILE,),
        profile=Profile(1, HOSTILE, (ProfileRow(HOSTILE, 1, 1, 1),)),
    )
    return replace(
        EVERY_STATUS,
        problem=HOSTILE,
        cases=(judged, case(2, Status.ERROR, HOSTILE, detail=HOSTILE, printed=HOSTILE)),
        cases_total=2,
        warnings=(HOSTILE,),
        error=HOSTILE,
        state=State.FAILED,
        submission=Submission(HOSTILE, HOSTILE, 1),
        device=replace(DEVICE, name=HOSTILE, driver=HOSTILE),
        command=("eval.py", HOSTILE),
        cases_from=HOSTILE,
        harness_version=HOSTILE,
        containment=(HOSTILE,),
    )
