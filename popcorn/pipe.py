"""The pipe between an evaluator and its runner: `key: value` lines, last one wins, read only after exit by some runners.

What a pipe holds unread is 64 KiB on Linux; an evaluator that writes more waits for ever on a runner that waits for it.
So the lines that carry the result are counted before the first is written, and free text shares what they leave.
The kernel keeps a pipe as pages and starts a new one whenever a write does not fit into the last, so that lines of 2.1 KB
would fill it by half: writes are split where a page ends.
"""

import base64
import fcntl
import mmap
import os

CAPACITY_BYTES = 64 * 1024 - 1
_CUT = " [... cut]"


class PipeError(OSError):
    """The runner's pipe cannot be written to."""


class PipeWriter:
    """Writes to the pipe `fd`; no more than CAPACITY_BYTES as long as `log` stays within `reserved_bytes`.

    Raises PipeError, here and in every method, if the descriptor cannot be written to.

    texts: how many free texts may come; each is cut to an equal share of what is left for text.
    """

    def __init__(self, fd: int, reserved_bytes: int, texts: int):
        try:
            os.set_inheritable(fd, False)
            self._file = os.fdopen(fd, "wb", buffering=0)
        except OSError as fault:
            raise PipeError(f"file descriptor {fd} cannot be written to: {fault.strerror}") from None
        self._free_bytes = max(0, _capacity(fd) - reserved_bytes)
        self._page_room = mmap.PAGESIZE
        self._texts = max(1, texts)

    def log(self, key: str, value: object) -> None:
        """A line that carries the result; counted in `reserved_bytes`."""
        self._write(format_line(key, value))

    def log_text(self, key: str, text: str) -> None:
        """A line of free text, cut to its share."""
        room = self._share() - len(format_line(key, ""))
        self._write_text(format_line(key, _cut(_on_one_line(text), room)))

    def log_report(self, key: str, text: str) -> None:
        """A text of many lines in the pipe's base64, cut to its share before it is encoded."""
        room = (self._share() - len(format_line(key, ""))) // 4 * 3
        encoded = base64.b64encode(_cut(text, room).encode(), b"+*").decode("ascii")
        self._write_text(format_line(key, encoded))

    def close(self) -> None:
        """No more lines; the runner sees the end of the pipe."""
        self._file.close()

    def _share(self) -> int:
        return self._free_bytes // self._texts

    def _write_text(self, line: bytes) -> None:
        self._free_bytes -= len(line)
        self._texts = max(1, self._texts - 1)
        self._write(line)

    def _write(self, line: bytes) -> None:
        rest = line
        while rest:
            try:
                written = self._file.write(rest[: self._page_room])
            except OSError as fault:
                raise PipeError(f"the runner's pipe is closed: {fault.strerror}") from None
            if not written:
                raise PipeError("the runner's pipe is full and does not block; some lines are lost")
            self._page_room = self._page_room - written or mmap.PAGESIZE
            rest = rest[written:]


def _capacity(fd: int) -> int:
    """What a descriptor takes unread; users with many pipes get smaller ones, and a runner may pass a plain file."""
    try:
        return min(CAPACITY_BYTES, fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ))
    except OSError:
        return CAPACITY_BYTES


def format_line(key: str, value: object) -> bytes:
    """One line of the pipe."""
    return f"{key}: {_on_one_line(str(value))}\n".encode(errors="replace")


def parse_lines(content: bytes) -> dict[str, str]:
    """What a runner reads from a pipe: everything before the first colon of a line, and what follows."""
    pairs = (line.partition(":") for line in content.decode(errors="replace").splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs if key or value}


def _on_one_line(text: str) -> str:
    """Line breaks as the two characters `\\n`: a text must not forge keys."""
    return "\\n".join(text.splitlines())


def _cut(text: str, room_bytes: int) -> str:
    data = text.encode(errors="replace")
    if len(data) <= room_bytes:
        return text
    return data[: max(0, room_bytes - len(_CUT))].decode(errors="ignore") + _CUT[: max(0, room_bytes)]
