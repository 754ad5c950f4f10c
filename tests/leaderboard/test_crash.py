"""SIGKILL at random moments, to the server and to its runners: every accepted submission ends with its true status."""

import pytest

from scripts.leaderboard_crash import crash_test


def test_two_kills(tmp_path):
    tally, faults = crash_test(kills=2, seed=5, folder=tmp_path)
    assert faults == []
    assert tally.accepted


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_twenty_kills(tmp_path, seed):
    tally, faults = crash_test(kills=20, seed=seed, folder=tmp_path)
    assert faults == []
    assert tally.accepted
