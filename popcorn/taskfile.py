"""task.yml: what a problem folder says about its files, its cases and its ranking."""

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from popcorn.cases import Case, CaseError
from popcorn.document import Node, parse_document
from popcorn.errors import PopcornError

SUBMISSION = "@SUBMISSION@"
LANGUAGES = ("py", "cu")
RANKINGS = ("last", "mean", "geom")
TEMPLATE_KINDS = ("CUDA", "Python", "Triton", "HIP", "CuteDSL")
DEFAULT_TIMEOUT_S = 180

_REQUIRED = ("files", "lang", "description", "config")
_OPTIONAL = (
    "tests", "benchmarks", "test_timeout", "benchmark_timeout", "ranked_timeout", "ranking_by", "libraries", "seed",
    "multi_gpu", "gpus", "templates", "validation",
)  # fmt: skip
# `config` of a lang: cu task: what the runner hands to nvcc.
_CUDA_CONFIG = ("sources", "include_dirs", "defines", "compile_flags")


class TaskFileError(PopcornError):
    """A task.yml is missing or malformed; the message names file, line, key and what is allowed."""


@dataclass(frozen=True)
class TaskFile:
    """A task.yml. Paths are as written: relative to the folder of the file.

    `validation` (a public server's own long check after a ranked run) is read past: nothing here runs it.
    """

    files: dict[str, str]  # flat file name -> relative path, or SUBMISSION
    lang: str  # one of LANGUAGES
    description: str
    main: str | None  # the script a runner starts; None when lang is cu
    tests: tuple[Case, ...] = ()
    benchmarks: tuple[Case, ...] = ()
    test_timeout_s: int = DEFAULT_TIMEOUT_S
    benchmark_timeout_s: int = DEFAULT_TIMEOUT_S
    ranked_timeout_s: int = DEFAULT_TIMEOUT_S
    ranking_by: str = "last"  # one of RANKINGS
    libraries: tuple[str, ...] = ()
    seed: int | None = None
    multi_gpu: bool = False
    gpus: tuple[str, ...] = ()
    templates: dict[str, str] = field(default_factory=dict)  # one of TEMPLATE_KINDS -> relative path

    def cases(self, mode: str) -> tuple[Case, ...]:
        """The cases that a runner hands to eval.py in `mode`: of a task ranked by `last`, only the last benchmark."""
        if mode == "test":
            return self.tests
        return self.benchmarks[-1:] if self.ranking_by == "last" else self.benchmarks

    def timeout_s(self, mode: str) -> int:
        """The seconds that a runner grants to all cases of `mode` together."""
        return {"test": self.test_timeout_s, "leaderboard": self.ranked_timeout_s}.get(mode, self.benchmark_timeout_s)


def load_task_file(path: Path) -> TaskFile:
    """The task.yml at `path`. Raises TaskFileError naming the line, also for a file that cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as fault:
        raise TaskFileError(f"{path}: cannot be read: {fault.strerror}") from None
    except UnicodeDecodeError:
        raise TaskFileError(f"{path}: is not UTF-8 text") from None
    return parse_task_file(text, str(path))


def parse_task_file(text: str, source: str) -> TaskFile:
    """The TaskFile of a text; `source` is its name in messages. Raises TaskFileError naming the line."""
    document = parse_document(text, source, TaskFileError)
    keys = document.mapping(allowed=(*_REQUIRED, *_OPTIONAL), required=_REQUIRED)
    lang = keys["lang"].one_of(LANGUAGES)
    files = _files(keys["files"])
    multi_gpu = "multi_gpu" in keys and keys["multi_gpu"].flag()
    return TaskFile(
        files=files,
        lang=lang,
        description=keys["description"].text(),
        main=_main(keys["config"], lang, files),
        multi_gpu=multi_gpu,
        **_optional(keys, multi_gpu),
    )


# The readers of the optional keys that need nothing but themselves: key -> (field, reader).
_READERS = MappingProxyType({
    "test_timeout": ("test_timeout_s", lambda node: node.integer(minimum=1)),
    "benchmark_timeout": ("benchmark_timeout_s", lambda node: node.integer(minimum=1)),
    "ranked_timeout": ("ranked_timeout_s", lambda node: node.integer(minimum=1)),
    "ranking_by": ("ranking_by", lambda node: node.one_of(RANKINGS)),
    "libraries": ("libraries", lambda node: tuple(item.text() for item in node.items())),
    "gpus": ("gpus", lambda node: tuple(item.text() for item in node.items())),
    "seed": ("seed", lambda node: None if node.value is None else node.integer()),
    "templates": ("templates", lambda node: _templates(node)),
})


def _optional(keys: dict[str, Node], multi_gpu: bool) -> dict:
    fields = {name: read(keys[key]) for key, (name, read) in _READERS.items() if key in keys}
    for name in ("tests", "benchmarks"):
        if name in keys:
            fields[name] = tuple(_case(node, multi_gpu) for node in keys[name].items())
    if "validation" in keys:
        keys["validation"].mapping()
    return fields


def _files(node: Node) -> dict[str, str]:
    files: dict[str, str] = {}
    for item in node.items():
        entry = item.mapping(allowed=("name", "source"), required=("name", "source"))
        name = _flat_name(entry["name"])
        if name in files:
            entry["name"].fail(f"the file {name!r} is listed twice; keep one")
        files[name] = _source(entry["source"])
    if SUBMISSION not in files.values():
        node.fail(f"no file has the source {SUBMISSION}; one must, it is where the submission goes")
    return files


def _flat_name(node: Node) -> str:
    name = node.text()
    if name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
        node.fail(f"must be a plain file name, not {name!r}: files are laid flat into one folder")
    return name


def _source(node: Node) -> str:
    source = node.text()
    if source != SUBMISSION and PurePosixPath(source).is_absolute():
        node.fail(f"must be {SUBMISSION} or a path relative to task.yml, not {source!r}")
    return source


def _main(node: Node, lang: str, files: dict[str, str]) -> str | None:
    if lang == "cu":
        for entry in node.mapping(allowed=_CUDA_CONFIG, required=("sources",)).values():
            entry.mapping() if entry.path.endswith("defines") else entry.items()
        return None
    main = node.mapping(allowed=("main",), required=("main",))["main"]
    if main.text() not in files:
        main.fail(f"{main.value!r} is not among `files`; those are {', '.join(files)}")
    return main.value


def _templates(node: Node) -> dict[str, str]:
    return {kind: _source(path) for kind, path in node.mapping(allowed=TEMPLATE_KINDS).items()}


def _case(node: Node, multi_gpu: bool) -> Case:
    spec = node.mapping()
    if not spec:
        node.fail("a case must have at least one key")
    if multi_gpu and "world_size" not in spec:
        node.fail("a multi_gpu task needs world_size in every case")
    for entry in spec.values():
        if not isinstance(entry.value, int | str):  # a bool is an int
            entry.fail(f"a case's value must be an integer, a word or a boolean, not {entry.kind}")
    try:
        return Case.from_spec({key: entry.value for key, entry in spec.items()}, node.place)
    except CaseError as fault:
        raise TaskFileError(str(fault)) from None
