"""`#!POPCORN` directives: which leaderboard and GPU a submission is for, said in its first comment block."""

from dataclasses import dataclass

from popcorn.errors import PopcornError

_MARKS = ("#!POPCORN", "//!POPCORN")
_KNOWN = {"leaderboard": "leaderboard", "gpu": "gpu", "gpus": "gpu"}


class DirectiveError(PopcornError):
    """A directive is unknown, repeated or has the wrong number of values; `line` counts from 1."""

    def __init__(self, source: str, line: int, message: str):
        super().__init__(f"{source}, line {line}: {message}")
        self.line = line


@dataclass(frozen=True)
class Directives:
    """What the first comment block says; None where it says nothing."""

    leaderboard: str | None = None
    gpu: str | None = None


def parse_directives(code: str, source: str = "submission.py") -> Directives:
    """The directives of a submission. The block ends at the first line that does not start with `#` or `//`, blank ones too.

    Raises DirectiveError naming the line.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(code.splitlines(), start=1):
        if not line.startswith(("#", "//")):
            break
        words = line.split()
        if words[0] in _MARKS:
            name, value = _parse(words, source, number)
            if name in found:
                raise DirectiveError(source, number, f"a second {name} directive; keep one")
            found[name] = value
    return Directives(**found)


def _parse(words: list[str], source: str, line: int) -> tuple[str, str]:
    name = _KNOWN.get(words[1].lower()) if len(words) > 1 else None
    if name is None:
        shown = words[1] if len(words) > 1 else "nothing"
        raise DirectiveError(source, line, f"{shown!r} is not a directive; known are `leaderboard NAME` and `gpu NAME`")
    if len(words) != 3:
        raise DirectiveError(source, line, f"the {name} directive takes one name, not {len(words) - 2}")
    return name, words[2]
