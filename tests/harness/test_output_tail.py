"""What a worker printed can be asked for at any moment, also while its pipe is being closed."""

import errno
import os
import select
import threading

import pytest

from harness.process import _OutputTail


@pytest.mark.parametrize("error", [OSError(errno.EBADF, os.strerror(errno.EBADF)), ValueError("I/O operation on closed file")])
def test_a_pipe_that_closes_in_between(monkeypatch, error):
    reading, writing = os.pipe()
    tail = _OutputTail(os.fdopen(reading, "rb"))
    with monkeypatch.context() as patched:

        def closed(*arguments):
            if threading.current_thread() is threading.main_thread():  # the draining thread goes on
                raise error
            return real(*arguments)

        real = select.select
        patched.setattr(select, "select", closed)
        assert tail.take() == ""
    os.write(writing, b"last words")
    os.close(writing)
    tail._thread.join(timeout=60)
    assert tail.take() == "last words"
