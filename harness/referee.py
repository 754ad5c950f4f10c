"""The referee: runs a list of cases, replaces workers that die, keeps the Result current."""

import contextlib
import datetime
import functools
import hashlib
import itertools
import math
import os
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import torch

from harness.advice import END_RULES, LOADED_RULES, START_RULES, advise, busy_machine, refused_by_server
from harness.assemble import Assembler, failed_case
from harness.case_run import CaseRun
from harness.clock import Clock, WallClock
from harness.compare import compare_cases
from harness.containment import ALL_ON, Containment, attempts
from harness.defences import Defences
from harness.devices import data_limit_bytes, describe_device
from harness.errors import CallFailed, HarnessError, SubmissionNotLoaded, SubmissionRaised
from harness.floors import ReadFloor
from harness.gpu_watch import GpuWatch, probe_of
from harness.inputs import InputBuffers
from harness.observer import Observer, Progress
from harness.policies import Policy, cold_read, weakened
from harness.problem import WITHHELD, Problem
from harness.process import Limits, WorkerProcess
from harness.result import SCHEMA_VERSION, CaseResult, Device, Profile, ProfileRow, Result, State, Submission, score_of
from harness.session import Session
from popcorn.cases import Case

VERSION = "0.1.0"
CPU_TIME_FACTOR = 4  # RLIMIT_CPU over what all cores can spend within the time limits: only a run-away meets it
ROOT = Path(__file__).resolve().parent.parent
PROFILED_CALLS = 3
MAX_PROFILE_ROWS = 40
UNMETERED = "processor time of processes that the submission starts and that end unseen is on no account here ({})"
UNHELD = "the device cannot be filled before a call ({}): what is done on another queue before the clock starts goes unseen"
TIMED_MODES = ("benchmark", "leaderboard")


@dataclass(frozen=True)
class Request:
    """What is to be evaluated, and how."""

    problem: Problem
    submission: Path
    mode: str  # test, benchmark, leaderboard, profile
    cases: tuple[Case, ...]
    cases_from: str
    policy: Policy
    device: torch.device
    backend: str = "auto"
    timeout_s: float = 300.0
    seed: int | None = None  # secret: combined with every case's own, and absent from the Result
    stops_at_failure: bool = False  # official: a benchmark whose official verdict fails is the last one
    command: tuple[str, ...] = ()
    baseline: Path | None = None  # another submission, measured in turn with this one
    defences: Defences = ALL_ON  # no option reaches this: tests switch single ones off
    trace_folder: Path = Path("results", "profile")  # mode profile: where chrome traces go


class Workers:
    """The present worker of one submission, started or replaced when it is asked for."""

    def __init__(self, request: Request, submission: Path, scratch: Path, shown_name: str = ""):
        """shown_name: what messages call the submission, if not by its file's name."""
        self._request, self._submission, self._scratch = request, submission, scratch
        self._shown_name = shown_name or submission.name
        self._session: Session | None = None
        self._loaded = False
        self._started = 0
        self.load_ns: int | None = None
        self.device_ipc = False
        self.given_up: list[str] = []  # stronger layers, and why
        self._way: Containment | None = None

    @property
    def containment(self) -> Containment:
        """What the workers are contained by; known once the first has started."""
        assert self._way is not None
        return self._way

    @property
    def alive(self) -> bool:
        """Whether the present worker can be asked again."""
        return self._session is not None and self._session.alive

    def start(self) -> Session:
        """A live worker with its clock; whether the submission is there yet is left open. Raises SubmissionNotLoaded."""
        if self._session is None or not self._session.alive:
            self.close()
            self._session, self._loaded = self._contained(), False
        return self._session

    def session(self) -> Session:
        """A live worker with the submission loaded. Raises SubmissionNotLoaded."""
        session = self.start()
        if not self._loaded:
            try:
                self.load_ns = session.load()
            except BaseException:
                self.close()
                raise
            self._loaded = True
        return session

    def close(self) -> None:
        """End the present worker."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _contained(self) -> Session:
        """A worker behind the best layers that let it start. The first one finds them, before any submission has run;
        all others start behind the same. Raises SubmissionNotLoaded if it starts behind none."""
        if self._way is not None:
            return self._begin(self._way, self.device_ipc)
        unusable: dict[Containment, SubmissionNotLoaded] = {}
        for way, device_ipc in attempts(self._request.defences, self._request.device.type == "cuda"):
            if way in unusable:
                continue
            try:
                session = self._begin(way, device_ipc)
            except SubmissionNotLoaded as error:  # the worker, or its device, cannot be used behind these layers
                unusable[way] = error
                self._give_up(way, f"no worker starts there: {error}")
                continue
            why_not = why_not_shared(session, self._request.device) if device_ipc else ""
            if not why_not:
                self._way, self.device_ipc = way, device_ipc
                return session
            session.close()
            self._give_up(way, f"device memory cannot be shared: {why_not}")
        raise list(unusable.values())[-1]

    def _give_up(self, way: Containment, reason: str) -> None:
        self.given_up.append(f"not behind {', '.join(way.layers)}: {reason.splitlines()[0]}")

    def _begin(self, containment: Containment, device_ipc: bool) -> Session:
        """A worker with its clock, without the submission."""
        self._started += 1
        folder = self._scratch / f"worker{self._started}"
        folder.mkdir()
        problem, timeout_s = self._request.problem, self._request.timeout_s
        withheld = WITHHELD if self._request.defences.withheld_files else ()
        submission = problem.stage(folder, self._submission, withheld)
        cpu_s = math.ceil(CPU_TIME_FACTOR * timeout_s * (len(self._request.cases) + 1) * (os.cpu_count() or 1))
        limits = Limits(timeout_s, data_limit_bytes(self._request.device), cpu_s)
        process = WorkerProcess(folder, self._request.backend, limits, containment, (ROOT, problem.directory))
        session = Session(
            process, submission, self._request.device, timeout_s, self._request.defences, self._shown_name
        )  # fmt: skip
        try:
            session.start(self._request.policy.cold)
        except BaseException:
            session.close()
            raise
        session.device_ipc = device_ipc
        return session


def why_not_shared(session: Session, device: torch.device) -> str:
    """Why the worker cannot open device memory of this process; empty if it can."""
    buffers = InputBuffers(device_ipc=True)
    try:
        buffers.fill(lambda: torch.zeros(1, device=device))
        session.map("probe", buffers)
        session.unmap("probe")
    except (CallFailed, RuntimeError) as error:
        return str(error) or type(error).__name__
    finally:
        buffers.close()
    return ""


class Evaluation:
    """One run over the cases of a request."""

    def __init__(self, request: Request, observer: Observer, clock: Clock):
        request = replace(request, policy=weakened(request.policy, request.defences))
        self._request, self._observer, self._clock = request, observer, clock
        device = describe_device(request.device)
        read_floor = ReadFloor(request.device, cold_read(device))
        self._assembler = Assembler(request.problem, request.policy, device, read_floor, request.defences.refusal_floor)
        self._watch = GpuWatch(probe_of(request.device), clock)
        self._rivals: Workers | None = None
        self._result = _empty_result(request, device)

    def run(self) -> Result:
        """Run every case. Raises HarnessError, after the observer has been told what was measured until then."""
        self._observer.started(self._result)
        with tempfile.TemporaryDirectory(prefix="kernelproof-") as scratch:
            workers = Workers(self._request, self._request.submission, _folder(scratch, "submission"))
            if (baseline := self._request.baseline) and self._request.mode in TIMED_MODES:
                self._rivals = Workers(self._request, baseline, _folder(scratch, "baseline"), f"--baseline {baseline.name}")
            try:
                self._run_cases(workers)
                self._finish(State.COMPLETE)
            except KeyboardInterrupt:
                self._finish(State.INTERRUPTED)
            except HarnessError as error:
                self._finish(State.FAILED, str(error))
                raise
            finally:
                workers.close()
                if self._rivals:
                    self._rivals.close()
        return self._result

    def _run_cases(self, workers: Workers) -> None:
        self._tell(0, "loading")
        self._start(workers)
        workers.session()
        self._note_load(workers)
        if self._rivals:
            self._load_baseline(self._rivals)
        if self._request.policy.first_case_warmup and self._request.mode in TIMED_MODES:
            self._warm_up_first_case(workers)
        for index, case in enumerate(self._request.cases):
            found = self._run_case(workers, index, case)
            self._add(found)
            if self._request.stops_at_failure and not found.official_ok:
                return

    def _start(self, workers: Workers) -> None:
        """Have a worker on each side. No clock is built while a submission is loaded, which could disturb its calibration: if
        one side needs a new worker, both get one."""
        sides = [workers, self._rivals] if self._rivals else [workers]
        if not all(side.alive for side in sides):
            for side in sides:
                side.close()
            for side in sides:
                side.start()

    def _warm_up_first_case(self, workers: Workers) -> None:
        rule = self._request.policy.first_case_warmup
        assert rule is not None
        try:
            with self._case_run(workers, 0, self._request.cases[0]) as run:
                run.warm_up_only(rule)
        except CallFailed:
            workers.close()  # the same failure will come again, where it is recorded

    def _run_case(self, workers: Workers, index: int, case: Case) -> CaseResult:
        timed = self._request.mode in TIMED_MODES
        run = self._case_run(workers, index, case)
        try:
            with run:
                run.run(timed)
                profile = self._profile(run, index) if self._request.mode == "profile" else None
            self._replace_fallen_rival(run)
        except CallFailed as error:
            self._raise_if_backend_is_missing(error)
            if not isinstance(error, SubmissionRaised):
                workers.close()  # its memory or its device can no longer be trusted
            return failed_case(case, error, run.printed)
        except KeyboardInterrupt:
            if run.sampling and run.sampling.samples_ns:
                self._add(self._finished(case, run))
            raise
        return self._finished(case, run, profile)

    def _finished(self, case: Case, run: CaseRun, profile: Profile | None = None) -> CaseResult:
        return self._assembler.finished(case, run, profile, self._watch.take(run.sampling.exposed if run.sampling else 0))

    def _load_baseline(self, rivals: Workers) -> None:
        baseline = self._result.baseline
        assert baseline is not None
        rivals.session()
        self._result = replace(self._result, baseline=replace(baseline, load_ns=rivals.load_ns))

    def _replace_fallen_rival(self, run: CaseRun) -> None:
        """A baseline that did not merely raise gets a new worker, as a submission does."""
        if self._rivals and run.rival and run.rival.fault and not isinstance(run.rival.fault, SubmissionRaised):
            self._rivals.close()

    def _profile(self, run: CaseRun, index: int) -> Profile:
        with new_file(self._request.trace_folder, f"{self._request.problem.name}-case{index + 1}", ".json") as trace:
            rows = run.profile(PROFILED_CALLS, trace)
        records = sorted((ProfileRow(**row) for row in rows), key=lambda row: (row.device_ns, row.host_ns), reverse=True)
        return Profile(PROFILED_CALLS, trace.name, tuple(records[:MAX_PROFILE_ROWS]))

    def _raise_if_backend_is_missing(self, error: CallFailed) -> None:
        """A forced backend that the submission says it cannot use is no verdict on any case: the run is over."""
        if self._request.backend != "auto" and str(error).startswith("BackendError:"):
            message = str(error).removeprefix("BackendError: ")
            raise SubmissionNotLoaded(f"--backend {self._request.backend}: {message}") from None

    def _case_run(self, workers: Workers, index: int, case: Case) -> CaseRun:
        self._start(workers)
        session, rival = workers.session(), self._rivals.session() if self._rivals else None
        session.grant_time()
        if rival:
            rival.grant_time()
        policy, clock = self._request.policy, self._clock
        secret_case = case.with_seed(self._request.seed)
        tell = functools.partial(self._tell, index)
        return CaseRun(self._request.problem, secret_case, policy, session, clock, tell, rival)

    def _tell(self, index: int, phase: str, samples_ns: tuple[int, ...] = (), left_s: float | None = None) -> None:
        cases = self._request.cases
        if phase == "sampling":
            self._watch.look()
        self._observer.progress(Progress(index, len(cases), cases[index], phase, samples_ns, left_s))

    def _note_load(self, workers: Workers) -> None:
        submission = replace(self._result.submission, load_ns=workers.load_ns)
        self._result = replace(self._result, submission=submission, containment=workers.containment.layers)
        warnings = (*self._result.warnings, *advise(LOADED_RULES, self._result))
        if workers.containment.warning:
            warnings += (workers.containment.warning,)
        warnings += tuple(workers.given_up)
        if self._request.device.type == "cuda" and not workers.device_ipc:
            warnings += ("device memory cannot be shared between processes here: inputs are copied to the worker",)
        if unheld := workers.session().unheld:
            warnings += (UNHELD.format(unheld),)
        if self._request.device.type == "cpu" and (unmetered := workers.session().unmetered):
            warnings += (UNMETERED.format(unmetered),)
        self._result = replace(self._result, warnings=warnings)

    def _add(self, case: CaseResult) -> None:
        self._result = replace(self._result, cases=(*self._result.cases, case))
        self._observer.case_done(self._result)

    def _finish(self, state: State, error: str = "") -> None:
        request, cases = self._request, self._result.cases
        timed = request.mode in TIMED_MODES
        score = score_of(cases, request.problem.task.ranking_by, request.policy.statistic) if timed else None
        comparison = compare_cases(cases)
        self._result = replace(self._result, state=state, score=score, comparison=comparison, error=error)
        warnings = (*self._result.warnings, *advise(END_RULES, self._result))
        self._result = replace(self._result, warnings=warnings)
        self._observer.finished(self._result)


def evaluate(request: Request, observer: Observer, clock: Clock | None = None) -> Result:
    """Evaluate a submission. The submission's failures are statuses of cases.

    Raises:
        SubmissionNotLoaded: it could not be imported, or lacks the backend that was asked for.
        ProblemError: the problem's generator refused a case.
    """
    return Evaluation(request, observer, clock or WallClock()).run()


def _empty_result(request: Request, device: Device) -> Result:
    result = Result(
        schema_version=SCHEMA_VERSION,
        problem=request.problem.name,
        mode=request.mode,
        policy=request.policy.name,
        cases_from=request.cases_from,
        command=request.command,
        started_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        harness_version=harness_version(),
        containment=(),
        submission=_submission(request.submission),
        baseline=_submission(request.baseline) if request.baseline else None,
        device=device,
        cases_total=len(request.cases),
    )
    busy = busy_machine(os.getloadavg()[0], len(os.sched_getaffinity(0))) if device.kind == "cpu" else []
    refused = refused_by_server(request.submission.read_bytes(), request.submission.name)
    return replace(result, warnings=(*advise(START_RULES, result), *busy, *refused))


def _submission(path: Path) -> Submission:
    content = path.read_bytes()
    return Submission(path.name, hashlib.sha256(content).hexdigest(), len(content))


def _folder(scratch: str, name: str) -> Path:
    folder = Path(scratch, name)
    folder.mkdir()
    return folder


def new_file(folder: Path, stem: str, suffix: str) -> BinaryIO:
    """A file that did not exist: the first free of stem, stem-2, stem-3, ..."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        with contextlib.suppress(FileExistsError):
            return (folder / f"{stem}{f'-{number}' if number > 1 else ''}{suffix}").open("xb")
    raise AssertionError("unreachable: count() does not end")


@functools.cache
def harness_version() -> str:
    """The version, and in a git checkout the commit."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return VERSION
    return f"{VERSION}+{commit}"
