"""The order of variants in each turn: everyone stands at each place, and behind each other one, equally often.

Rows of a Williams square (E. J. Williams, "Experimental designs balanced for the estimation of residual effects of
treatments", 1949) in random order. Merely rotated, a variant would have the same one before it in nearly every turn, and
what that one leaves behind (clocks, instruction caches, where the next blocks go) would be in nearly every sample.
"""

import functools
import random


def order_of_turn(count: int, turn: int, seed: int) -> tuple[int, ...]:
    """The places 0 .. count-1, at least one, in the order of a turn; balanced over `count` turns, twice that if it is odd."""
    period, row = divmod(turn, len(square(count)))
    return _shuffled(count, seed + period)[row]


@functools.cache
def square(count: int) -> tuple[tuple[int, ...], ...]:
    """The rows of a Williams square; an odd count needs each backwards too."""
    zigzag = [place // 2 if place % 2 == 0 else count - (place + 1) // 2 for place in range(count)]
    rows = [tuple((place + shift) % count for place in zigzag) for shift in range(count)]
    return (*rows, *(row[::-1] for row in rows)) if count % 2 else tuple(rows)


@functools.lru_cache(maxsize=64)
def _shuffled(count: int, seed: int) -> list[tuple[int, ...]]:
    return random.Random(seed).sample(square(count), len(square(count)))
