"""Keys that count how often they are compared: the cost of a heap in steps, not in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Counter:
    count: int = 0


_counter = Counter()


class CountedKey(tuple[int, ...]):
    """A heap's key that counts its comparisons."""

    __slots__ = ()

    def __lt__(self, other: tuple[int, ...]) -> bool:
        _counter.count += 1
        return super().__lt__(other)


@contextmanager
def comparisons() -> Iterator[Counter]:
    """Counts the comparisons of the block; read `count` after it."""
    before, tally = _counter.count, Counter()
    yield tally
    tally.count = _counter.count - before
