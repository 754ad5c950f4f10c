"""Problem folders as texts: what the store keeps of them and a runner on another machine is sent.

A folder's sources may lie outside it (`../task.py`), so paths are kept relative to the folder that holds them all.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from leaderboard.errors import BadRequest
from popcorn.directives import parse_directives
from popcorn.errors import PopcornError
from popcorn.taskfile import SUBMISSION, TaskFile, load_task_file

MAX_BYTES = 8_000_000


@dataclass(frozen=True)
class PackedProblem:
    """A problem folder by content."""

    root: str  # the folder of task.yml, relative, POSIX; "." if it holds everything
    files: dict[str, str]  # relative POSIX path -> text

    @property
    def sha256(self) -> str:
        """Names the content."""
        return hashlib.sha256(json.dumps([self.root, self.files], sort_keys=True).encode()).hexdigest()


def pack_problem(directory: Path) -> tuple[PackedProblem, TaskFile]:
    """A folder's texts and its task. Raises BadRequest naming the file that is missing or cannot be used."""
    try:
        task = load_task_file(directory / "task.yml")
    except PopcornError as error:
        raise BadRequest(str(error)) from None
    directory = directory.resolve()  # `../task.py` is meant from where the folder is, not from a link to it
    if task.lang != "py" or task.multi_gpu:
        raise BadRequest(f"{directory}: only Python tasks (lang: py) of one GPU can be run here")
    paths = [Path(os.path.normpath(path)) for path in _paths(directory, task)]
    base = Path(os.path.commonpath([path.parent for path in paths]))
    files = {path.relative_to(base).as_posix(): _text(path) for path in paths}
    if sum(map(len, files.values())) > MAX_BYTES:
        raise BadRequest(f"{directory}: its files hold more than {MAX_BYTES:,} characters")
    return PackedProblem(directory.relative_to(base).as_posix(), files), task


def problem_name(directory: Path, task: TaskFile) -> str:
    """The leaderboard that the folder's own submission names, else the folder's name."""
    submission = next((name for name, source in task.files.items() if source == SUBMISSION), "submission.py")
    for path in (directory / submission, *(directory / source for source in task.templates.values())):
        try:
            named = parse_directives(path.read_text(encoding="utf-8")).leaderboard
        except (OSError, ValueError):  # a template need not be a submission that a server takes
            continue
        if named:
            return named
    return directory.resolve().name


def unpack_problem(problem: PackedProblem, folder: Path) -> Path:
    """Lay the files out below `folder`; the folder of task.yml. Raises BadRequest for a path that leads elsewhere."""
    for name in (problem.root, *problem.files):
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts or "\\" in name or "\0" in name:
            raise BadRequest(f"a problem with a file {name!r}: not a path below its folder")
    for name, text in problem.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / problem.root


def _paths(directory: Path, task: TaskFile) -> list[Path]:
    """task.yml, the sources, templates and case files; the folder's own submission if it has one."""
    needed = [source for source in task.files.values() if source != SUBMISSION] + list(task.templates.values())
    own = [name for name, source in task.files.items() if source == SUBMISSION and (directory / name).is_file()]
    paths = [directory / name for name in dict.fromkeys(["task.yml", *needed, *own])]
    if missing := [str(path) for path in paths if not path.is_file()]:
        raise BadRequest(f"{directory / 'task.yml'}: these files do not exist: {', '.join(missing)}")
    return [*paths, *sorted((directory / "cases").glob("*.txt"))]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BadRequest(f"{path}: is not UTF-8 text") from None
