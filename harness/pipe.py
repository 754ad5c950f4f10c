"""`eval.py MODE CASEFILE`: the form in which a popcorn runner starts an evaluator and reads its verdict from a pipe.

The official stopping rules and the official verdict alone. docs/popcorn-pipe.md lists the lines and the exit codes.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness import policies
from harness.devices import describe_device, select_device
from harness.errors import Exit, HarnessError, SubmissionNotLoaded, UsageError
from harness.observer import Progress
from harness.problem import Problem, load_flat
from harness.referee import Request, evaluate
from harness.render_plain import profile_lines
from harness.result import CaseResult, Result, State, Status, Timing
from popcorn.cases import Case, CaseError, parse_cases
from popcorn.pipe import CAPACITY_BYTES, PipeError, PipeWriter, format_line

MODES = ("test", "benchmark", "leaderboard", "profile")
STATISTICS = ("runs", "mean", "std", "err", "best", "worst")
TRACE_FOLDER = Path("profile_data")  # what runners pack up after a profile run
NO_PIPE = 111
# How a failure is told apart from a wrong output.
EXIT_OF_STATUS = {Status.DEVICE_ERROR: Exit.DEVICE_ERROR, Status.TIMEOUT: Exit.TIMEOUT}
WIDEST_NUMBER = "-1.7976931348623157e+308"


class PipeView:
    """A Result as the lines that a runner reads; an Observer."""

    def __init__(self, writer: PipeWriter, mode: str, cases: Sequence[Case]):
        self._writer, self._kind, self._cases = writer, _kind(mode), cases
        self._done = 0

    def started(self, result: Result) -> None:
        self.count()

    def progress(self, progress: Progress) -> None:
        pass

    def case_done(self, result: Result) -> None:
        sys.stdout.write(result.cases[-1].printed)  # a runner shows it beside the verdict
        self._case(result.cases[-1])
        self._done += 1

    def finished(self, result: Result) -> None:
        pass

    def count(self) -> None:
        """The line that says how many cases there are."""
        self._writer.log(f"{self._kind}-count", len(self._cases))

    def stopped(self, error: str) -> None:
        """The lines of a run that ends before its next case because of `error`."""
        self.count()
        self._log("spec", self._cases[self._done].text)
        self._failed(error)

    def _case(self, case: CaseResult) -> None:
        self._log("spec", self._cases[self._done].text)
        if case.profile is not None:
            self._writer.log_report(self._key("report"), "\n".join(profile_lines(case)))
        elif not officially_passed(case):
            self._failed(error_text(case))
        elif case.timing is not None:
            for name, value in _statistics(case.timing):
                self._log(name, value)
        else:
            self._log("status", "pass")
            if case.official and case.official.message:
                self._writer.log_text(self._key("message"), case.official.message)

    def _failed(self, error: str) -> None:
        self._log("status", "fail")
        self._writer.log_text(self._key("error"), error)

    def _log(self, name: str, value: object) -> None:
        self._writer.log(self._key(name), value)

    def _key(self, name: str) -> str:
        return f"{self._kind}.{self._done}.{name}"


def main(argv: Sequence[str]) -> int:
    """Run `MODE CASEFILE`; the exit code that a runner expects. Whatever is wrong is one line on stderr."""
    try:
        return _main(argv)
    except PipeError as error:
        return _report(str(error), NO_PIPE)
    except HarnessError as error:
        return _report(str(error), error.exit_code)
    except CaseError as error:
        return _report(str(error), Exit.BAD_CASES)


def _report(message: str, code: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return int(code)


def _main(argv: Sequence[str]) -> int:
    fd, seed = _from_environment(os.environ)
    if len(argv) != 2:
        raise UsageError(f"{len(argv)} arguments; a runner gives two, MODE CASEFILE")
    mode, cases = argv[0], tuple(_read_cases(Path(argv[1])))
    if mode not in MODES:
        raise UsageError(f"unknown mode {mode!r}; known are {', '.join(MODES)}")
    if not cases and mode != "test":
        raise CaseError(f"{argv[1]}: holds no case; mode {mode} needs one")
    writer = PipeWriter(fd, _reserve(mode, cases), texts=len(cases))
    try:
        passed, code = _evaluate(mode, cases, seed, PipeView(writer, mode, cases))
        writer.log("check", "pass" if passed else "fail")
    finally:
        writer.close()
    return code


def _from_environment(environ: os._Environ) -> tuple[int, int | None]:
    """The pipe's descriptor and the secret seed, taken out of the environment so that nothing started later sees them."""
    fd, seed = environ.pop("POPCORN_FD", ""), environ.pop("POPCORN_SEED", "")
    if not fd.isdecimal():
        has = f"POPCORN_FD is {fd!r}, not a descriptor" if fd else "POPCORN_FD is not set"
        raise PipeError(f"{has}; MODE CASEFILE is the form for runners, use --mode MODE yourself")
    try:
        return int(fd), int(seed) if seed else None
    except ValueError:
        raise UsageError(f"POPCORN_SEED is {seed!r}, not an integer") from None


def _read_cases(path: Path) -> list[Case]:
    try:
        return parse_cases(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise CaseError(f"{path}: the case file cannot be read: {reason}") from None


def _evaluate(mode: str, cases: tuple[Case, ...], seed: int | None, view: PipeView) -> tuple[bool, int]:
    """Whether every case passes officially, and the exit code."""
    if not cases:  # a task may have no tests
        view.count()
        return True, Exit.OK
    device = select_device(None)
    problem = load_flat(problem_folder())
    policy = policies.popcorn(mode, describe_device(device))
    try:
        submission = _submission(problem)
        request = Request(
            problem, submission, mode, cases, "case file", policy, device, seed=seed,
            stops_at_failure=mode in ("benchmark", "leaderboard"), trace_folder=TRACE_FOLDER,
        )  # fmt: skip
        return verdict_of(mode, evaluate(request, view))
    except SubmissionNotLoaded as error:
        text = f"{error}\n{error.detail}".strip()
        print(f"error: {text}", file=sys.stderr)
        view.stopped(text)
        return False, _exit_of_failure(mode)


def problem_folder() -> Path:
    """Where a runner has laid out the files: the working folder, else the folder of eval.py as it was called."""
    beside_eval = Path(sys.argv[0]).absolute().parent  # not resolved: eval.py may be a link into this repository
    for folder in (Path.cwd(), beside_eval):
        if (folder / "reference.py").is_file():
            return folder
    raise UsageError(f"no reference.py in {Path.cwd()} nor in {beside_eval}; a runner lays out the problem's files flat")


def _submission(problem: Problem) -> Path:
    if problem.default_submission is None:
        raise SubmissionNotLoaded(f"{problem.directory}: holds no submission.py")
    return problem.default_submission


def verdict_of(mode: str, result: Result) -> tuple[bool, int]:
    """Whether every case passed officially, and the exit code."""
    if result.state is State.INTERRUPTED:
        return False, Exit.INTERRUPTED
    good = is_profiled if mode == "profile" else officially_passed
    passed = len(result.cases) == result.cases_total and all(map(good, result.cases))
    faults = {EXIT_OF_STATUS[case.status] for case in result.cases if case.status in EXIT_OF_STATUS}
    return passed, min(faults, default=Exit.OK if passed else _exit_of_failure(mode))


def officially_passed(case: CaseResult) -> bool:
    """Whether the problem's own check accepts a case; the strict verdict and the floors do not count here."""
    return case.official is not None and case.official.ok


def is_profiled(case: CaseResult) -> bool:
    """Whether a profile was taken; officially nothing is checked then, so that wrong kernels can be profiled too."""
    return case.profile is not None


def error_text(case: CaseResult) -> str:
    """Why a case failed, for the author of the submission."""
    if case.official is not None:
        return case.official.message
    return f"{case.message}\n{case.detail}".strip()


def _exit_of_failure(mode: str) -> Exit:
    """Of a failed leaderboard run the official evaluator tells only through the pipe."""
    return Exit.OK if mode == "leaderboard" else Exit.VERDICT_FAILED


def _kind(mode: str) -> str:
    return "test" if mode == "test" else "benchmark"


def _statistics(timing: Timing) -> Iterator[tuple[str, float]]:
    """The official names of a Timing's figures, in nanoseconds and in the official order."""
    yield "runs", timing.runs
    for name in STATISTICS[1:]:
        yield name, getattr(timing, f"{name}_ns")


def _reserve(mode: str, cases: Sequence[Case]) -> int:
    """Bytes of the lines that carry the result, at most. Raises CaseError if an unread pipe cannot hold them."""
    kind, names = _kind(mode), ("status",) if mode == "test" else STATISTICS
    nbytes = len(format_line(f"{kind}-count", len(cases))) + len(format_line("check", "pass"))
    for index, case in enumerate(cases):
        nbytes += len(format_line(f"{kind}.{index}.spec", case.text))
        nbytes += sum(len(format_line(f"{kind}.{index}.{name}", WIDEST_NUMBER)) for name in names)
    if nbytes > CAPACITY_BYTES:
        raise CaseError(f"{len(cases)} cases need {nbytes} bytes of a pipe that holds {CAPACITY_BYTES}; split the case file")
    return nbytes
