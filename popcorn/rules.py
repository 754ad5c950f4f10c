"""What a popcorn server refuses before it runs anything, said before a queue slot is spent."""

from dataclasses import dataclass

from popcorn.directives import DirectiveError, parse_directives

MAX_BYTES = 1_000_000
EXTENSIONS = (".py", ".cu", ".cuh", ".cpp")
# The server answers 500 to any file that holds this word in any case, comments included (kernelbot#374).
BANNED_WORD = "stream"
_LINES_SHOWN = 5


@dataclass(frozen=True)
class Violation:
    """One reason for which the server would refuse a submission."""

    rule: str  # size, extension, encoding, word, directive
    message: str  # what is wrong, the limit, the remedy
    lines: tuple[int, ...] = ()  # where, counted from 1; empty if it is about the whole file


def check_submission(content: bytes, file_name: str) -> list[Violation]:
    """Every reason for which the server would refuse a file of these bytes under this name; none if it is fine."""
    violations = [*_check_extension(file_name), *_check_size(content)]
    try:
        code = content.decode("utf-8")
    except UnicodeDecodeError as fault:
        line = content[: fault.start].count(b"\n") + 1
        message = f"line {line} is not UTF-8 (byte 0x{content[fault.start]:02x}); save the file as UTF-8"
        return [*violations, Violation("encoding", message, (line,))]
    return [*violations, *_check_word(code), *_check_directives(code, file_name)]


def _check_extension(file_name: str) -> list[Violation]:
    if file_name.endswith(EXTENSIONS):
        return []
    return [Violation("extension", f"{file_name!r} must end in {', '.join(EXTENSIONS)}")]


def _check_size(content: bytes) -> list[Violation]:
    if len(content) <= MAX_BYTES:
        return []
    return [Violation("size", f"{len(content):,} bytes; the server takes at most {MAX_BYTES:,}")]


def _check_word(code: str) -> list[Violation]:
    lines = tuple(number for number, line in enumerate(code.split("\n"), start=1) if BANNED_WORD in line.lower())
    if not lines:
        return []
    rest = f" and {len(lines) - _LINES_SHOWN} more" if len(lines) > _LINES_SHOWN else ""
    message = (
        f"the word {BANNED_WORD!r} in line {', '.join(map(str, lines[:_LINES_SHOWN]))}{rest}; the server refuses it in any "
        "case, in comments and longer words too: launch on the default queue (0) and reword the rest, never split the word"
    )
    return [Violation("word", message, lines)]


def _check_directives(code: str, file_name: str) -> list[Violation]:
    try:
        parse_directives(code, file_name)
    except DirectiveError as fault:
        return [Violation("directive", str(fault), (fault.line,))]
    return []
