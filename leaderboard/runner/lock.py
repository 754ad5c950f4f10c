"""One evaluation at a time on a device, whichever runner of this machine it is for."""

import contextlib
import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from leaderboard.errors import Conflict


class DeviceHeld(Conflict):
    """Another runner's job is on the device."""


@contextlib.contextmanager
def exclusive(key: str) -> Iterator[None]:
    """Hold the device of this machine called `key`. Raises DeviceHeld while another runner's job holds it."""
    path = Path(tempfile.gettempdir(), f"kernelproof-device-{re.sub('[^A-Za-z0-9-]', '', key)}.lock")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DeviceHeld(f"another runner on this machine evaluates on the device {key}") from None
        yield
    finally:
        os.close(fd)
