"""Merging overlapping intervals."""

import itertools
import random


def merge(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same points in as few intervals as possible, in order; each includes both its ends."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def points(intervals: list[tuple[int, int]]) -> set[int]:
    """Every whole number in any of them."""
    return set(itertools.chain.from_iterable(range(start, end + 1) for start, end in intervals))


def test_neighbours_are_joined() -> None:
    assert merge([(5, 6), (1, 2), (3, 4)]) == [(1, 6)]


def test_gaps_stay() -> None:
    assert merge([(1, 2), (4, 5)]) == [(1, 2), (4, 5)]


def test_random_intervals_keep_their_points() -> None:
    chance = random.Random(1)
    for _ in range(500):
        starts = [chance.randrange(100) for _ in range(chance.randrange(12))]
        intervals = [(start, start + chance.randrange(9)) for start in starts]
        assert points(merge(intervals)) == points(intervals)
        assert all(a[1] + 1 < b[0] for a, b in itertools.pairwise(merge(intervals)))
