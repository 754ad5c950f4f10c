"""The order of turns: nobody profits from a place or from a neighbour."""

import itertools
from collections import Counter

import pytest

from sweep.turns import order_of_turn, square


@pytest.mark.parametrize("count", range(1, 18))
@pytest.mark.parametrize("seed", [0, 5])
def test_everyone_stands_at_each_place_and_behind_each_other_one_equally_often(count, seed):
    turns = [order_of_turn(count, turn, seed) for turn in range(len(square(count)))]
    assert all(sorted(turn) == list(range(count)) for turn in turns)
    places = Counter((place, variant) for turn in turns for place, variant in enumerate(turn))
    assert len(places) == count**2
    assert len(set(places.values())) == 1
    followers = Counter(pair for turn in turns for pair in itertools.pairwise(turn))
    assert len(followers) == count * (count - 1)
    assert len(set(followers.values())) <= 1


def test_orders_come_again_for_the_same_seed_alone():
    orders = [[order_of_turn(6, turn, seed) for turn in range(31)] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert orders[0][:6] != orders[0][6:12]  # another period, another order of rows
