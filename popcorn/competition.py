"""A competition's YAML: which problem folders it holds, under which names, on which GPUs, until when."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path, PurePosixPath

from popcorn.document import Node, parse_document
from popcorn.errors import PopcornError

_DEADLINE_FORMATS = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S")


class CompetitionError(PopcornError):
    """A competition file is missing or malformed; the message names file, line, key and what is allowed."""


@dataclass(frozen=True)
class CompetitionProblem:
    """One leaderboard of a competition."""

    name: str
    directory: str  # relative to the competition's file
    deadline: datetime  # UTC
    gpus: tuple[str, ...]  # empty: those of the folder's task.yml


@dataclass(frozen=True)
class Competition:
    """A competition's YAML."""

    name: str
    deadline: datetime  # UTC
    description: str
    problems: tuple[CompetitionProblem, ...]


def load_competition(path: Path) -> Competition:
    """The competition at `path`. Raises CompetitionError naming the line, also for a file that cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as fault:
        raise CompetitionError(f"{path}: cannot be read: {fault.strerror}") from None
    except UnicodeDecodeError:
        raise CompetitionError(f"{path}: is not UTF-8 text") from None
    return parse_competition(text, str(path))


def parse_competition(text: str, source: str) -> Competition:
    """The Competition of a text; `source` is its name in messages. Raises CompetitionError naming the line."""
    keys = parse_document(text, source, CompetitionError).mapping(
        allowed=("name", "deadline", "description", "problems"), required=("name", "deadline", "problems")
    )
    deadline = _deadline(keys["deadline"])
    problems: dict[str, CompetitionProblem] = {}
    for node in keys["problems"].items():
        problem = _problem(node, deadline)
        if problem.name in problems:
            node.fail(f"a second problem named {problem.name!r}; names are leaderboards, so they must differ")
        problems[problem.name] = problem
    description = keys["description"].text() if "description" in keys else ""
    return Competition(keys["name"].text(), deadline, description, tuple(problems.values()))


def _problem(node: Node, deadline: datetime) -> CompetitionProblem:
    keys = node.mapping(allowed=("directory", "name", "deadline", "gpus"), required=("directory", "name"))
    directory = keys["directory"].text()
    if PurePosixPath(directory).is_absolute():
        keys["directory"].fail(f"must be relative to the competition's file, not {directory!r}")
    return CompetitionProblem(
        name=keys["name"].text(),
        directory=directory,
        deadline=_deadline(keys["deadline"]) if "deadline" in keys else deadline,
        gpus=tuple(gpu.text() for gpu in keys["gpus"].items()) if "gpus" in keys else (),
    )


def _deadline(node: Node) -> datetime:
    text = str(node.value) if isinstance(node.value, date) else node.text()  # YAML reads unquoted dates itself
    for form in _DEADLINE_FORMATS:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    node.fail(f"must be a UTC time `YYYY-MM-DD` or `YYYY-MM-DD HH:MM`, not {text!r}")
