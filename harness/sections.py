"""Lines of a generated submission as lines of the files it was made of.

A generated file marks where a source file begins with a comment line `# >>> PATH`; the next line is line 1 of PATH.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

MARKER = "# >>> "
_CRASH_FRAME = re.compile(r'  File "(?P<path>[^"]+)", line (?P<line>\d+) in (?P<function>.+)')


@dataclass(frozen=True)
class SectionMap:
    """Where each section of one file begins: (line of the marker, path)."""

    path: Path
    starts: tuple[tuple[int, str], ...]

    @classmethod
    def of_file(cls, path: Path) -> "SectionMap":
        """The sections of the file at `path`."""
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        found = ((number, line.removeprefix(MARKER).strip()) for number, line in enumerate(lines, 1) if line.startswith(MARKER))
        return cls(path, tuple(found))

    def locate(self, name: str, line: int) -> str:
        """`FILE:LINE` of the author's own source for a line of the file `name`."""
        index = bisect_right([start for start, _ in self.starts], line) - 1
        if name != self.path.name or index < 0 or line == self.starts[index][0]:
            return f"{name}:{line}"
        start, path = self.starts[index]
        return f"{path}:{line - start}"

    def shorten_crash(self, printed: str) -> str:
        """What a dead process printed, with faulthandler's dump reduced to the frames in the author's own files."""
        said, mark, dump = printed.partition("Fatal Python error: ")
        if not mark:
            return printed
        frames = [_CRASH_FRAME.fullmatch(line) for line in dump.splitlines()]
        own = [frame for frame in frames if frame and Path(frame["path"]).parent == self.path.parent]
        places = [f"  {self.locate(Path(frame['path']).name, int(frame['line']))}, in {frame['function']}" for frame in own]
        return "\n".join([*said.splitlines(), *reversed(places)])
