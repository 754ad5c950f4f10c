"""What every harness test may rely on."""

import os
import signal

import pytest

# A shell starts background jobs, and some runners everything, with Ctrl-C ignored; what the tests start inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _environment_restored():
    """`--device cpu` hides the GPUs from the process: the next test shall see them again."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
