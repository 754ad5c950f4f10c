"""When sampling stops, by hand-computed examples; which rules a machine can follow."""

import pytest

from harness.errors import PolicyRefused
from harness.policies import (
    GIB,
    SECOND_NS,
    AfterCalls,
    ErrorSmall,
    IntervalNarrow,
    Spent,
    official,
    popcorn,
    robust,
)
from harness.result import Device
from harness.timing import Cold

FREE = Spent(0, 0)
CPU = Device("some CPU", "cpu", "x86_64", memory_bytes=16 * GIB, last_level_cache_bytes=32 << 20)
SMALL_GPU = Device("some GPU", "cuda", "sm_89", memory_bytes=24 * GIB, last_level_cache_bytes=96 << 20)
LARGE_GPU = Device("NVIDIA H200", "cuda", "sm_90", memory_bytes=140 * GIB, last_level_cache_bytes=60 << 20)


class TestOfficialRule:
    rule = ErrorSmall(max_samples=100, max_kernel_ns=30 * SECOND_NS)

    def test_looks_from_the_third_sample_on(self):
        assert not self.rule.done([100, 100], FREE)
        assert self.rule.done([100, 100, 100], FREE)

    def test_error_of_the_mean_below_a_thousandth(self):
        # mean 1000, std 1.732, err 1.0: exactly 0.1 % is not below it
        assert not self.rule.done([999, 999, 1002], FREE)
        assert self.rule.done([999, 1000, 1001], FREE)

    def test_time_limits_hold_from_the_third_sample_on(self):
        noisy = [100, 200, 300]
        over = Spent(30 * SECOND_NS + 1, 0), Spent(0, 120 * SECOND_NS + 1)
        assert all(self.rule.done(noisy, spent) for spent in over)
        assert not any(self.rule.done(noisy[:2], spent) for spent in over)
        assert not self.rule.done(noisy, Spent(30 * SECOND_NS, 120 * SECOND_NS))

    def test_number_of_samples(self):
        noisy = [100, 200] * 50
        assert not self.rule.done(noisy[:99], FREE)
        assert self.rule.done(noisy, FREE)


class TestRobustRule:
    rule = IntervalNarrow(budget_ns=10 * SECOND_NS)

    def test_equal_samples_stop_at_the_minimum(self):
        assert not any(self.rule.done([100] * runs, FREE) for runs in range(20))
        assert self.rule.done([100] * 20, FREE)

    def test_noise_goes_on_to_the_maximum(self):
        noisy = [100, 200] * 500
        assert not self.rule.done(noisy[:999], FREE)
        assert self.rule.done(noisy, FREE)

    def test_the_budget_needs_two_samples(self):
        spent = Spent(0, 10 * SECOND_NS)
        assert not self.rule.done([100], spent)
        assert self.rule.done([100, 900], spent)


def test_after_calls_makes_at_least_one():
    rule = AfterCalls(calls=3, max_wall_ns=0)
    assert rule.done([100], Spent(0, 1))
    assert not AfterCalls(3, SECOND_NS).done([100, 100], FREE)
    assert AfterCalls(3, SECOND_NS).done([100] * 3, FREE)


@pytest.mark.parametrize("device", [CPU, SMALL_GPU])
def test_official_is_refused_where_its_clear_does_not_fit(device):
    with pytest.raises(PolicyRefused, match=r"62\.5 GiB.*70 GiB.*--policy robust"):
        official("benchmark", device)


def test_official_figures():
    benchmark, ranked = official("benchmark", LARGE_GPU), official("leaderboard", LARGE_GPU)
    assert benchmark.stop == ErrorSmall(1000, 50 * SECOND_NS, 120 * SECOND_NS, 0.001, 3)
    assert ranked.stop == ErrorSmall(100, 30 * SECOND_NS, 120 * SECOND_NS, 0.001, 3)
    assert benchmark.first_case_warmup == ErrorSmall(100, SECOND_NS // 10)
    assert ranked.first_case_warmup == ErrorSmall(100, SECOND_NS // 100)
    assert (benchmark.fresh, ranked.fresh) == ("never", "each")
    assert (benchmark.judged, ranked.judged) == ("ends", "each")
    assert (benchmark.pool, benchmark.alike, ranked.pool, ranked.alike) == (1, False, 1, False)
    assert (benchmark.statistic, benchmark.cold.method, benchmark.hides_launch) == ("mean", "randn", True)


def test_the_pipe_follows_official_rules_everywhere():
    assert popcorn("benchmark", LARGE_GPU) == official("benchmark", LARGE_GPU)
    small = popcorn("benchmark", SMALL_GPU)
    assert small.stop == official("benchmark", LARGE_GPU).stop
    assert small.cold == Cold("read", 384 << 20)
    assert [popcorn("leaderboard", device).hides_launch for device in (LARGE_GPU, SMALL_GPU, CPU)] == [True, True, False]


@pytest.mark.parametrize(("device", "nbytes"), [(CPU, 64 << 20), (SMALL_GPU, 384 << 20), (LARGE_GPU, 256 << 20)])
def test_cold_reads_exceed_the_cache(device, nbytes):
    policy = robust("benchmark", device)
    assert policy.cold == Cold("read", nbytes)
    assert nbytes >= 2 * device.last_level_cache_bytes
    assert policy.hides_launch is (device is not CPU)
