"""Rules of measurement: how a call is made cold, when sampling stops, when contents are renewed. docs/policies.md."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from harness.defences import Defences
from harness.errors import PolicyRefused
from harness.result import Device
from harness.stats import mean_std_err, relative_width
from harness.timing import RANDN_BYTES, Cold

GIB = 1 << 30
SECOND_NS = 1_000_000_000
OFFICIAL_MEMORY_BYTES = 70 * GIB  # the 62.5 GiB of the cache clear beside inputs and workspaces
DEFAULT_BUDGET_S = {"benchmark": 5.0, "leaderboard": 8.0}
SEED_STEP = 13  # official: seed += 13 before each sample of leaderboard mode


@dataclass(frozen=True)
class Spent:
    """What the samples of one case have cost so far."""

    kernel_ns: int
    wall_ns: int


class StopRule(Protocol):
    """When enough samples have been taken. Pure: the same samples and costs always give the same answer."""

    def done(self, samples_ns: Sequence[int], spent: Spent) -> bool:
        """Whether to stop; asked after every sample."""
        ...

    def left_ns(self, spent: Spent) -> int:
        """Wall time that further samples may take at most."""
        ...


@dataclass(frozen=True)
class IntervalNarrow:
    """Stop once the median's 95 % interval is narrow, or the budget of wall time is spent."""

    budget_ns: int
    max_relative_width: float = 0.005
    min_samples: int = 20
    max_samples: int = 1000

    def done(self, samples_ns: Sequence[int], spent: Spent) -> bool:
        runs = len(samples_ns)
        if runs >= self.max_samples or (spent.wall_ns >= self.budget_ns and runs >= 2):
            return True
        # Resampling costs more than a sample: look at every tenth, then ever more rarely.
        due = runs >= self.min_samples and runs % max(10, runs // 10) == 0
        return due and relative_width(samples_ns) <= self.max_relative_width

    def left_ns(self, spent: Spent) -> int:
        return max(0, self.budget_ns - spent.wall_ns)


@dataclass(frozen=True)
class ErrorSmall:
    """The official rule: from the third sample on, stop when err/mean < 0.1 % or a time limit is reached."""

    max_samples: int
    max_kernel_ns: int
    max_wall_ns: int = 120 * SECOND_NS
    max_relative_err: float = 0.001
    first_look: int = 3

    def done(self, samples_ns: Sequence[int], spent: Spent) -> bool:
        if len(samples_ns) >= self.max_samples:
            return True
        if len(samples_ns) < self.first_look:
            return False
        mean, _, err = mean_std_err(samples_ns)
        return err < self.max_relative_err * mean or spent.kernel_ns > self.max_kernel_ns or spent.wall_ns > self.max_wall_ns

    def left_ns(self, spent: Spent) -> int:
        return max(0, self.max_wall_ns - spent.wall_ns)


@dataclass(frozen=True)
class AfterCalls:
    """Stop after a number of calls, or once they have taken `max_wall_ns`; at least one is made."""

    calls: int
    max_wall_ns: int

    def done(self, samples_ns: Sequence[int], spent: Spent) -> bool:
        return len(samples_ns) >= self.calls or spent.wall_ns >= self.max_wall_ns

    def left_ns(self, spent: Spent) -> int:
        return max(0, self.max_wall_ns - spent.wall_ns)


@dataclass(frozen=True)
class Policy:
    """One set of rules."""

    name: str
    statistic: Literal["median", "mean"]  # the figure that is scored
    cold: Cold
    hides_launch: bool  # hold the device until the call is queued, so that host latency is not timed
    stop: StopRule
    warmup: StopRule | None  # per case, samples not counted
    first_case_warmup: StopRule | None  # once, on the first case, samples not counted
    fresh: Literal["never", "each"] = "never"  # new contents for each sample
    judged: Literal["ends", "each"] = "ends"  # the outputs of the first and the last call, or of every sample
    strict: bool = True  # judged outputs get the strict verdict too
    foreseeable: bool = False  # fresh contents come from the next seed of a sequence, not from one drawn at random
    bursts: bool = False  # after the samples calls in a row are made, which bound them by the referee's own clock
    pool: int = 1  # sets of input buffers, visited in random order
    alike: bool = False  # first call, warm-ups and samples are made in the same way, warm-ups in random number


def robust(mode: str, device: Device, budget_s: float | None = None) -> Policy:
    """Cold by reading, launch latency hidden, scored by the median."""
    budget_ns = round((budget_s or DEFAULT_BUDGET_S.get(mode, 5.0)) * SECOND_NS)
    return Policy(
        name="robust",
        statistic="median",
        cold=cold_read(device),
        hides_launch=device.kind != "cpu",
        stop=IntervalNarrow(budget_ns),
        warmup=AfterCalls(calls=4, max_wall_ns=budget_ns // 5),
        first_case_warmup=None,
        fresh="each",
        judged="each",
        bursts=True,
        pool=2,
        alike=True,
    )


def weakened(policy: Policy, defences: Defences) -> Policy:
    """The policy without what switched-off defences stand for; the policy itself if all are on."""
    return replace(
        policy,
        fresh=policy.fresh if defences.fresh_inputs else "never",
        pool=policy.pool if defences.fresh_inputs else 1,
        judged=policy.judged if defences.check_every_call else "ends",
        strict=policy.strict and defences.strict_verdict,
        foreseeable=policy.foreseeable or not defences.drawn_contents,
        alike=policy.alike and defences.one_code_path,
        bursts=policy.bursts and defences.referee_clock and defences.fresh_inputs,
        cold=policy.cold if defences.cold_caches else Cold("none"),
    )


def official(mode: str, device: Device) -> Policy:
    """The AMD 2026-02 rules. Raises PolicyRefused where the device cannot hold its cache clear."""
    memory_bytes = 0 if device.kind == "cpu" else device.memory_bytes or 0
    if memory_bytes < OFFICIAL_MEMORY_BYTES:
        has = f"{device.name} has {memory_bytes / GIB:.0f} GiB" if memory_bytes else f"{device.name} is not a GPU"
        raise PolicyRefused(
            f"the official policy clears the cache with {RANDN_BYTES / GIB:.1f} GiB of random numbers and needs a device with "
            f"{OFFICIAL_MEMORY_BYTES // GIB} GiB; {has}; use --policy robust"
        )
    return _official_rules(mode, Cold("randn", RANDN_BYTES), hides_launch=True)


def popcorn(mode: str, device: Device) -> Policy:
    """The official rules wherever eval.py is started by a runner; on a smaller device the cache is cleared by reading."""
    try:
        return official(mode, device)
    except PolicyRefused:
        return _official_rules(mode, cold_read(device), hides_launch=device.kind != "cpu")


def _official_rules(mode: str, cold: Cold, hides_launch: bool) -> Policy:
    """hides_launch: on a GPU the public evaluator's clear is still running while the call is queued."""
    ranked = mode == "leaderboard"
    return Policy(
        name="official",
        statistic="mean",
        cold=cold,
        hides_launch=hides_launch,
        stop=ErrorSmall(100, 30 * SECOND_NS) if ranked else ErrorSmall(1000, 50 * SECOND_NS),
        warmup=None,
        first_case_warmup=ErrorSmall(100, SECOND_NS // 100 if ranked else SECOND_NS // 10),
        fresh="each" if ranked else "never",
        foreseeable=True,
        judged="each" if ranked else "ends",
    )


def cold_read(device: Device) -> Cold:
    """Reading several times the last-level cache: at least 256 MiB on a GPU, 64 MiB on a CPU."""
    cache_bytes = device.last_level_cache_bytes or 0
    if device.kind == "cpu":
        return Cold("read", max(64 << 20, 2 * cache_bytes))
    return Cold("read", max(256 << 20, 4 * cache_bytes))
