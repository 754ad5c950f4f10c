"""A problem folder in the popcorn form, loaded: its cases, its files, and the hooks of its reference.py."""

import inspect
import re
import shutil
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from harness.errors import Exit, HarnessError
from harness.modules import ModuleSpace
from popcorn.cases import Case
from popcorn.directives import parse_directives
from popcorn.errors import PopcornError
from popcorn.taskfile import SUBMISSION, TaskFile, load_task_file

# What a submission must not find beside itself: the oracle and the clock.
WITHHELD = ("reference.py", "eval.py")
# What counts as a source where no task.yml says so, in a folder that a runner has laid out.
_SOURCE_SUFFIXES = (".py", ".cu", ".cuh", ".cpp", ".h", ".hpp", ".hip")


class ProblemError(HarnessError):
    """A problem folder cannot be used; the message names the file, the fault and the remedy."""


class InputError(ProblemError):
    """`generate_input` refused a case."""

    exit_code = Exit.BAD_CASES


class NeedsGpuError(ProblemError):
    """The problem's reference.py asks for a GPU and this machine has none."""

    exit_code = Exit.DEVICE_ERROR


@dataclass(frozen=True)
class Problem:
    """A problem folder and the hooks of its reference.py, which runs in a staged copy with imports of its own."""

    name: str  # the leaderboard its default submission names, else the folder's name
    directory: Path
    task: TaskFile
    sources: dict[str, Path]  # flat file name -> file; the submission is not among them
    submission_name: str  # the flat file name that a submission gets
    default_submission: Path | None
    mutable_inputs: tuple[int, ...] | None  # top-level inputs that may be written; None: not declared, so any may
    _reference: ModuleType = field(repr=False)
    _scratch: tempfile.TemporaryDirectory = field(repr=False)  # holds the staged copy for as long as the problem lives

    def generate_input(self, case: Case) -> Any:
        """The input of a case, as reference.py makes it.

        Raises InputError, NeedsGpuError on a machine without a GPU, and what says that memory ran out.
        """
        try:
            return self._reference.generate_input(**case.spec)
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as fault:
            self._raise_if_gpu_is_missing("generate_input", fault)
            raise InputError(
                f"{self.name}: generate_input refused the case `{case.text}`: {describe(fault)}; "
                f"its keys are {', '.join(inspect.signature(self._reference.generate_input).parameters)}"
            ) from fault

    def check_implementation(self, data: Any, output: Any) -> tuple[bool, str]:
        """The official verdict on an output: (ok, message). A check that raises on what it was given is a failed check.

        Raises NeedsGpuError, ProblemError (the check returned no verdict), and what says that memory ran out.
        """
        try:
            returned = self._reference.check_implementation(data, output)
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as fault:
            self._raise_if_gpu_is_missing("check_implementation", fault)
            return False, f"check_implementation raised {describe(fault)}"
        return read_verdict(returned)

    def judge(self, data: Any, output: Any) -> dict[str, Any]:
        """Both verdicts: `{"official": {"ok", "message"}, "strict": {...}}`; a folder without `judge` has no "strict"."""
        if hasattr(self._reference, "judge"):
            return self._reference.judge(data, output)
        ok, message = self.check_implementation(data, output)
        return {"official": {"ok": ok, "message": message}}

    def min_bytes(self, case: Case, format: str | None = None) -> int | None:
        """Bytes that any kernel must move for a case, reading `format` (None: the cheapest); None if the folder is silent."""
        if not hasattr(self._reference, "min_bytes"):
            return None
        return self._reference.min_bytes(case.spec, format)

    def stage(self, folder: Path, submission: Path, withheld: tuple[str, ...] = WITHHELD) -> Path:
        """Lay the sources that a submission may see flat into `folder`, the submission among them; return its new path."""
        visible = {name: path for name, path in self.sources.items() if name not in withheld}
        _copy_flat({**visible, self.submission_name: submission}, folder)
        return folder / self.submission_name

    def _raise_if_gpu_is_missing(self, hook: str, fault: Exception) -> None:
        if gpu_is_missing(fault):
            raise NeedsGpuError(_gpu_message(self.name, hook, fault)) from fault


def load_problem(directory: Path) -> Problem:
    """The problem in a folder with a task.yml; the path of that file names it too.

    Raises TaskFileError (task.yml malformed), NeedsGpuError, or ProblemError (a file missing, reference.py broken).
    """
    if directory.name == "task.yml":
        directory = directory.parent
    if not (directory / "task.yml").is_file():
        raise ProblemError(f"{directory}: {'no task.yml in this folder' if directory.is_dir() else 'no such folder'}; "
                           "a problem is a folder with a task.yml")  # fmt: skip
    task = load_task_file(directory / "task.yml")
    _refuse_unsupported(directory, task)
    sources = _existing(directory, "files", {name: source for name, source in task.files.items() if source != SUBMISSION})
    submission_name = next(name for name, source in task.files.items() if source == SUBMISSION)
    return _load(directory, task, sources, submission_name, _default_submission(directory, task, submission_name))


def load_flat(folder: Path) -> Problem:
    """The problem that a runner has laid out flat in a folder, without its task.yml. Raises as `load_problem`."""
    sources = {
        path.name: path
        for path in sorted(folder.iterdir())
        if path.is_file() and path.suffix in _SOURCE_SUFFIXES and path.name != "submission.py"
    }
    files = {"submission.py": SUBMISSION, **{name: name for name in sources}}
    task = TaskFile(files=files, lang="py", description="", main="eval.py")
    submission = folder / "submission.py"
    return _load(folder, task, sources, "submission.py", submission if submission.is_file() else None)


def read_verdict(result: Any) -> tuple[bool, str]:
    """What a `check_implementation` returned, as (ok, message).

    Folders return (ok, message), or only a message (empty: passed), or only a truth value. Raises ProblemError for
    anything else.
    """
    if isinstance(result, tuple) and len(result) == 2:
        ok, message = result
        return bool(ok), "" if message is None else str(message)
    if result is None or isinstance(result, str):
        return not result, result or ""
    if isinstance(result, bool):
        return result, ""
    raise ProblemError(f"check_implementation returned {type(result).__name__}; expected (bool, str), str or bool")


def gpu_is_missing(fault: BaseException) -> bool:
    """Whether an exception is torch's way of saying that there is no GPU, on a machine that has none."""
    names_gpu = re.search(r"cuda|nvidia|\bhip\b", str(fault), re.IGNORECASE) is not None
    return names_gpu and isinstance(fault, AssertionError | RuntimeError) and not torch.cuda.is_available()


def describe(fault: BaseException) -> str:
    """An exception of a problem's code on one line: type, message and place."""
    message = " ".join(str(fault).split())
    place = _place(fault)
    return f"{type(fault).__name__}{': ' + message if message else ''}{f' ({place})' if place else ''}"


def _place(fault: BaseException) -> str:
    """The innermost line of an exception's traceback that is neither a library's nor the harness's own."""
    here = str(Path(__file__).parent)
    frames = [
        frame
        for frame in traceback.extract_tb(fault.__traceback__)
        if "site-packages" not in frame.filename and not frame.filename.startswith((here, "<frozen"))
    ]
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""


def _gpu_message(name: str, who: str, fault: BaseException) -> str:
    return (
        f"{name}: {who} asks for a GPU ({_place(fault)}) and this machine has none; run it on a machine with one, "
        "or let reference.py choose its device by torch.cuda.is_available()"
    )


def _load(
    directory: Path, task: TaskFile, sources: dict[str, Path], submission_name: str, default_submission: Path | None
) -> Problem:
    name = _name(directory, default_submission)
    if "reference.py" not in sources:
        raise ProblemError(f"{directory}: no reference.py among its files; it makes the inputs and checks the outputs")
    scratch = tempfile.TemporaryDirectory(prefix="kernelproof-")
    staged = Path(scratch.name)
    _copy_flat(sources, staged)
    reference = _import_reference(name, staged)
    mutable_inputs = getattr(reference, "mutable_inputs", None)
    return Problem(
        name=name,
        directory=directory,
        task=task,
        sources=sources,
        submission_name=submission_name,
        default_submission=default_submission,
        mutable_inputs=None if mutable_inputs is None else tuple(mutable_inputs),
        _reference=reference,
        _scratch=scratch,
    )


def _import_reference(name: str, staged: Path) -> ModuleType:
    try:
        reference = ModuleSpace(staged).load("reference")
    except (Exception, SystemExit) as fault:
        if gpu_is_missing(fault):
            raise NeedsGpuError(_gpu_message(name, "reference.py", fault)) from fault
        raise ProblemError(f"{name}: reference.py cannot be imported: {describe(fault)}") from fault
    for hook in ("generate_input", "check_implementation"):
        if not isinstance(getattr(reference, hook, None), Callable):
            raise ProblemError(f"{name}: reference.py defines no function {hook}; every problem needs it")
    return reference


def _refuse_unsupported(directory: Path, task: TaskFile) -> None:
    if task.lang != "py":
        raise ProblemError(f"{directory}: lang is {task.lang}; only Python tasks (lang: py) can be run here")
    if task.multi_gpu:
        raise ProblemError(f"{directory}: a multi_gpu task; only tasks of one GPU can be run here")


def _existing(directory: Path, key: str, sources: dict[str, str]) -> dict[str, Path]:
    missing = [f"{name} (from {source})" for name, source in sources.items() if not (directory / source).is_file()]
    if missing:
        raise ProblemError(f"{directory / 'task.yml'}: {key}: these files do not exist: {', '.join(missing)}")
    return {name: directory / source for name, source in sources.items()}


def _default_submission(directory: Path, task: TaskFile, submission_name: str) -> Path | None:
    if (directory / submission_name).is_file():
        return directory / submission_name
    templates = {kind: source for kind, source in task.templates.items() if source.endswith(".py")}
    return next(iter(_existing(directory, "templates", templates).values()), None)


def _name(directory: Path, default_submission: Path | None) -> str:
    try:
        named = parse_directives(default_submission.read_text()).leaderboard if default_submission else None
    except (PopcornError, OSError, UnicodeDecodeError):
        named = None  # what is wrong with a submission is said when it is used
    return named or directory.resolve().name


def _copy_flat(files: dict[str, Path], folder: Path) -> None:
    for name, path in files.items():
        shutil.copyfile(path, folder / name)
