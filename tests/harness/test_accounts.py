"""Processor time that the kernel counts against what a worker reports."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.accounts import CALL_OVERHEAD_NS, MIN_CALLS, QUIET_NS, Ledger, cpu_time_ns, worked_ahead_ns

MS = 1_000_000


def ledger(calls, reported_ns, used_ns, cores=2):
    made = Ledger(cores)
    for _ in range(calls):
        made.enter(reported_ns, used_ns)
    return made


@given(st.integers(1, 64), st.integers(0, 10**10), st.floats(0, 1), st.integers(1, 50))
def test_honest_times_never_contradict(cores, elapsed_ns, share, calls):
    """A process cannot use more than every core for as long as the call takes, however busy the machine is."""
    used_ns = round(share * cores * elapsed_ns) + CALL_OVERHEAD_NS // 2
    assert not ledger(calls, elapsed_ns, used_ns, cores).contradiction()


@pytest.mark.parametrize("factor", [20, 100, 1000])
def test_a_fraction_of_the_truth_contradicts(factor):
    said = ledger(MIN_CALLS, 20 * MS // factor, 20 * MS).contradiction()
    assert "20000 us of processor time" in said


def test_few_calls_prove_nothing():
    assert not ledger(MIN_CALLS - 1, 1, 1000 * MS).contradiction()


def test_work_at_rest_counts_beyond_a_little():
    assert worked_ahead_ns(QUIET_NS) == 0
    assert worked_ahead_ns(5 * MS + QUIET_NS) == 5 * MS


def test_another_process_is_accounted_for():
    code = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        assert 200 * MS <= (cpu_time_ns(busy.pid) or 0) < 60_000 * MS
        busy.kill()
    assert cpu_time_ns(busy.pid) is None
    assert cpu_time_ns(os.getpid())
