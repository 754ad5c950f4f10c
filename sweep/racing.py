"""Racing: which candidates need no further samples. A pure rule, so that every executor races alike.

After each step a candidate whose interval lies wholly above what the best one can be at worst is dropped (as in F-Race:
Birattari et al., "A racing algorithm for configuring metaheuristics", 2002, with order statistics in place of ranks).
"""

from collections.abc import Mapping, Sequence

from harness.stats import quick_median

SLACK = 1.02  # drift between steps must not drop a candidate that is as good as the best


def losers(samples_ns: Mapping[int, Sequence[int]], best_known_ns: Sequence[int] = ()) -> set[int]:
    """The keys of candidates that are out; `best_known_ns`: samples of the best variant so far, which need not race.

    A candidate with a single sample is judged by it alone: what it costs to be wrong is one candidate.
    """
    intervals = {name: quick_median(samples)[1] for name, samples in samples_ns.items() if samples}
    worst_of_best = [high for _, high in intervals.values()]
    if best_known_ns:
        worst_of_best.append(quick_median(best_known_ns)[1][1])
    if not worst_of_best:
        return set()
    limit_ns = SLACK * min(worst_of_best)
    return {name for name, (low, _) in intervals.items() if low > limit_ns}
