"""Threads of an honest submission that have nothing to do use no processor time: it would look like work for the next call."""

import os
import subprocess
import sys

import pytest

from harness.defences import Defences
from harness.process import worker_environment

MS = 1_000_000
AFTER_A_PARALLEL_REGION = """
import time, torch
a = torch.randn(16, 256, 256)
used_ns = []
for _ in range(5):
    torch.bmm(a, a)
    before_ns = time.process_time_ns()
    time.sleep(0.05)
    used_ns.append(time.process_time_ns() - before_ns)
print(sorted(used_ns)[2])
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core has no other threads")
def test_threads_sleep_after_a_parallel_region(tmp_path):
    environment = worker_environment(os.environ, tmp_path, "auto", tmp_path, Defences())
    command = [sys.executable, "-c", AFTER_A_PARALLEL_REGION]
    used_ns = int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert used_ns < MS  # spinning threads use about 7 ms each
