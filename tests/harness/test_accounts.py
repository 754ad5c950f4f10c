"""Processor time that the kernel counts against what a worker reports."""

import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import accounts
from harness.accounts import (
    CALL_OVERHEAD_NS,
    EMPTYING_NS,
    MIN_CALLS,
    QUIET_NS,
    Ledger,
    Used,
    hidden_launch_ns,
    run_delay_ns,
    worked_ahead_ns,
)
from harness.family import family

MS = 1_000_000


def ledger(calls, reported_ns, used_ns, cores=2, wall_ns=None, waited_ns=0, idle_ns=0, nbytes=0):
    made = Ledger(idle_ns, cores=cores)
    for _ in range(calls):
        made.enter(reported_ns, reported_ns if wall_ns is None else wall_ns, waited_ns, used_ns, nbytes)
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


@given(st.integers(0, 10**10), st.integers(0, 10**9), st.integers(1, 50), st.integers(0, 2 * MS), st.integers(0, 10**9))
def test_an_honest_wait_never_contradicts(elapsed_ns, idle_ns, calls, more_ns, waited_ns):
    """The wait holds the call, what any answer takes, a little more, and what a busy machine keeps both waiting."""
    wall_ns = elapsed_ns + idle_ns + more_ns + waited_ns
    assert not ledger(calls, elapsed_ns, None, wall_ns=wall_ns, waited_ns=waited_ns, idle_ns=idle_ns).contradiction()


def test_a_wait_that_is_much_longer_than_the_call_contradicts():
    made = Ledger(2 * MS)
    for _ in range(9):
        made.enter(1 * MS, 40 * MS, 0, None, 0)
    assert made.bound_ns == 38 * MS
    assert "kept the referee waiting for 38000 us" in made.contradiction()


@pytest.mark.parametrize(
    ("reported_us", "wall_us", "nbytes"),
    [(10, 1920, 65_536), (76, 3343, 1 << 20), (47, 6333, 1 << 22), (268, 6889, 1 << 22)],
)
def test_what_calls_took_on_a_gpu_is_no_contradiction(reported_us, wall_us, nbytes):
    """Answers seen on an H200: the device is held, emptied, and the output copied to the host besides the call."""
    made = Ledger(on_device=True)
    for _ in range(9):
        made.enter(reported_us * 1000, wall_us * 1000, 0, None, nbytes)
    assert not made.contradiction()
    hidden = Ledger(on_device=True)
    for _ in range(9):
        hidden.enter(reported_us * 1000, (wall_us + 20_000) * 1000, 0, None, nbytes)
    assert "kept the referee waiting" in hidden.contradiction()


def test_delays_of_a_minority_prove_nothing():
    made = Ledger()
    for wall_ns in (10 * MS, 10 * MS, 900 * MS):
        made.enter(10 * MS, wall_ns, 0, None, 0)
    assert not made.contradiction()


def test_a_burst_shows_what_single_calls_are_too_short_for():
    made = ledger(20, MS // 100, None, wall_ns=MS)
    assert not made.contradiction()
    calls = made.burst_calls
    made.enter_burst(calls, calls * MS, 0)
    assert calls == accounts.MAX_BURST_CALLS
    assert "took 1000 us for each of several in a row" in made.contradiction()


def test_the_fastest_burst_counts():
    made = ledger(20, MS, None)
    made.enter_burst(10, 900 * MS, 0)
    assert made.contradiction()
    assert made.burst_calls == 10
    made.enter_burst(10, 12 * MS, 0)
    assert not made.contradiction()
    assert made.burst_calls == 0


def test_bursts_end():
    made = ledger(20, MS, None)
    for _ in range(accounts.MAX_BURSTS):
        assert made.burst_calls
        made.enter_burst(10, 900 * MS, 0)
    assert not made.burst_calls


def test_long_calls_need_no_burst():
    assert not ledger(5, 20 * MS, None).burst_calls


def test_a_device_is_asked_for_fewer_calls_each_of_which_needs_a_plan():
    made = Ledger(on_device=True)
    for _ in range(5):
        made.enter(MS // 100, MS, 0, None, 0)
    assert made.burst_calls == accounts.MAX_DEVICE_BURST_CALLS
    made.enter_burst(16, 16 * MS, 0)
    assert "took 1000 us" in made.contradiction()


@pytest.mark.parametrize(("nbytes", "storages", "extra_ns"), [(0, 1, 0), (100 << 20, 1, 3 * MS), (0, 100, 5 * MS)])
def test_outputs_that_a_device_delivers_take_time_too(nbytes, storages, extra_ns):
    made = Ledger(on_device=True)
    for _ in range(5):
        made.enter(MS // 5, MS, 0, None, nbytes)
    made.enter_burst(16, 16 * (MS + 2 * extra_ns), 0, storages)
    assert "in a row" in made.contradiction()
    made.enter_burst(16, 16 * (MS // 2 + extra_ns), 0, storages)
    assert not made.contradiction()


def test_a_burst_of_few_calls_is_allowed_more_for_each():
    made = ledger(5, MS // 10, None)
    made.enter_burst(2, 2 * MS, 0)
    assert not made.contradiction()
    made = ledger(5, MS // 10, None)
    made.enter_burst(32, 32 * MS, 0)
    assert "in a row" in made.contradiction()


def test_launch_latency_that_is_hidden_shows_in_bursts():
    made = Ledger()
    for _ in range(5):
        made.enter(MS // 10, MS, 0, None, 0, hidden_ns=5 * MS)
    made.enter_burst(32, 32 * 5 * MS, 0)
    assert not made.contradiction()


@given(*[st.integers(0, 10**8)] * 3, st.integers(0, 2 * 10**7), st.integers(0, EMPTYING_NS))
def test_what_a_hold_can_hide(before_ns, device_ns, after_ns, hold_ns, emptying_ns):
    """A call that works on the host, waits for its device or not, and works on the host again: however long the device was
    held, what its time lacks is no more than is said to be hidden."""
    released_ns = hold_ns + emptying_ns
    for waits in (False, True):
        host_ns = (max(before_ns, released_ns) if waits else before_ns) + after_ns
        elapsed_ns = max(host_ns, released_ns + device_ns) - released_ns
        alone_ns = max(before_ns + after_ns, device_ns)
        assert alone_ns <= elapsed_ns + hidden_launch_ns(host_ns, hold_ns)


def test_a_call_that_was_held_briefly_shows_that_a_long_launch_was_none():
    """Who waits for the device seems to need for its launch what the device was held, and that grows with it."""
    made = Ledger(on_device=True)
    for _ in range(9):
        made.enter(MS // 100, 2 * MS, 0, None, 0, hidden_ns=20 * MS)
    made.enter_burst(32, 32 * 2 * MS, 0)
    assert not made.contradiction()
    made.warm_ns.append(MS // 100 + hidden_launch_ns(2 * MS, MS // 20))
    assert "took 2000 us for each of several in a row" in made.contradiction()


@given(st.integers(1, 10**8), st.integers(0, 10**8), st.integers(0, 10**9))
def test_honest_bursts_never_contradict(elapsed_ns, idle_ns, waited_ns):
    made = ledger(9, elapsed_ns, None, wall_ns=elapsed_ns + idle_ns, idle_ns=idle_ns)
    if calls := made.burst_calls:
        made.enter_burst(calls, calls * elapsed_ns + idle_ns + waited_ns, waited_ns)
    assert not made.contradiction()


def test_large_outputs_take_long_to_come():
    assert not ledger(5, MS, None, wall_ns=101 * MS, nbytes=100_000_000).contradiction()
    assert ledger(5, MS, None, wall_ns=101 * MS).contradiction()


def test_work_at_rest_counts_beyond_a_little():
    assert worked_ahead_ns(QUIET_NS) == 0
    assert worked_ahead_ns(5 * MS + QUIET_NS) == accounts.AHEAD_CHARGE * 5 * MS > 5 * MS


def test_another_process_is_accounted_for():
    code = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        used = Used.by(busy.pid, busy.pid)
        assert 200 * MS <= used.since(Used()) < 60_000 * MS
        busy.kill()
    assert Used.by(busy.pid, busy.pid) == Used()
    assert Used().since(used) == 0


FAMILY = """
import os, sys, time
reading, writing = os.pipe()
if not os.fork():
    if not os.fork():
        while time.process_time() < 0.2: pass
        os.write(writing, b"x")
        time.sleep(60)
    {middle}
os.read(reading, 1)
print(flush=True)
input()
"""


@pytest.mark.parametrize("middle", ["time.sleep(60)", "while time.process_time() < 0.1: pass\n    os.wait()"])
def test_descendants_are_accounted_for(middle):
    command = [sys.executable, "-c", FAMILY.format(middle=middle)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        members = family(parent.pid)
        used_ns = Used.by(parent.pid, parent.pid).since(Used())
        for pid in members:
            os.kill(pid, signal.SIGKILL)
    assert len(members) == 3
    assert 200 * MS <= used_ns < 60_000 * MS


def test_children_that_have_ended_are_accounted_for():
    code = "import subprocess, sys\n"
    code += "subprocess.run([sys.executable, '-c', 'import time\\nwhile time.process_time() < 0.2: pass'])\n"
    code += "print(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        assert Used.by(parent.pid, parent.pid).since(Used()) >= 190 * MS
        parent.kill()


def test_waiting_for_a_processor_is_known_or_none():
    assert run_delay_ns("thread-self") >= 0
    assert run_delay_ns(1 << 27) == 0


def test_waiting_for_what_a_process_started_itself_does_not_count():
    """Else its first thread would wait, on one processor, for another one that does the work."""
    code = "import threading, time\n"
    code += "def work():\n    while time.thread_time() < 0.2: pass\n"
    code += "worker = threading.Thread(target=work)\nworker.start()\nworker.join()\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        used_ns = Used.by(process.pid, process.pid).others_since(Used())
        process.kill()
    assert used_ns >= 190 * MS


def test_this_process_has_used_some():
    assert Used.by(os.getpid(), os.getpid()).since(Used())


A, B, C = 1, 2, 3


@pytest.mark.parametrize(
    ("before", "now", "used_ms"),
    [
        ({A: (10, 0)}, {A: (13, 0)}, 3),
        ({A: (10, 0)}, {A: (13, 0), B: (4, 0)}, 7),  # a child was born
        ({A: (10, 0), B: (60, 0)}, {A: (13, 0)}, 3),  # it ended, and nobody waits for it: nothing is taken back
        ({A: (10, 0), B: (9, 0), C: (9, 0)}, {A: (13, 0), B: (9, 0)}, 3),  # its parent's count of ticks is still none
        ({A: (10, 0), B: (60, 0)}, {A: (13, 70)}, 13),  # it has used ten more before it ended
        ({A: (10, 500), B: (60, 0)}, {A: (13, 560)}, 3),
        ({A: (10, 0), B: (1, 60)}, {A: (13, 61)}, 3),  # a child's children are counted with it
        ({A: (10, 0), B: (60, 0)}, {A: (13, 0), B: (2, 0)}, 5),  # its number is another one's
        ({A: (10, 0)}, {}, 0),
    ],
)
def test_who_ends_takes_nothing_along(before, now, used_ms):
    def used(processes):
        return Used({pid: (own * MS, ended * MS) for pid, (own, ended) in processes.items()})

    assert used(now).since(used(before)) == used_ms * MS


@pytest.mark.parametrize(("first_ms", "others_ms"), [(0, 3), (2, 1), (3, 0), (9, 0)])
def test_what_others_used(first_ms, others_ms):
    before, now = Used({A: (10 * MS, 0)}, 5 * MS), Used({A: (13 * MS, 0)}, (5 + first_ms) * MS)
    assert now.others_since(before) == others_ms * MS
