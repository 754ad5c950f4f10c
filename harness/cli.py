"""The command line: options to a Request, a Result to an exit code."""

import argparse
import os
import sys
from pathlib import Path

from harness import policies
from harness.compare import is_regression
from harness.devices import describe_device, select_device
from harness.errors import Exit, HarnessError, SubmissionNotLoaded, UsageError
from harness.history import Recorder
from harness.observer import Observer, Observers
from harness.options import DEFAULT_TIMEOUT_S, parser
from harness.options import ROOT as ROOT
from harness.problem import Problem, load_problem
from harness.referee import TIMED_MODES, Request, evaluate
from harness.report import RENDERERS
from harness.report.writer import FileWriter
from harness.result import Device, result_text
from harness.terminal.choose import choose_renderer
from popcorn.cases import Case, CaseError, parse_cases
from popcorn.errors import PopcornError

HIDDEN = "***"
VIEWS = {"json": result_text, **RENDERERS}


def main(argv: list[str]) -> int:
    """Run the command line; the exit code. A user's mistake is one line on stderr."""
    options = parser().parse_args(argv)
    if sys.platform != "linux":
        return _report(f"the harness needs Linux (memory files, process groups), not {sys.platform}", Exit.USAGE)
    try:
        return run(options, ("eval.py", *_without_seed(argv)))
    except SubmissionNotLoaded as error:
        return _report(str(error), error.exit_code, error.detail)
    except HarnessError as error:
        return _report(str(error), error.exit_code)
    except CaseError as error:
        return _report(str(error), Exit.BAD_CASES)
    except PopcornError as error:
        return _report(str(error), Exit.USAGE)
    except KeyboardInterrupt:
        return _report("interrupted", Exit.INTERRUPTED)
    except BrokenPipeError:  # who read our output has gone, as in `eval.py | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit fails once more
        return int(Exit.INTERRUPTED)


def _without_seed(argv: list[str]) -> list[str]:
    """The command line as it is recorded: a secret seed must not stand in a Result."""
    hidden = [f"--seed={HIDDEN}" if word.startswith("--seed=") else word for word in argv]
    return [HIDDEN if i and argv[i - 1] == "--seed" else word for i, word in enumerate(hidden)]


def _report(message: str, code: Exit, detail: str = "") -> int:
    print(f"error: {message}", *([detail] if detail else []), sep="\n", file=sys.stderr)
    return int(code)


def run(options: argparse.Namespace, command: tuple[str, ...]) -> int:
    """Evaluate as `options` say; the exit code."""
    device = select_device(options.device)
    about = describe_device(device)
    problem = load_problem(options.problem)
    cases_from, cases = choose_cases(options.cases, problem, options.mode, about)
    policy = _policy(options, about)
    request = Request(
        problem=problem,
        submission=_submission(options.submission, problem),
        mode=options.mode,
        cases=cases,
        cases_from=cases_from,
        policy=policy,
        device=device,
        backend=options.backend,
        timeout_s=options.timeout_s or min(DEFAULT_TIMEOUT_S, problem.task.timeout_s(options.mode)),
        seed=options.seed,
        command=command,
        baseline=_baseline(options),
    )
    screen = choose_renderer(sys.stdout, cases, options.no_color)
    try:
        result = evaluate(request, Observers(screen, *_writers(options)))
    finally:
        screen.close()
    if result.ok and options.fail_on_regression and is_regression(result):
        return int(Exit.REGRESSION)
    return int(result.exit_code)


def _baseline(options: argparse.Namespace) -> Path | None:
    path: Path | None = options.baseline
    if path is None and options.fail_on_regression:
        raise UsageError("--fail-on-regression needs --baseline FILE to compare with")
    if path and options.mode not in TIMED_MODES:
        raise UsageError(f"--baseline compares times; mode {options.mode} takes none: use {' or '.join(TIMED_MODES)}")
    if path and not path.is_file():
        raise SubmissionNotLoaded(f"--baseline {path}: no such file")
    return path


def _writers(options: argparse.Namespace) -> list[Observer]:
    """One per option that names a file, each file a view of the Result that is rewritten after every case."""
    paths = {name: _writable(f"--{name}", path) for name in VIEWS if (path := getattr(options, name))}
    if len({path.resolve() for path in paths.values()}) < len(paths):
        raise UsageError(f"{', '.join(f'--{name} {path}' for name, path in paths.items())}: every view needs a file of its own")
    writers: list[Observer] = [FileWriter(f"--{name}", path, VIEWS[name]) for name, path in paths.items()]
    return [*writers, Recorder(options.record)] if options.record else writers


def choose_cases(wanted: str | None, problem: Problem, mode: str, device: Device) -> tuple[str, tuple[Case, ...]]:
    """Where the cases come from, and the cases. Raises UsageError, or CaseError naming the line."""
    smoke = problem.directory / "cases" / "smoke.txt"
    if wanted is None:
        wanted = "smoke" if device.kind == "cpu" and smoke.is_file() else "official"
        if wanted == "smoke":
            print("These are the smoke cases, sized for a CPU; --cases official runs the official ones.")
    if wanted == "official":
        cases = problem.task.cases("test" if mode == "test" else "benchmark")
        if not cases:
            raise UsageError(f"{problem.directory}: task.yml has no cases for mode {mode}; give --cases FILE")
        return "official", cases
    if ":" in wanted and not os.path.isfile(wanted):  # pathlib's raises for what is too long to be a name
        return "command line", tuple(parse_cases(wanted, "--cases"))
    return _cases_of_file(smoke if wanted == "smoke" else Path(wanted), wanted)


def _cases_of_file(path: Path, wanted: str) -> tuple[str, tuple[Case, ...]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        named = wanted if wanted == str(path) else f"{wanted}: {path}"
        raise UsageError(f'--cases {named}: {error.strerror}; use official, smoke, a file, or "key: value; ..."') from None
    except UnicodeDecodeError:
        raise CaseError(f"{path}: not UTF-8 text; a case file holds one case a line, `key: value; key: value`") from None
    cases = parse_cases(text, str(path))
    if not cases:
        raise CaseError(f"{path}: holds no case; one a line, `key: value; key: value`")
    return wanted if wanted == "smoke" else path.name, tuple(cases)


def _policy(options: argparse.Namespace, device: Device) -> policies.Policy:
    if options.policy == "official":
        if options.budget_s:
            raise UsageError("--budget-s belongs to --policy robust; the official rules have their own limits")
        return policies.official(options.mode, device)
    return policies.robust(options.mode, device, options.budget_s)


def _submission(wanted: Path | None, problem: Problem) -> Path:
    path = wanted or problem.default_submission
    if path is None:
        raise SubmissionNotLoaded(f"{problem.directory}: has no submission.py and no template; give --submission FILE")
    if not path.is_file():
        raise SubmissionNotLoaded(f"{path}: no such submission file; --submission FILE names another")
    return path


def _writable(option: str, path: Path) -> Path:
    if not path.parent.is_dir() or path.is_dir():
        raise UsageError(f"{option} {path}: not a file in an existing folder")
    return path
