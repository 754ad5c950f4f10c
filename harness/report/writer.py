"""Files that follow an evaluation."""

from collections.abc import Callable
from pathlib import Path

from harness.errors import UsageError
from harness.files import replace_file
from harness.observer import Progress
from harness.result import Result


class FileWriter:
    """An Observer that keeps a view of the Result in a file: from the beginning, after every case, and at the end.

    Each time the file is replaced whole, so that neither a crash nor a reader half-way sees a part of it. `option` names
    the command line's option in messages. Raises UsageError if the file cannot be written.
    """

    def __init__(self, option: str, path: Path, render: Callable[[Result], str]):
        self._option, self._path, self._render = option, path, render

    def started(self, result: Result) -> None:
        self.write(result)

    def progress(self, progress: Progress) -> None:
        pass

    def case_done(self, result: Result) -> None:
        self.write(result)

    def finished(self, result: Result) -> None:
        self.write(result)

    def write(self, result: Result) -> None:
        """Replace the file by the view of `result`."""
        try:
            replace_file(self._path, self._render(result))
        except OSError as error:
            raise UsageError(f"{self._option} {self._path}: cannot be written: {error.strerror}") from None
