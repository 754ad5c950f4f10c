"""What every harness test may rely on."""

import os

import pytest


@pytest.fixture(autouse=True)
def _environment_restored():
    """`--device cpu` hides the GPUs from the process: the next test shall see them again."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
